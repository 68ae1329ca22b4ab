"""Small steps towards a memory target: a pure function of what was measured. No torch, no clock, no state of the run.

The band [target - margin, target] is left alone. Below it the plan grows: first the batch back to its configured size,
then its axes in their order of growth. Above it the plan shrinks in the reverse order. Growth is admitted only where
the expected peak stays at or below target; where nothing admitted is left, the plan stays, and the reason says why.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from trainauto.control.policy_input import PolicyInput
from trainauto.core.plan import BATCH_SIZE, Axis, Plan
from trainauto.core.units import MIB

SMALLEST_STEP, LARGEST_STEP = 2, 8
"""Of samples and of sides of crops; per cent of the value where memory is proportional to a size (tokens)."""

STEP_PER_HEADROOM = 40
"""Growth of an axis for the whole memory as headroom: 5 % of it gives a step of 2, 20 % one of 8, as documented."""

SHRINK_AFTER_OOM = 0.25


def shrunk_after_oom(plan: Plan, axes: Sequence[Axis]) -> Plan | None:
    """Return the plan with every axis a quarter smaller, at least one admissible value; ``None`` at all floors."""
    values = {}
    for axis in axes:
        value = plan[axis.name]
        target = min(int(value * (1 - SHRINK_AFTER_OOM)), value - axis.multiple)
        values[axis.name] = min(value, axis.clamp(target))
    smaller = plan.changed(**values)
    return None if smaller == plan else smaller


def with_smaller_passes(plan: Plan, axes: Sequence[Axis]) -> Plan | None:
    """Return the plan with forward passes a quarter smaller; ``None`` where they cannot be.

    The samples of a step stay where a plan counts them: they come in more passes. With one sample a pass, its size
    shrinks.
    """
    if BATCH_SIZE in plan and plan.forward_batch_size > 1:
        samples = int(plan.forward_batch_size * (1 - SHRINK_AFTER_OOM))
        return plan.with_micro_batches(ceil(plan.batch_size / samples))
    return shrunk_after_oom(plan, [axis for axis in axes if axis.name != BATCH_SIZE])


@dataclass(frozen=True)
class Measured:
    """Peaks seen so far.

    Attributes:
        typical_bytes: for each plan the typical peak of its last whole period.
        work: what activations grow with, by plan.
    """

    typical_bytes: Mapping[Plan, int]
    work: Callable[[Plan], int]

    def expected_bytes(self, plan: Plan) -> int:
        """Return the peak to expect of a plan: affine in its work through what was measured.

        Below the smallest and with a single measurement the peak is taken as proportional, which overestimates growth:
        a constant part (weights, optimizer) does not grow. The largest residual of the fit is added.

        Raises:
            ValueError: nothing was measured yet.
        """
        if plan in self.typical_bytes:
            return self.typical_bytes[plan]
        points = sorted((self.work(other), peak) for other, peak in self.typical_bytes.items())
        if not points:
            raise ValueError("no peak was measured yet")
        x, (x_last, peak_last) = self.work(plan), points[-1]
        count = len(points)
        mean_x, mean_y = sum(p[0] for p in points) / count, sum(p[1] for p in points) / count
        spread = sum((p[0] - mean_x) ** 2 for p in points)
        if not spread:
            return int(peak_last * x / x_last)
        slope = sum((px - mean_x) * (py - mean_y) for px, py in points) / spread
        if slope <= 0:
            return int(peak_last * max(1.0, x / x_last))
        residual = max(abs(py - (mean_y + slope * (px - mean_x))) for px, py in points)
        return int(mean_y + slope * (x - mean_x) + residual)


@dataclass(frozen=True, kw_only=True)
class StepInput(PolicyInput):
    """What small steps go by: a measured period, and peaks of the plans before it.

    Attributes:
        peak_bytes: the largest peak of the period.
        measured: peaks of this and earlier plans.
    """

    peak_bytes: int
    measured: Measured

    @property
    def usage(self) -> float:
        """Share of the limit that was used at the peak."""
        return self.peak_bytes / self.limit_bytes


@dataclass(frozen=True)
class PolicyDecision:
    """What the policy says.

    Attributes:
        plan: the plan to continue with; the same one to stay.
        reason: why, in words and figures.
        expected_bytes: the peak expected of it.
        is_pressure: the plan is left because memory is short, not because it is the better one.
    """

    plan: Plan
    reason: str
    expected_bytes: int | None = None
    is_pressure: bool = False


def decide(now: StepInput) -> PolicyDecision:
    """Decide upon a whole period."""
    measured = f"peak {now.usage:.1%} of {now.limit_bytes / MIB:.0f} MiB"
    if now.usage > now.target:
        return _shrink(now, measured)
    if now.usage >= now.target - now.margin:
        return PolicyDecision(
            now.plan, f"{measured} lies in the band {now.target - now.margin:.0%} to {now.target:.0%}"
        )
    if not now.may_grow:
        return PolicyDecision(now.plan, f"{measured} is below the band, growth is not allowed now")
    return _grow(now, measured)


def _grow(now: StepInput, measured: str) -> PolicyDecision:
    # A batch that pressure has made smaller comes back before crops grow again.
    restored = [axis for axis in now.axes if axis.is_count and now.plan.batch_size < now.configured_batch]
    refusals = []
    for axis in restored or now.axes:
        larger = _step_up(now, axis)
        if isinstance(larger, Plan):
            expected = now.measured.expected_bytes(larger)
            reason = f"{measured} is below the band: {axis.name} {now.plan[axis.name]} -> {larger[axis.name]}"
            return PolicyDecision(larger, reason, expected)
        refusals.append(larger)
    return PolicyDecision(now.plan, f"{measured} is below the band, but {'; '.join(refusals)}")


def _step_up(now: StepInput, axis: Axis) -> Plan | str:
    """Return the largest admitted growth of one axis, or why there is none."""
    value = now.plan[axis.name]
    headroom = now.target - now.usage
    step = max(SMALLEST_STEP, min(LARGEST_STEP, int(headroom * STEP_PER_HEADROOM)))
    if axis.is_count and value < now.configured_batch:
        step = min(step, now.configured_batch - value)
    step = _in_values(axis, value, step)
    why = axis.at_bound
    while step >= axis.multiple:
        candidate = now.plan.changed(**{axis.name: value + step})
        if not axis.admits(value + step):
            why = axis.at_bound
        elif refused := refusal(now, candidate):
            why = f"{axis.name} {value + step} {refused}"
        else:
            return candidate
        step -= axis.multiple
    return why


def _in_values(axis: Axis, value: int, step: int) -> int:
    """Return a step in values of an axis, on its multiple."""
    if not axis.is_count and axis.power == 1:
        step = value * step // 100
    return max(axis.multiple, step // axis.multiple * axis.multiple)


def refusal(now: StepInput, plan: Plan) -> str | None:
    """Say why a plan within the bounds is not taken; ``None`` if it may be."""
    expected = now.measured.expected_bytes(plan)
    if expected > now.target * now.limit_bytes:
        return f"is expected to peak at {expected / now.limit_bytes:.1%}, above the target {now.target:.0%}"
    if is_blocked(plan, now.blocked, now.work):
        return "is no smaller than a plan that ran out of memory"
    return None


def _shrink(now: StepInput, measured: str) -> PolicyDecision:
    for axis in reversed(now.axes):
        value = now.plan[axis.name]
        floor = axis.clamp(axis.minimum)
        if value <= floor:
            continue
        smaller = value
        while smaller > floor:
            smaller = max(floor, axis.clamp(smaller - _in_values(axis, value, SMALLEST_STEP)))
            candidate = now.plan.changed(**{axis.name: smaller})
            # Proportional from the peak itself: what exceeded the target may be more than the typical peak.
            expected = now.peak_bytes * now.work(candidate) / max(1, now.work(now.plan))
            typical_bytes = now.measured.typical_bytes.get(candidate)
            if (typical_bytes if typical_bytes is not None else expected) <= now.target * now.limit_bytes:
                break
        reason = f"{measured} is above the target {now.target:.0%}: {axis.name} {value} -> {smaller}"
        return PolicyDecision(candidate, reason, int(expected), is_pressure=True)
    return PolicyDecision(now.plan, f"{measured} is above the target {now.target:.0%}, but the plan is at its minimum")


def is_blocked(plan: Plan, blocked: Iterable[Plan], work: Callable[[Plan], int]) -> bool:
    """Say whether a plan asks for as much work as one that failed."""
    return any(work(plan) >= work(failed) for failed in blocked)
