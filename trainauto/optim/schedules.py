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


@SCHEDULES.register("cosine_with_restarts")
def cosine_with_restarts(cycles: int = 1, end_factor: float = 0.0) -> Shape:
    """Fall along half a cosine several times, each time from the whole rate (Loshchilov & Hutter 2017).

    With ``end_factor`` 0 it is ``cosine_with_restarts`` of transformers.

    Args:
        cycles: how many times, each of the same length.
        end_factor: of the rate, where each falls to.

    Raises:
        ValueError: there is no cycle.
    """
    if cycles < 1:
        raise ValueError(f"cycles must be 1 or more, got {cycles}")
    once = cosine(end_factor)
    # The end of the last cycle is no beginning of another. Rounding does not put off a restart by a step.
    return lambda done: once((cycles * done + 1e-12) % 1.0) if done < 1.0 else end_factor


@dataclass(frozen=True)
class Milestones:
    """A shape of places in the whole run, where they stay whatever else a run begins with.

    Attributes:
        shares: where, as shares of the whole run.
        gamma: factor at each.
    """

    shares: tuple[float, ...]
    gamma: float

    def __call__(self, done: float) -> float:
        """Return the factor where so large a share of the whole run is done."""
        # A milestone acts from the step at which so much is done, whatever rounding the division brings.
        return self.gamma ** sum(1 for share in self.shares if done >= share)


@SCHEDULES.register("multistep", "MultiStepLR")
def multistep(milestones: list[int], total: int, gamma: float = 0.5) -> Shape:
    """Multiply the rate by ``gamma`` at each milestone.

    Args:
        milestones: where, in the unit the run's length is counted in.
        total: length of the run; filled in by the framework.
        gamma: factor at each milestone.
    """
    return Milestones(tuple(milestone / total for milestone in milestones), gamma)


@dataclass(frozen=True)
class RateSchedule:
    """The learning rate of a run: a warm-up, and a shape over the length.

    Attributes:
        shape: factor over the share of the run that is done.
        total: length of the run, in ``unit``.
        unit: what length and warm-up are counted in.
        warmup: length of the linear warm-up, in ``unit``; 0 is none.
        warmup_steps: the same in steps of ``step``; it comes before ``warmup``.
        decays_after_warmup: whether the shape runs over what the warm-up leaves of the run, as in transformers, so that
            the whole rate is reached; by default it runs over all of the run. Milestones stay at their places.
        step: what a step counts in ``unit``. A warm-up gives each step the rate of its end, so that the first is not at
            rate 0: with the samples of a step, a run counted in samples has the rates of one counted in steps. They
            are those of the step that the run began with, whatever the ranks of now.
    """

    shape: Shape
    total: int
    unit: LengthUnit = "steps"
    warmup: float = 0.0
    decays_after_warmup: bool = False
    step: float = 1.0
    warmup_steps: float = 0.0

    def done(self, progress: Progress) -> int:
        """Return how much of the run lies behind, in ``unit``."""
        return progress.steps if self.unit == "steps" else progress.samples

    def factor(self, progress: Progress) -> float:
        """Return the factor for the step that follows ``progress``."""
        return self.factor_at(self.done(progress))

    def factor_at(self, done: float) -> float:
        """Return the factor for the step that begins where ``done`` of the run, in ``unit``, lies behind."""
        length = self._warmup
        warm = min(1.0, (done + self.step) / length) if length else 1.0
        return warm * self.shape(self._share(done))

    @property
    def _warmup(self) -> float:
        return self.warmup_steps * self.step or self.warmup

    def _share(self, done: float) -> float:
        """Return the share that is done of what the shape runs over."""
        if done >= self.total:
            return 1.0
        is_whole = not self.decays_after_warmup or isinstance(self.shape, Milestones)
        begin = 0.0 if is_whole else self._warmup
        return (done - begin) / (self.total - begin) if done > begin else 0.0

    def set_rates(self, optimizers: Iterable[Optimizer], progress: Progress, extra_factor: float = 1.0) -> None:
        """Set the rate of every parameter group for the next step, from the rate it was configured with."""
        factor = self.factor(progress) * extra_factor
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor

    def put_back(self) -> None:
        """Do nothing: the rates of the next step follow from those that were configured."""

    @staticmethod
    def remember_rates(optimizer: Optimizer) -> None:
        """Note the configured rate of every group, before any schedule changes it."""
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
