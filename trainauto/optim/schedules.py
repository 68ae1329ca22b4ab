"""Learning rates as pure functions of progress.

A schedule keeps no count of its own: the learning rate of a step follows from the progress counters alone, so a resumed
run, a changed length or a changed schedule need no state to be mended.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import cos, pi

from torch.optim import Optimizer

from trainauto.core.records import Progress
from trainauto.core.run_events import LengthUnit
from trainauto.optim.registry import SCHEDULES, Shape


@SCHEDULES.register("constant", "none", "ConstantLR")
def constant() -> Shape:
    """Keep the rate."""
    return lambda _done: 1.0


@SCHEDULES.register("linear", "LinearLR")
def linear(end_factor: float = 0.0) -> Shape:
    """Fall in a straight line to ``end_factor`` of the rate."""
    return lambda done: 1.0 + (end_factor - 1.0) * done


@SCHEDULES.register("cosine", "CosineAnnealingLR")
def cosine(end_factor: float = 0.0) -> Shape:
    """Fall along half a cosine to ``end_factor`` of the rate (Loshchilov & Hutter 2017, without restarts)."""
    return lambda done: end_factor + (1.0 - end_factor) * 0.5 * (1.0 + cos(pi * done))


@SCHEDULES.register("multistep", "MultiStepLR")
def multistep(milestones: list[int], total: int, gamma: float = 0.5) -> Shape:
    """Multiply the rate by ``gamma`` at each milestone.

    Args:
        milestones: where, in the unit the run's length is counted in.
        total: length of the run; filled in by the framework.
        gamma: factor at each milestone.
    """
    shares = [milestone / total for milestone in milestones]
    # A milestone acts from the step at which so much is done, whatever rounding the division brings.
    return lambda done: gamma ** sum(1 for share in shares if done >= share)


@dataclass(frozen=True)
class RateSchedule:
    """The learning rate of a run: a warm-up, then a shape over the whole length.

    Attributes:
        shape: factor over the share of the run that is done.
        total: length of the run, in ``unit``.
        unit: what length and warm-up are counted in.
        warmup: length of the linear warm-up, in ``unit``; 0 is none.
    """

    shape: Shape
    total: int
    unit: LengthUnit = "steps"
    warmup: float = 0.0

    def done(self, progress: Progress) -> int:
        """Return how much of the run lies behind, in ``unit``."""
        return progress.steps if self.unit == "steps" else progress.samples

    def factor(self, progress: Progress) -> float:
        """Return the factor for the step that follows ``progress``. The first step of a warm-up is not at rate 0."""
        done = self.done(progress)
        warm = min(1.0, (done + 1) / self.warmup) if self.warmup else 1.0
        return warm * self.shape(min(1.0, done / self.total))

    def set_rates(self, optimizers: Iterable[Optimizer], progress: Progress, extra_factor: float = 1.0) -> None:
        """Set the rate of every parameter group for the next step, from the rate it was configured with."""
        factor = self.factor(progress) * extra_factor
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor

    @staticmethod
    def remember_rates(optimizer: Optimizer) -> None:
        """Note the configured rate of every group, before any schedule changes it."""
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
