"""Rates that follow samples: steps of different size count by what they train."""

import logging
from typing import Any

from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

COUNTED_IN_STEPS = ("num_decay_steps", "num_stable_steps", "timescale")
"""Keys of ``lr_scheduler_kwargs`` that are numbers of steps."""

logger = logging.getLogger(__name__)


def advance(scheduler: Any, samples: int) -> None:
    """Move a schedule by the samples of a step but one, which the Trainer counts itself.

    A ``LambdaLR`` is a function of its counter, as all schedules are that transformers makes by name but those that
    follow a metric. Others make a rate of the one before: they count steps.
    """
    if isinstance(scheduler, LambdaLR):
        scheduler.last_epoch += samples - 1


def counts_samples(scheduler: Any) -> bool:
    """Whether a schedule can count samples."""
    return isinstance(scheduler, LambdaLR)


def in_samples(arguments: dict[str, Any] | None, step_samples: float) -> dict[str, Any] | None:
    """Return ``lr_scheduler_kwargs`` whose steps are samples.

    Args:
        arguments: as they were given.
        step_samples: samples of the steps that a run begins with.
    """
    if not arguments:
        return arguments
    steps = {name: arguments[name] for name in COUNTED_IN_STEPS if arguments.get(name) is not None}
    return {**arguments, **{name: round(number * step_samples) for name, number in steps.items()}}


def say_what_it_counts(scheduler: Any, samples: int, *, is_given: bool) -> None:
    """Say where rates would not be what a person expects; one that follows a metric counts nothing.

    Args:
        scheduler: of the run.
        samples: of the whole run.
        is_given: whether it was made before, by code that may have counted steps.
    """
    name = type(scheduler).__name__
    if counts_samples(scheduler):
        if is_given:
            logger.warning("the %s given counts samples, %d in this run: numbers of steps are too low", name, samples)
    elif not isinstance(scheduler, ReduceLROnPlateau) and hasattr(scheduler, "get_lr"):
        logger.warning(
            "%s counts steps, whatever they train: a length of %d, the samples of this run, is too long for it; only "
            "LambdaLR can count samples",
            name,
            samples,
        )
