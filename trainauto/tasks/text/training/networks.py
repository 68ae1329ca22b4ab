"""Language models of transformers: from a configuration, or with trained weights; with LoRA on top where wanted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from trainauto.core.errors import InputError, Problem, nearest, within_argument
from trainauto.models.activation_checkpointing import NAMED_BLOCKS
from trainauto.tasks.text.training.hub import as_written_for_hub, hub_errors, is_local, require_transformers
from trainauto.tasks.text.training.lora import LoraSettings, with_lora
from trainauto.tasks.text.training.tokenized_samples import ModelKind
from trainauto.tasks.text.training.tokenizers import Vocabulary, special_ids

Attention = Literal["sdpa", "eager", "flex_attention"]
"""How attention is computed: torch's fused kernels, plain tensors, or compiled code that knows masks (CUDA alone)."""

OF_TOKENIZER = ("vocab_size", "pad_token_id", "eos_token_id", "bos_token_id", "decoder_start_token_id")
"""Keys of a configuration that the tokenizer fills in where the option file leaves them out."""


@dataclass(frozen=True)
class NetworkSettings:
    """Which language model, as an option file says it.

    Attributes:
        kind: what it learns from.
        config: keys of its configuration, ``model_type`` among them; it begins with random weights.
        pretrained: folder or name on the hub of one with trained weights. Exactly one of both is given.
        attention: how attention is computed; ``None`` leaves the choice to transformers.
        lora: small matrices that are trained in place of the weights; ``None`` trains these.
    """

    kind: ModelKind = "causal"
    config: Mapping[str, Any] | None = None
    pretrained: str | Path | None = None
    attention: Attention | None = None
    lora: LoraSettings | None = None


def make_config(settings: NetworkSettings, vocabulary: Vocabulary | None) -> Any:
    """Return a model's configuration, with what the tokenizer says filled in.

    Args:
        settings: which model.
        vocabulary: of the tokenizer; ``None`` leaves that of the model: for plans.

    Raises:
        InputError: it is no model of its kind, a key is unknown, or the vocabulary is too small for the tokenizer.
    """
    require_transformers()
    if (settings.config is None) == (settings.pretrained is None):
        advice = "config begins with random weights, pretrained with trained ones."
        raise InputError(Problem("a model has either config or pretrained", advice=advice))
    config = _new_config(settings.config, vocabulary) if settings.config is not None else _loaded_config(settings)
    _check_kind(config, settings)
    _check_vocabulary(config, settings, vocabulary)
    if settings.kind == "encoder_decoder" and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = config.eos_token_id if config.pad_token_id is None else config.pad_token_id
    config.use_cache = False
    return config


def usual_configuration(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the keys of a configuration have by default; nothing of a kind that is not known."""
    require_transformers()
    from transformers import CONFIG_MAPPING, AutoConfig

    kind = written.get("model_type")
    config = AutoConfig.for_model(kind) if kind in CONFIG_MAPPING else None
    return {key: getattr(config, key, None) for key in written}


def make_network(
    settings: NetworkSettings,
    vocabulary: Vocabulary | None,
    *,
    longest: int,
    device_type: str = "cpu",
    weights: bool = True,
) -> nn.Module:
    """Return a model in float32, which is trained in place or by LoRA.

    Where it is made under a fake tensor mode, it holds no data, and ``weights`` must be False.

    Args:
        settings: which model.
        vocabulary: of the tokenizer; ``None`` leaves that of the model.
        longest: tokens of the longest row that it will see.
        device_type: where it will run.
        weights: load trained weights, where there are some.

    Raises:
        InputError: as :func:`make_config`; or rows are too long for it, attention cannot be computed so on the device,
            or nothing matches what LoRA is to change.
    """
    config = make_config(settings, vocabulary)
    _check_attention(settings, device_type)
    _check_positions(config, longest)
    network = _made(settings, config, weights=weights)
    if settings.kind == "causal" and getattr(network, "loss_type", None) is None:
        vars(network)["loss_type"] = "ForCausalLM"  # GPT-2's; transformers takes it all the same, with a warning
    if blocks := _blocks_of(network):
        setattr(network, NAMED_BLOCKS, blocks)
    if settings.lora is not None:
        with within_argument("lora"):
            network = with_lora(network, settings.lora, settings.kind)
        if blocks:
            setattr(network, NAMED_BLOCKS, blocks)
    return network


def _made(settings: NetworkSettings, config: Any, *, weights: bool) -> nn.Module:
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    maker = AutoModelForCausalLM if settings.kind == "causal" else AutoModelForSeq2SeqLM
    chosen: dict[str, Any] = {"dtype": torch.float32}
    if settings.attention is not None:
        chosen["attn_implementation"] = settings.attention
    if settings.pretrained is None or not weights:
        try:
            network: nn.Module = maker.from_config(config, **chosen)
        except InputError:
            raise
        except Exception as error:  # constructors of many hands: they raise what they like
            raise InputError(Problem(f"the model cannot be made: {_first_line(error)}", argument="config")) from error
        return network
    with hub_errors(settings.pretrained, "model", "pretrained"):
        source = as_written_for_hub(settings.pretrained)
        loaded: nn.Module = maker.from_pretrained(
            source, config=config, local_files_only=is_local(settings.pretrained), **chosen
        )
    return loaded


def _new_config(written: Mapping[str, Any], vocabulary: Vocabulary | None) -> Any:
    from transformers import CONFIG_MAPPING, AutoConfig

    keys = dict(written)
    kind = keys.pop("model_type", None)
    if kind not in CONFIG_MAPPING:
        what = "config has no model_type" if kind is None else f"transformers knows no model_type '{kind}'"
        advice = nearest(str(kind), CONFIG_MAPPING) if kind is not None else "Write for example model_type: gpt2."
        raise InputError(Problem(what, advice=advice, argument="config"))
    known = _keys_of(AutoConfig.for_model(kind))
    for key in keys:
        if key not in known:  # configurations keep what nobody reads
            advice = nearest(key, known)
            raise InputError(Problem(f"a {kind} model has no '{key}'", advice=advice, argument="config"))
    if vocabulary is not None:
        keys = {"vocab_size": vocabulary.size, **special_ids(vocabulary), **keys}
    try:
        return AutoConfig.for_model(kind, **keys)
    except Exception as error:  # of each model its own
        raise InputError(Problem(f"the configuration is refused: {_first_line(error)}", argument="config")) from error


def _keys_of(config: Any) -> set[str]:
    return {*config.to_dict(), *getattr(config, "attribute_map", {}), *OF_TOKENIZER}


def _loaded_config(settings: NetworkSettings) -> Any:
    source = str(settings.pretrained)
    with hub_errors(source, "model", "pretrained"):
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(as_written_for_hub(source), local_files_only=is_local(source))


def _check_kind(config: Any, settings: NetworkSettings) -> None:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING

    mappings = {"causal": MODEL_FOR_CAUSAL_LM_MAPPING, "encoder_decoder": MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING}
    if type(config) in mappings.pop(settings.kind):
        return
    ((other, mapping),) = mappings.items()
    what = f"a {config.model_type} model is no {settings.kind} language model"
    advice = f"Write kind: {other}." if type(config) in mapping else "Take another model_type, such as gpt2 or t5."
    raise InputError(Problem(what, advice=advice, argument="kind"))


def _check_vocabulary(config: Any, settings: NetworkSettings, vocabulary: Vocabulary | None) -> None:
    size = getattr(config.get_text_config(), "vocab_size", None)
    if vocabulary is None or size is None or size >= vocabulary.size:
        return
    advice = (
        "Take the tokenizer of that model." if settings.pretrained else "Leave vocab_size out of the configuration."
    )
    message = f"the model knows {size} tokens, {vocabulary.source} has {vocabulary.size}"
    raise InputError(Problem(message, advice=advice, argument="pretrained" if settings.pretrained else "config"))


def _check_attention(settings: NetworkSettings, device_type: str) -> None:
    if settings.attention == "flex_attention" and device_type != "cuda":
        message = "flex_attention has no backward pass on a CPU"
        raise InputError(Problem(message, advice="Take sdpa, or leave it out.", argument="attention"))


def _check_positions(config: Any, longest: int) -> None:
    most = getattr(config.get_text_config(), "max_position_embeddings", None)
    if isinstance(most, int) and 0 < most < longest:
        message = f"rows of {longest} tokens are longer than the {most} positions that the model knows"
        advice = f"Set max_length (and row_length) to {most} at most, or give the model more positions."
        raise InputError(Problem(message, advice=advice, argument="config"))


def _blocks_of(network: nn.Module) -> Sequence[nn.Module]:
    """Return what transformers itself would run again for gradient checkpointing; of encoders and decoders both."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in network.modules() if isinstance(module, GradientCheckpointingLayer)]


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {': '.join(lines[:2])}" if lines else type(error).__name__
