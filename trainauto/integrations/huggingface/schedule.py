"""Rates that follow samples: steps of different size count by what they train."""

import logging
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from trainauto.optim.schedules import RateSchedule

COUNTED_IN_STEPS = ("num_decay_steps", "num_stable_steps", "timescale")
"""Keys of ``lr_scheduler_kwargs`` that are numbers of steps."""

logger = logging.getLogger(__name__)


class Following(LambdaLR):
    """Moves rates along a schedule; of its state it takes up how much of that is done, in the schedule's unit.

    Rates are those of the schedule it was made with, in the middle of another one, too: a resume may be longer, or
    begin from another rate.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where another was; the optimizer's own state is there by then, with the rates of its schedule."""
        given = self.base_lrs
        super().load_state_dict(state_dict)
        self.base_lrs = given
        self.go_to(self.last_epoch)

    def go_to(self, done: int) -> None:
        """Have the rates be those after so much of the schedule, in its unit."""
        self.last_epoch = done
        rates = [rate * factor(done) for rate, factor in zip(self.base_lrs, self.lr_lambdas, strict=True)]
        for group, start, rate in zip(self.optimizer.param_groups, self.base_lrs, rates, strict=True):
            group["initial_lr"], group["lr"] = start, rate
        self._last_lr = rates


def following(schedule: RateSchedule, optimizer: Optimizer) -> LambdaLR:
    """Return what moves rates along a schedule; its state is how much of that is done, in the schedule's unit."""

    def factor(done: int) -> float:  # a plain function, for of others a LambdaLR saves what they hold
        return schedule.factor_at(done)

    return Following(optimizer, factor)


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
        is_given: whether it was made before, by somebody who may have counted steps.
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
