"""What a run of fine-tuning says of itself at its start and at its end."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.optim.precision import Precision
from trainauto.options.finetune_options import FinetuneTraining, step_conversations, warmup_of
from trainauto.reporting.formatting import in_thousands
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import validated_sets
from trainauto.tasks.finetune.conversation_model import LOSS
from trainauto.tasks.finetune.conversation_set import ConversationValidation
from trainauto.tasks.finetune.four_bits import bytes_in_four_bits, weights_of

Pair = tuple[str, str]
"""A label, and what it says."""


def model_words(model: nn.Module, precision: Precision) -> str:
    """Return how much of a model learns, and in which formats; weights in float32 go without saying."""
    weights = list(model.parameters())
    learning = [weight for weight in weights if weight.requires_grad]
    total, trained = (sum(map(weights_of, some)) for some in (weights, learning))
    kept = next(weight for weight in weights if weight.is_floating_point()).dtype
    others = "" if kept == torch.float32 else f", weights in {str(kept).removeprefix('torch.')}"
    return f"{in_thousands(trained)} of {in_thousands(total)} parameters learn, {precision}{others}"


def packed_words(model: nn.Module) -> list[Pair]:
    """Return how much of a model is kept in 4 bits, and how much beside; nothing where it is kept as usual."""
    packed_bytes, other_bytes = bytes_in_four_bits(model)
    if not packed_bytes:
        return []
    beside = "embeddings, head, norms, adapters"
    return [("", f"linear layers {size_text(packed_bytes)} in 4 bits; {size_text(other_bytes)} beside: {beside}")]


def step_words(training: FinetuneTraining) -> str:
    """Return what a step holds."""
    passes, most = training.gradient_accumulation_steps, training.max_batch_size
    each = f"{counted(step_conversations(training), 'conversation')} each"
    begin = f", in passes of {training.per_device_train_batch_size} at first, then as memory allows"
    grow = f"; up to {most} where memory has room for them" if most is not None else ""
    return f"{each}{begin if passes > 1 else ''}{grow}"


def rate_words(training: FinetuneTraining) -> str:
    """Return rates and length, and how rates follow the step; of two lengths, which one counts."""
    warmup = warmup_of(training)
    rises = f", rising for {counted(int(warmup), 'step')}" if warmup >= 1 else f", rising for {warmup:.3g} of the run"
    epochs = f"{training.num_train_epochs:g} epoch{'' if training.num_train_epochs == 1 else 's'}"
    length = counted(training.max_steps, "step") if training.max_steps else epochs
    both = training.max_steps and "num_train_epochs" in training.model_fields_set
    wins = "; max_steps wins over num_train_epochs" if both else ""
    kind = "constant" if training.lr_scheduler_type == "none" else training.lr_scheduler_type
    scaling = f", lr_scaling {training.lr_scaling}" if training.lr_scaling != "none" else ""
    return f"{training.learning_rate:g}, {kind}{rises if warmup else ''}{scaling}, {length}{wins}"


def measured_words(validations: Sequence[ConversationValidation], directory: RunDirectory, step: int) -> list[Pair]:
    """Return the loss on what is set aside after the last step, also where an earlier process measured it."""
    words = []
    for validation in validations:
        of_now, logged = validation.last, validated_sets(directory, step).get(validation.name)
        metrics = of_now.metrics if of_now is not None else logged["metrics"] if logged is not None else None
        if metrics is not None:
            loss, set_aside = float(metrics[LOSS]), len(validation.dataset)
            perplexity = math.exp(min(loss, 50))
            words.append(("measured", f"loss {loss:.4g} on {set_aside} set aside, perplexity {perplexity:.4g}"))
    return words
