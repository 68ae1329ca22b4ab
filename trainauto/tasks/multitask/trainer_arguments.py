"""What a Trainer is told when samples are of several kinds: passes of a step, its memory, and how much is left free."""

from copy import copy
from typing import Any, Protocol

from transformers import TrainingArguments

from trainauto.core.errors import InputError, Problem
from trainauto.integrations.huggingface.arguments import own_argument
from trainauto.integrations.huggingface.train_data import STEP_SAMPLES
from trainauto.tasks.multitask.losses.normalizer import EffectiveBatchSizeNormalizer


class Margin(Protocol):
    """What is asked of a guardian.

    Attributes:
        memory_margin_percent: share of its limit that is left free.
    """

    memory_margin_percent: float

    @property
    def limit_bytes(self) -> int:
        """What may be in use at most, the margin among it."""


def prepared_arguments(
    args: TrainingArguments,
    guardian: Margin | None,
    normalizer: EffectiveBatchSizeNormalizer | None,
    *,
    use_gradient_accumulation: bool,
) -> TrainingArguments:
    """Return a copy of arguments with what guardian and normaliser say where the arguments do not.

    Args:
        args: stay as they are.
        guardian: its margin is left free of its limit.
        normalizer: says how many samples a step has.
        use_gradient_accumulation: whether a step has the normaliser's samples, whatever fits into one pass.

    Raises:
        InputError: passes contradict the samples of a step, or these cannot be shared among processes.
    """
    prepared = copy(args)
    prepared.remove_unused_columns = False  # columns are those of samples: the model is given what it takes of batches
    if guardian is not None:
        _take_margin(prepared, guardian)
    if not use_gradient_accumulation:
        prepared.gradient_accumulation_steps = 1
    elif normalizer is not None:
        _take_passes(prepared, normalizer)
    return prepared


def _take_margin(args: Any, guardian: Margin) -> None:
    settings = own_argument(args, "memory_settings")
    if settings is None:
        target = 1 - guardian.memory_margin_percent
        args.memory_settings = {"target_vram_usage": target, "safety_margin": min(0.05, target / 2)}
    if own_argument(args, "memory_budget") is None:
        args.memory_budget = f"{guardian.limit_bytes}B"


def _take_passes(args: Any, normalizer: EffectiveBatchSizeNormalizer) -> None:
    target, processes = normalizer.target_batch_size, args.world_size
    if target % processes:
        raise InputError(
            Problem(
                f"steps of target_batch_size={target} samples cannot be shared equally by {processes} processes",
                advice=f"Take {max(1, round(target / processes)) * processes}.",
            )
        )
    share, forward = target // processes, args.per_device_train_batch_size
    if forward > share:
        raise InputError(
            Problem(
                f"per_device_train_batch_size={forward} is more than a process's share of a step, {share} samples "
                f"(target_batch_size={target})",
                advice=f"Begin with {share} or less.",
            )
        )
    passes = normalizer.accumulation_steps(forward * processes)
    given = args.gradient_accumulation_steps
    if given not in (1, passes):
        raise InputError(
            Problem(
                f"gradient_accumulation_steps={given} contradicts steps of {target} samples in passes of {forward}, "
                f"which are {passes}",
                advice=f"Leave it out, or write {passes}.",
            )
        )
    args.gradient_accumulation_steps = passes
    if passes > 1:
        setattr(args, STEP_SAMPLES, share)
