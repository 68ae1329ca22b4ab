"""The vision-language model of a run: loaded, with adapters where they are wanted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from trainauto.core.errors import InputError, Problem
from trainauto.memory.monitor.release import trim_heap
from trainauto.tasks.finetune.four_bits import FourBits, check_four_bits, settle
from trainauto.tasks.text.training.hub import (
    as_written_for_hub,
    hub_errors,
    is_local,
    require_transformers,
    without_library_noise,
)
from trainauto.tasks.text.training.lora import LoraSettings, with_lora

CONFIGURATION = "config.json"

ADAPTER_FILE = "adapter_config.json"
"""What a folder of adapters has, and that of a whole model has not."""


@dataclass(frozen=True)
class ModelSettings:
    """Which model is loaded, and how.

    Attributes:
        source: folder, or name on the hub.
        attention: how attention is computed.
        dtype: of its weights; ``None`` takes that in which they were saved.
        four_bits: how its linear layers are kept in 4 bits, the others in ``dtype``; ``None`` for not at all.
    """

    source: str | Path
    attention: Literal["sdpa", "eager"] = "sdpa"
    dtype: torch.dtype | None = torch.float32
    four_bits: FourBits | None = None


def load_model(settings: ModelSettings, *, argument: str = "name") -> nn.Module:
    """Return a vision-language model with its trained weights.

    Args:
        settings: which one.
        argument: what errors blame.

    Raises:
        InputError: there is none, transformers knows it for no model of pictures and words, or its weights cannot be
            kept in 4 bits here.
    """
    require_transformers()
    if settings.four_bits is not None:
        check_four_bits(settings.four_bits)
    from transformers import AutoConfig, AutoModelForImageTextToText

    name, only_here = as_written_for_hub(settings.source), is_local(settings.source)
    with hub_errors(settings.source, "model", argument):
        config = AutoConfig.from_pretrained(name, local_files_only=only_here)
        _check_kind(config, settings.source, argument)
        model: nn.Module = AutoModelForImageTextToText.from_pretrained(
            name,
            config=config,
            dtype=settings.dtype or "auto",
            attn_implementation=settings.attention,
            local_files_only=only_here,
            **(settings.four_bits.loading_arguments() if settings.four_bits is not None else {}),
        )
    if settings.four_bits is not None:
        settle(model)
        trim_heap()  # of the weights as they were read
    return model


def configuration_here(source: str | Path, *, argument: str = "name") -> tuple[Any, Path]:
    """Return the configuration of a model, and the folder it lies in: that one, or the cache of the hub.

    Nothing is downloaded, and no weights need be there.

    Args:
        source: folder, or name on the hub.
        argument: what errors blame.

    Raises:
        InputError: it is not on this machine, or of no model of pictures and words.
    """
    require_transformers()
    from transformers import AutoConfig
    from transformers.utils import cached_file

    name = as_written_for_hub(source)
    with hub_errors(source, "configuration", argument):
        found = cached_file(name, CONFIGURATION, local_files_only=True, _raise_exceptions_for_missing_entries=False)
        if found is None and not is_local(source):
            advice = (
                f"plan downloads nothing. Put its {CONFIGURATION} and preprocessor_config.json (no weights) into a "
                "folder, and name that: --force_yml model:name=FOLDER"
            )
            raise InputError(Problem(f"{source} is not on this machine", advice=advice, argument=argument))
        folder = Path(found).parent if found is not None else Path(name)
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
        _check_kind(config, source, argument)
    return config, folder


def model_without_weights(config: Any, settings: ModelSettings) -> nn.Module:
    """Return the model of a configuration, its weights as they come: for worlds in which tensors hold no data.

    Args:
        config: of a model of pictures and words.
        settings: attention, and formats of weights; ``None`` for the format takes that which the configuration names.
    """
    from transformers import AutoModelForImageTextToText

    saved = config.dtype or config.get_text_config().dtype or torch.float32
    model: nn.Module = AutoModelForImageTextToText.from_config(
        config, dtype=settings.dtype or saved, attn_implementation=settings.attention
    )
    return model


def most_positions(model: nn.Module) -> int | None:
    """Return how many tokens a model takes; ``None`` where it does not say."""
    config: Any = model.config
    return most_positions_of(config)


def most_positions_of(config: Any) -> int | None:
    """Return how many tokens the model of a configuration takes; ``None`` where it does not say."""
    most = getattr(config.get_text_config(), "max_position_embeddings", None)
    return int(most) if isinstance(most, int) and most > 0 else None


def adapted(model: nn.Module, r: int, alpha: int, dropout: float, targets: Sequence[str]) -> nn.Module:
    """Return a model of which only low-rank adapters are trained.

    Args:
        model: stays as it is.
        r: rank of the adapters.
        alpha: they count ``alpha / r`` times.
        dropout: of what goes into them.
        targets: last parts of the names of layers; all linear ones but the head where none is named.

    Raises:
        InputError: a name matches no layer; the message has the model's own.
    """
    return with_lora(model, LoraSettings(r, alpha, dropout, targets), "causal")


def checkpoint_activations(model: nn.Module) -> None:
    """Have a model keep only what goes into its blocks, and run these again in the backward pass."""
    enable: Any = getattr(model, "activation_checkpointing_enable", None)  # its name since transformers 5.23
    if enable is not None:
        enable(activation_checkpointing_kwargs={"use_reentrant": False})
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})  # type: ignore[operator]


def with_adapters(model: nn.Module, folder: Path) -> nn.Module:
    """Return a model with the adapters of a folder, for use.

    Raises:
        InputError: the folder has none, or they are of another model.
    """
    from peft import PeftModel

    with hub_errors(folder, "adapter", "name"), without_library_noise():
        loaded: nn.Module = PeftModel.from_pretrained(model, str(folder))
    return loaded


def merged(model: nn.Module) -> nn.Module:
    """Return a model whose weights hold what its adapters added; others are as they are."""
    merge = getattr(model, "merge_and_unload", None)
    return merge() if callable(merge) else model


def _check_kind(config: Any, source: str | Path, argument: str) -> None:
    from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    if type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        _check_whole(config, source, argument)
        return
    advice = "Name one of pictures and words, such as Qwen3-VL; language models are trained by task: text."
    raise InputError(
        Problem(f"{source} is a {config.model_type}, no vision-language model", advice=advice, argument=argument)
    )


def _check_whole(config: Any, source: str | Path, argument: str) -> None:
    """Refuse weights that were saved packed: neither may they be packed otherwise, nor adapters be merged into them."""
    if getattr(config, "quantization_config", None) is not None:
        advice = "Name the model that it was made from; load_in_4bit: true packs that one's as it is loaded."
        raise InputError(Problem(f"the weights of {source} were saved packed", advice=advice, argument=argument))
