"""Learning rates as pure functions of progress.

A schedule keeps no count of its own: the learning rate of a step follows from the progress counters alone, so a resumed
run, a changed length or a changed schedule need no state to be mended.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import cos, floor, pi, sqrt
from typing import Literal

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


ROUNDING = 1e-12
"""Share of a run by which the place of a step may be rounded: what begins with a step is not put off to the next."""


@dataclass(frozen=True)
class Placed:
    """A shape of places in the whole run, where they stay whatever else a run begins with.

    Attributes:
        at: factor where so much of the run, in its unit, is done.
        total: length of the run.
        floor: rate that a factor of 0 stands for, not a factor itself.
        peak: rate that a factor of 1 stands for; ``None`` for the configured one.
        end: where it ends, in the run's unit; ``None`` is nowhere or the end of the run.
    """

    at: Callable[[float], float]
    total: float
    floor: float = 0.0
    peak: float | None = None
    end: float | None = None

    def __call__(self, done: float) -> float:
        """Return the factor where so large a share of the whole run is done."""
        return self.at(done * self.total)


def _fallen(done: float) -> float:
    """Return the factor where so large a share of half a cosine is done."""
    return 0.5 * (1.0 + cos(pi * done))


@SCHEDULES.register("cosine", "CosineAnnealingLR")
def cosine(
    end_factor: float = 0.0,
    T_max: float | None = None,  # noqa: N803
    eta_min: float | None = None,
    total: float = 1.0,
) -> Shape:
    """Fall along half a cosine (Loshchilov & Hutter 2017, without restarts).

    Args:
        end_factor: share of the rate that it falls to at the end of the run.
        T_max: where it has fallen, in the unit the run's length is counted in; it rises again behind that, as in torch.
            With it, what it falls to is ``eta_min``.
        eta_min: rate that it falls to, in place of ``end_factor``.
        total: length of the run; filled in by the framework.

    Raises:
        ValueError: what it falls to is given twice.
    """
    if end_factor and (T_max is not None or eta_min is not None):
        raise ValueError("end_factor and eta_min (0 beside T_max) both say what the rate falls to: leave one out")
    if T_max is None and eta_min is None:
        return lambda done: end_factor + (1.0 - end_factor) * _fallen(done)
    length = T_max if T_max is not None else total
    return Placed(lambda at: _fallen(at / length), total, eta_min or 0.0, end=T_max)


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


@SCHEDULES.register("CosineAnnealingRestartLR")
def cosine_of_periods(
    periods: list[float], total: float, restart_weights: list[float] | None = None, eta_min: float = 0.0
) -> Shape:
    """Fall along half a cosine in each of several periods, as in BasicSR.

    The end of a period still belongs to it. Behind the last one the rate stays what it has fallen to.

    Args:
        periods: their lengths, in the unit the run's length is counted in.
        total: length of the run; filled in by the framework.
        restart_weights: share of the rate that each period begins with; all of it where they are left out.
        eta_min: rate that each falls to.

    Raises:
        ValueError: periods and weights are not as many, or a period is 0 or less.
    """
    if not periods or min(periods) <= 0:
        raise ValueError(f"periods must be lengths above 0, got {periods}")
    weights = restart_weights or [1.0] * len(periods)
    if len(weights) != len(periods):
        raise ValueError(f"restart_weights must be {len(periods)}, one for each period, got {len(weights)}")
    ends = list(accumulate(periods))

    def factor(at: float) -> float:
        number = bisect_left(ends, at - ROUNDING * total)
        if number == len(ends):
            return 0.0
        return weights[number] * _fallen((at - (ends[number] - periods[number])) / periods[number])

    return Placed(factor, total, eta_min, end=ends[-1])


@SCHEDULES.register("CosineAnnealingWarmRestarts")
def cosine_of_growing_periods(
    T_0: float,  # noqa: N803
    total: float,
    T_mult: int = 1,  # noqa: N803
    eta_min: float = 0.0,
) -> Shape:
    """Fall along half a cosine again and again (Loshchilov & Hutter 2017), as in torch.

    Args:
        T_0: length of the first period, in the unit the run's length is counted in.
        total: length of the run; filled in by the framework.
        T_mult: each period is so many times as long as the one before.
        eta_min: rate that each falls to.

    Raises:
        ValueError: ``T_0`` is 0 or less, or ``T_mult`` less than 1.
    """
    if T_0 <= 0 or T_mult < 1:
        raise ValueError(f"T_0 must be above 0 and T_mult 1 or more, got {T_0} and {T_mult}")

    def factor(at: float) -> float:
        begin, length = 0.0, T_0
        while at - begin >= length - ROUNDING * total:
            begin, length = begin + length, length * T_mult
        return _fallen(max(0.0, at - begin) / length)

    return Placed(factor, total, eta_min)


@SCHEDULES.register("CosineAnnealingWarmupLR")
def cosine_after_warmup(
    total: float, total_iters: float | None = None, warmup_iters: float = 0.0, eta_min_ratio: float = 0.1
) -> Shape:
    """Rise from 0 in a straight line, then fall along half a cosine, as in traiNNer-redux.

    Args:
        total: length of the run; filled in by the framework.
        total_iters: where it has fallen, in the unit the run's length is counted in; the end of the run where left out.
        warmup_iters: where it has risen.
        eta_min_ratio: share of the rate that it falls to.
    """
    end = total if total_iters is None else total_iters

    def factor(at: float) -> float:
        if at < warmup_iters:
            return at / warmup_iters
        done = min(1.0, (at - warmup_iters) / max(1.0, end - warmup_iters))
        return eta_min_ratio + (1.0 - eta_min_ratio) * _fallen(done)

    return Placed(factor, total, end=total_iters)


@SCHEDULES.register("OneCycleLR")
def one_cycle(
    total: float,
    max_lr: float | None = None,
    total_steps: float | None = None,
    pct_start: float = 0.3,
    anneal_strategy: Literal["cos", "linear"] = "cos",
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
    three_phase: bool = False,
) -> Shape:
    """Rise to the rate, and fall far below where it began (L. Smith & N. Topin 2019), as in torch.

    Args:
        total: length of the run; filled in by the framework.
        max_lr: rate at the top; the configured one where left out.
        total_steps: where it ends, in the unit the run's length is counted in; the end of the run where left out.
        pct_start: share in which it rises.
        anneal_strategy: along half a cosine or a straight line.
        div_factor: it begins at the top's so-manieth part.
        final_div_factor: and ends at so small a part of that.
        three_phase: fall to the beginning first, in as much time as it rose, and then further.
    """
    last, low = (total if total_steps is None else total_steps) - 1.0, 1.0 / div_factor
    # Phases as (end, factor at it), in torch's counting: the last step has the last rate.
    phases = [(pct_start * (last + 1.0) - 1.0, 1.0)]
    if three_phase:
        phases.append((2 * pct_start * (last + 1.0) - 2.0, low))
    phases.append((last, low / final_div_factor))

    def factor(at: float) -> float:
        begin, first = 0.0, low
        for end, then in phases:
            if at <= end:
                done = (at - begin) / (end - begin)
                return first + (then - first) * (done if anneal_strategy == "linear" else 1.0 - _fallen(done))
            begin, first = end, then
        return first

    return Placed(factor, total, peak=max_lr, end=total_steps)


@SCHEDULES.register("KneeLR", "knee")
def knee(
    total: float, explore_ratio: float = 0.5, total_steps: float | None = None, peak_lr: float | None = None
) -> Shape:
    """Keep the rate, then fall to 0 in a straight line (N. Iyer et al. 2020, https://arxiv.org/abs/2003.03977).

    Args:
        total: length of the run; filled in by the framework.
        explore_ratio: share of the run that keeps it.
        total_steps: where it is 0, in the unit the run's length is counted in; the end of the run where left out.
        peak_lr: rate that it keeps; the configured one where left out.

    Raises:
        ValueError: ``explore_ratio`` lies outside of 0 to 1.
    """
    if not 0.0 <= explore_ratio <= 1.0:
        raise ValueError(f"explore_ratio must lie in 0 to 1, got {explore_ratio}")
    end = total if total_steps is None else total_steps
    falls_from = explore_ratio * end
    return Placed(
        lambda at: 1.0 if at <= falls_from else max(0.0, (end - at) / (end - falls_from)),
        total,
        peak=peak_lr,
        end=total_steps,
    )


COOLDOWNS: Mapping[str, Callable[[float], float]] = {
    "cosine": _fallen,
    "1-sqrt": lambda done: 1.0 - sqrt(done),
    "1-square": lambda done: 1.0 - done**2,
    "linear": lambda done: 1.0 - done,
}
"""How a rate falls, over the share of the fall that is done."""


@SCHEDULES.register("WarmupStableDecayLR", "wsd")
def warmup_stable_decay(
    total: float,
    num_warmup_steps: float,
    num_stable_steps: float,
    num_decay_steps: float,
    min_lr_ratio: float = 0.0,
    cooldown_type: Literal["cosine", "1-sqrt", "1-square", "linear"] = "1-sqrt",
) -> Shape:
    """Rise from 0, keep the rate, and fall (S. Hu et al. 2024, https://arxiv.org/abs/2404.06395).

    Lengths are in the unit the run's length is counted in. Behind them the rate stays what it has fallen to.

    Args:
        total: length of the run; filled in by the framework.
        num_warmup_steps: length of the rise.
        num_stable_steps: for how long the rate is kept.
        num_decay_steps: length of the fall.
        min_lr_ratio: share of the rate behind the fall; a cosine falls to it, the others to 0 just before it.
        cooldown_type: how it falls.
    """
    falls_from = num_warmup_steps + num_stable_steps
    fall = COOLDOWNS[cooldown_type]

    def factor(at: float) -> float:
        if at < num_warmup_steps:
            return at / num_warmup_steps
        if at < falls_from:
            return 1.0
        if at >= falls_from + num_decay_steps:
            return min_lr_ratio
        left = fall((at - falls_from) / num_decay_steps)
        return min_lr_ratio + (1.0 - min_lr_ratio) * left if cooldown_type == "cosine" else left

    return Placed(factor, total, end=falls_from + num_decay_steps)


@SCHEDULES.register("polynomial", "PolynomialLR")
def polynomial(total: float, power: float = 1.0, total_iters: float | None = None) -> Shape:
    """Fall to 0 along a power of what is left, as in torch.

    Args:
        total: length of the run; filled in by the framework.
        power: exponent; 1 is a straight line.
        total_iters: where it is 0, in the unit the run's length is counted in; the end of the run where left out.
    """
    end = total if total_iters is None else total_iters
    return Placed(lambda at: (1.0 - min(at, end) / end) ** power, total, end=total_iters)


@SCHEDULES.register("step", "StepLR")
def step(step_size: float, total: float, gamma: float = 0.1) -> Shape:
    """Multiply the rate by ``gamma`` again and again.

    Args:
        step_size: after how much each time, in the unit the run's length is counted in.
        total: length of the run; filled in by the framework.
        gamma: factor each time.

    Raises:
        ValueError: ``step_size`` is 0 or less.
    """
    if step_size <= 0:
        raise ValueError(f"step_size must be above 0, got {step_size}")
    return Placed(lambda at: gamma ** floor((at + ROUNDING * total) / step_size), total)


@SCHEDULES.register("multistep", "MultiStepLR")
def multistep(milestones: list[int], total: int, gamma: float = 0.5) -> Shape:
    """Multiply the rate by ``gamma`` at each milestone.

    Args:
        milestones: where, in the unit the run's length is counted in.
        total: length of the run; filled in by the framework.
        gamma: factor at each milestone.
    """
    places = [milestone - ROUNDING * total for milestone in milestones]
    return Placed(lambda at: gamma ** sum(1 for place in places if at >= place), total)


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
        return self._warm(done) * self.shape(self._share(done))

    def rate_at(self, done: float, configured: float, extra_factor: float = 1.0) -> float:
        """Return the rate of that step, of weights for which this one is configured."""
        shape, factor = self.shape, self.factor_at(done) * extra_factor
        if not isinstance(shape, Placed):
            return configured * factor
        top = configured if shape.peak is None else shape.peak
        if not shape.floor:
            return top * factor
        return self._warm(done) * extra_factor * (shape.floor + (top - shape.floor) * shape(self._share(done)))

    def _warm(self, done: float) -> float:
        length = self._warmup
        return min(1.0, (done + self.step) / length) if length else 1.0

    @property
    def _warmup(self) -> float:
        return self.warmup_steps * self.step or self.warmup

    def _share(self, done: float) -> float:
        """Return the share that is done of what the shape runs over."""
        if done >= self.total:
            return 1.0
        is_whole = not self.decays_after_warmup or isinstance(self.shape, Placed)
        begin = 0.0 if is_whole else self._warmup
        return (done - begin) / (self.total - begin) if done > begin else 0.0

    def set_rates(self, optimizers: Iterable[Optimizer], progress: Progress, extra_factor: float = 1.0) -> None:
        """Set the rate of every parameter group for the next step, from the rate it was configured with."""
        done = self.done(progress)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate_at(done, group["initial_lr"], extra_factor)

    def put_back(self) -> None:
        """Do nothing: the rates of the next step follow from those that were configured."""

    @staticmethod
    def remember_rates(optimizer: Optimizer) -> None:
        """Note the configured rate of every group, before any schedule changes it."""
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
