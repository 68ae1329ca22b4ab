"""LoRA by peft: small matrices are trained beside layers whose weights stay.

E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", https://arxiv.org/abs/2106.09685.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from torch import nn

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.memory.tracing.four_bit_linear import FourBitLinear
from trainauto.tasks.text.training.tokenized_samples import ModelKind

ALL_LINEAR = "all-linear"


@dataclass(frozen=True)
class LoraSettings:
    """What peft is asked for.

    Attributes:
        r: rank of the matrices.
        lora_alpha: what they add is multiplied by ``lora_alpha / r``.
        lora_dropout: share of their input that is dropped in training.
        target_modules: last parts of the names of the layers that get them; all linear layers but the head where none
            is named.
    """

    r: int = 8
    lora_alpha: int = 16
    lora_dropout: float = 0.0
    target_modules: Sequence[str] = ()


def with_lora(network: nn.Module, settings: LoraSettings, kind: ModelKind) -> nn.Module:
    """Return a network of which only the matrices of LoRA are trained.

    An adapter that is saved names the folder of its base where that really lies.

    Raises:
        InputError: peft is not installed, or nothing matches what is to be changed.
    """
    if find_spec("peft") is None:
        raise InputError(Problem("lora needs the package peft", advice="pip install peft."))
    from peft import LoraConfig, get_peft_model

    layers = dict(_layers_of(network))
    for target in settings.target_modules:
        if not any(_is_called(name, target) for name in layers):
            kinds = sorted({name.rpartition(".")[2] for name in layers})
            advice = nearest(target, kinds)
            if advice.startswith("Did you mean"):
                advice += f" Its layers are {', '.join(kinds)}."
            raise InputError(
                Problem(f"no layer of the model is called '{target}'", advice=advice, argument="target_modules")
            )
    chosen = [
        layer for name, layer in layers.items() if any(_is_called(name, target) for target in settings.target_modules)
    ]
    widest = max((side for layer in chosen or layers.values() for side in _sides_of(layer)), default=settings.r)
    if settings.r > widest:
        message = f"r is {settings.r}, above the {widest} inputs or outputs of the widest layer that gets adapters"
        raise InputError(Problem(message, advice="Write 8, or a few times that.", argument="r"))
    config = LoraConfig(
        r=settings.r,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=list(settings.target_modules) or ALL_LINEAR,
        # Layers of GPT-2 hold their weights the other way round.
        fan_in_fan_out=all(not isinstance(layer, nn.Linear) for layer in chosen or layers.values()),
        task_type="CAUSAL_LM" if kind == "causal" else "SEQ_2_SEQ_LM",
    )
    if any(isinstance(layer, FourBitLinear) for layer in layers.values()):
        from trainauto.tasks.text.training.lora_four_bits import AdaptedFourBits

        config._register_custom_module({FourBitLinear: AdaptedFourBits})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by names that transformers is to drop
        adapted: nn.Module = get_peft_model(network, config)
    # A link such as ``current`` will lead elsewhere; a relative path is one of this folder alone.
    if config.base_model_name_or_path and Path(config.base_model_name_or_path).is_dir():
        config.base_model_name_or_path = str(Path(config.base_model_name_or_path).resolve())
    return adapted


def _is_called(name: str, target: str) -> bool:
    """Say whether peft takes a layer of this name for one that a target names."""
    return name == target or name.endswith(f".{target}")


def _sides_of(layer: nn.Module) -> tuple[int, ...]:
    """Return how many inputs and outputs a layer has; weights in 4 bits are of another shape."""
    return (
        (layer.in_features, layer.out_features)
        if isinstance(layer, nn.Linear)
        else tuple(next(layer.parameters()).shape)
    )


def _layers_of(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers that LoRA can change, by name; the head that makes words is none of them."""
    from transformers.pytorch_utils import Conv1D

    head = getattr(network, "get_output_embeddings", lambda: None)()
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear | Conv1D) and module is not head:
            yield name, module
