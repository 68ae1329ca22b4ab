"""Straight to the best plan, one correction, then rest: a pure function of a cost model. No torch, no clock.

The best plan is the one that has the configured batch, then the largest value on each axis in their order of growth
(crops before batches). It is one of the plans of the lattice that are *admitted*: their upper quantile stays within
target and limit, and none is at least as large as a plan that ran out of memory. Admission is monotone on every axis,
so every search is a bisection.

- Before anything was measured: the best plan at once, larger or smaller than the present one.
- Where plans can be measured before they are trained (probes), the median decides instead of the upper quantile: a
  probe above target costs nothing.
- Peak within [target - margin, target]: the plan stays.
- Below: the best plan under what is known by now, if it is worth a change: :data:`CORRECTION_GAIN` more use for the one
  correction after a jump, :data:`LATER_GAIN` afterwards. A batch below the configured one is restored before anything
  grows, if need be at the price of some crop, and is worth a change by itself.
- Above: a jump that was not corrected yet went too far, and the best plan under what is known by now is taken. After
  that it is pressure: the axis that grew last shrinks first, a batch below the configured one if it must. Of a plan a
  little above (:data:`LITTLE_ABOVE`) those that are smaller on every axis are known well enough: the median decides
  for them. Of another crop with another batch it says less, and their upper quantile decides as ever.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from trainauto.control.policy_input import NO_VALUES, PolicyInput
from trainauto.control.step_policy import PolicyDecision, is_blocked
from trainauto.core.plan import Axis, Plan, count_axis, plan_of, shape_of, size_axis
from trainauto.core.units import size_text
from trainauto.memory.cost.cost_model import UPPER, CostModel

CORRECTION_GAIN = 0.02
"""Least growth of use that the one correction after a jump is worth: less is within what peaks vary by."""

LATER_GAIN = 0.10
"""Least growth of use that a change is worth once corrected: memory became free, or pressure has passed."""

PROBE_GAIN = 0.01
"""Least growth of use that another probe is worth."""

PROBE_ROOM = 0.01
"""Share of the target that a plan found by probes leaves free: what peaks of one plan vary by from step to step."""

LITTLE_ABOVE = 0.01
"""Share of the target by which a plan may exceed it and still tell what the next smaller one needs."""

ROOM_COST = 0.04
"""Share of use that leaving this room may cost: where samples are large, the next smaller plan leaves far more."""

ROUND_TO, ROUND_LOSS, ROUND_REACH = 8, 0.02, 0.9
"""Sizes are rounded to multiples of 8, which kernels and windows like, where that costs at most 2 % of the use; never
below 90 % of the size."""


MOST_SIZES = 512
"""Sizes of a frontier: of a hundred thousand, neighbours do not differ."""


@dataclass(frozen=True, kw_only=True)
class JumpInput(PolicyInput):
    """What a jump goes by: a period, if one was measured, and what plans are predicted to need.

    Attributes:
        cost: what plans need, counted as ``peak_bytes`` is; its upper quantile stays at or below target.
        reserved: the least of the device with which the allocator need not flush under plans, where that is known.
        corrected: the one correction after a jump was made.
        is_fresh_jump: the present plan is that of a jump which nothing has corrected yet.
    """

    cost: CostModel
    reserved: CostModel | None = None
    corrected: bool = False
    is_fresh_jump: bool = False

    def refusal(self, plan: Plan) -> str | None:
        """Say why a plan is not admitted; ``None`` if it is."""
        for axis in self.axes:
            if not axis.admits(plan[axis.name]):
                return f"is outside {axis.minimum} to {axis.maximum}"
        if is_blocked(plan, self.blocked, self.work):
            return "is no smaller than a plan that ran out of memory"
        if self.is_probe or self._lies_little_below(plan):
            if (why := self._refusal_by_median(plan)) is not None:
                return why
        elif (most := self.most(plan)) > self.target_bytes:
            return f"may need {most / self.limit_bytes:.1%}, above the target {self.target:.0%}"
        if self.reserved is None or self.available_bytes is None:
            return None
        quantile = 0.5 if self.is_probe else UPPER
        if (most := self.least_reserved(plan, quantile)) > self.available_bytes:
            return f"may have to reserve {size_text(most, 0)} of {size_text(self.available_bytes, 0)} available"
        return None

    def _refusal_by_median(self, plan: Plan) -> str | None:
        room = PROBE_ROOM if self.is_probe else 0.0
        expected = self.cost.predict(shape_of(plan)) if self.is_probe else self._expected_beyond(plan)
        if expected > (1 - room) * self.target_bytes:
            share = expected / self.limit_bytes
            return f"is expected to need {share:.1%}, too close to the target of {self.target:.0%}"
        if (most := self.most(plan)) > self.limit_bytes:
            return f"may need {most / self.limit_bytes:.1%}"
        return None

    def least_reserved(self, plan: Plan, quantile: float) -> int:
        """Return what the allocator has to reserve at least: never less than the peak."""
        shape = shape_of(plan)
        least = self.reserved.predict(shape, quantile) if self.reserved is not None else 0
        return max(self.cost.predict(shape, quantile), least)

    def most(self, plan: Plan) -> int:
        """Return the upper quantile of a plan's peak; under pressure also what the present peak is of its own median.

        Not that factor on top of the quantile: a single peak a little above the target would cost several samples.
        """
        return max(self.cost.predict(shape_of(plan), UPPER), self._expected_beyond(plan))

    def _expected_beyond(self, plan: Plan) -> int:
        """Return what a plan is expected to need if it goes as far beyond its median as the present one; 0 if none."""
        if self.peak_bytes is None or self.peak_bytes <= self.target_bytes:
            return 0
        beyond = self.peak_bytes / self.cost.predict(shape_of(self.plan))
        return ceil(beyond * self.cost.predict(shape_of(plan)))

    def _lies_little_below(self, plan: Plan) -> bool:
        """Say whether the plan that was measured is a little too large, and this one larger on no axis."""
        if self.peak_bytes is None or not self.target_bytes < self.peak_bytes <= (1 + LITTLE_ABOVE) * self.target_bytes:
            return False
        return all(plan[axis.name] <= self.plan[axis.name] for axis in self.axes)

    def admits(self, plan: Plan) -> bool:
        """Say whether a plan may be chosen."""
        return self.refusal(plan) is None


def decide(now: JumpInput) -> PolicyDecision:
    """Decide before the first step, upon every probe, and upon every whole period."""
    if not now.cost.can_predict:
        return PolicyDecision(now.plan, "nothing was traced or measured yet")
    if now.peak_bytes is None:
        return _initial_decision(now)
    use = now.peak_bytes / now.limit_bytes
    measured = f"peak {use:.1%} of {size_text(now.limit_bytes, 0)}"
    if now.is_probe:
        return _after_probe(now, measured, now.peak_bytes)
    if now.peak_bytes > now.target_bytes:
        above, best = f"{measured} is above the target {now.target:.0%}", best_plan(now) if now.is_fresh_jump else None
        if best is not None and now.work(best) < now.work(now.plan):  # it went too far: pressure is something else
            return _explained(now, best, f"{above}: {now.plan} -> {best}")
        return _shrink(now, above)
    # What is measured to fit needs no room for doubt: the median decides here, not the upper quantile.
    if now.reserved and now.available_bytes is not None:
        reserved_bytes = now.least_reserved(now.plan, 0.5)
        if reserved_bytes > now.available_bytes:
            return _shrink(
                now,
                f"{size_text(reserved_bytes, 0)} to reserve is above the {size_text(now.available_bytes, 0)} available",
            )
    if use >= now.target - now.margin:
        return PolicyDecision(
            now.plan, f"{measured} lies in the band {now.target - now.margin:.0%} to {now.target:.0%}"
        )
    if not now.may_grow:
        return PolicyDecision(now.plan, f"{measured} is below the band, growth is not allowed now")
    return _correct(now, f"{measured} is below the band", now.peak_bytes)


def best_plan(now: JumpInput) -> Plan | None:
    """Return the admitted plan with most of the configured batch that is then largest on each axis, if there is one.

    The first term says that the configured batch is restored before anything grows.
    """
    batches, smallest = now.batch_sizes, now.plan.with_size(now.sizes[0])
    configured = _upto(batches, max(batches[0], now.configured_batch))
    least = _last(configured, lambda batch: now.admits(smallest.with_batch_size(batch)))
    if least is None:
        return None
    best = smallest.with_batch_size(least)
    rest = batches[batches.index(least) :] if least == configured[-1] else range(least, least + 1)
    for axis in now.axes:
        best = _grown(now, best, axis, rest if axis.is_count else axis.values)
    return _rounded(now, best, rest)


def _grown(now: JumpInput, plan: Plan, axis: Axis, values: range) -> Plan:
    """Return a plan with the largest admitted one of these values on an axis; itself where none is."""
    value = _last(values, lambda value: now.admits(plan.changed(**{axis.name: value})))
    return plan if value is None else plan.changed(**{axis.name: value})


def _rounded(now: JumpInput, best: Plan, batches: range) -> Plan:
    """Return the plan of the largest round size that uses nearly as much as the best one, if any does."""
    axis = size_axis(now.axes)
    if axis is None:
        return best
    least_bytes = (1 - ROUND_LOSS) * now.cost.predict(shape_of(best))
    for size in range(best.size // ROUND_TO * ROUND_TO, int(ROUND_REACH * best.size), -ROUND_TO):
        if not axis.admits(size):
            continue
        plan = now.plan.with_size(size)
        batch = _last(batches, lambda value, plan=plan: now.admits(plan.with_batch_size(value)))  # type: ignore[misc]
        if batch is not None and now.cost.predict(shape_of(plan.with_batch_size(batch))) >= least_bytes:
            return plan.with_batch_size(batch)
    return best


def frontier(
    cost: CostModel,
    axes: Sequence[Axis],
    limit_bytes: int,
    *,
    quantile: float = UPPER,
    micro_batches: int = 1,
    admits: Callable[[Plan], bool] | None = None,
) -> list[Plan]:
    """Return for each size the largest batch whose quantile stays within the limit, as far as there is one.

    ``admits`` may ask for more than that; what it refuses, it refuses of larger plans, too.
    """
    count, size = count_axis(axes), size_axis(axes)
    batches = count.values if count else NO_VALUES
    plans: list[Plan] = []
    values = size.values if size else NO_VALUES
    for value in values[:: max(1, len(values) // MOST_SIZES)]:

        def fits(batch: int, value: int = value) -> bool:
            plan = plan_of(axes, batch, value, micro_batches)
            return cost.predict(shape_of(plan), quantile) <= limit_bytes and (admits is None or admits(plan))

        batch = _last(batches, fits)
        if batch is None:
            break
        batches = batches[: batches.index(batch) + 1]  # a larger size admits no larger batch
        plans.append(plan_of(axes, batch, value, micro_batches))
    return plans


def _initial_decision(now: JumpInput) -> PolicyDecision:
    fits = now.admits(now.plan)
    best = best_plan(now) if now.may_grow else None
    if best is not None and best != now.plan:
        return _explained(now, best, f"taking the best plan that is predicted to fit: {now.plan} -> {best}")
    if fits:
        why = "the current plan is the best that fits" if now.may_grow else "growth is not allowed now"
        return _explained(now, now.plan, why)
    return _shrink(now, f"{now.plan} {now.refusal(now.plan)}")


def _after_probe(now: JumpInput, measured: str, peak_bytes: int) -> PolicyDecision:
    best = best_plan(now)
    if peak_bytes > (1 - PROBE_ROOM) * now.target_bytes:
        is_above = peak_bytes > now.target_bytes
        why = f"{measured} is {'above' if is_above else 'too close to'} the target {now.target:.0%}"
        if best is None or now.work(best) >= now.work(now.plan):
            smaller = _shrink(now, why)
        else:
            smaller = _explained(now, best, f"{why}: {now.plan} -> {best}")
        if is_above or now.cost.predict(shape_of(smaller.plan)) >= (1 - ROOM_COST) * peak_bytes:
            return smaller
        why = f"{measured} is within the target {now.target:.0%}, and {smaller.plan} would use far less"
        return PolicyDecision(now.plan, why, peak_bytes)
    if best is None or best == now.plan or now.cost.predict(shape_of(best)) < (1 + PROBE_GAIN) * peak_bytes:
        return PolicyDecision(now.plan, f"{measured}, {_why_not_larger(now, now.plan)}", peak_bytes)
    return _explained(now, best, f"{measured}: {now.plan} -> {best}")


def _correct(now: JumpInput, measured: str, peak_bytes: int) -> PolicyDecision:
    best = best_plan(now)
    stays = PolicyDecision(now.plan, f"{measured}, but {_why_not_larger(now, now.plan)}")
    if best is None or best == now.plan:
        return stays
    # On a CPU a small step may fit into what the process held before: then nothing was seen of it.
    gain = now.cost.predict(shape_of(best)) / max(1, peak_bytes) - 1
    least = LATER_GAIN if now.corrected else CORRECTION_GAIN
    restores = now.plan.batch_size < best.batch_size <= now.configured_batch
    if gain <= 0 and not restores:  # only doubt makes the best plan smaller than the one that was measured
        return stays
    if gain < least and not restores:
        return PolicyDecision(now.plan, f"{measured}, but {best} would use {gain:+.1%}, and a change needs {least:.0%}")
    return _explained(now, best, f"{measured}: {now.plan} -> {best}")


def _shrink(now: JumpInput, why: str) -> PolicyDecision:
    """Return the largest smaller plan that is admitted: smaller on the axis that grew last, then on that before it."""
    plan = now.plan
    for axis in reversed(now.axes):
        smaller = _upto(axis.values, now.plan[axis.name] - 1)
        value = _last(smaller, lambda value, plan=plan, axis=axis: now.admits(plan.changed(**{axis.name: value})))  # type: ignore[misc]
        if value is not None:
            change = f"{now.plan} -> {plan.changed(**{axis.name: value})}"
            if plan == now.plan:
                change = f"{axis.name} {now.plan[axis.name]} -> {value}"
            return _explained(now, plan.changed(**{axis.name: value}), f"{why}: {change}", is_pressure=True)
        plan = plan.changed(**{axis.name: min(plan[axis.name], axis.values[0])})
    why = f"{why}, and so is every smaller plan: the plan drops to its minimum"
    return _explained(now, plan, why, is_pressure=True)


def _explained(now: JumpInput, plan: Plan, why: str, *, is_pressure: bool = False) -> PolicyDecision:
    expected, limit = now.cost.predict(shape_of(plan)), size_text(now.limit_bytes, 0)
    reason = (
        f"{why}; expected {size_text(expected, 0)}, {expected / now.limit_bytes:.1%} of {limit}, "
        f"at most {now.most(plan) / now.limit_bytes:.1%}; {_why_not_larger(now, plan)}"
    )
    return PolicyDecision(plan, reason, expected, is_pressure)


def _why_not_larger(now: JumpInput, plan: Plan) -> str:
    """Say for each axis what stops it, in the order of growth."""
    words = []
    count = count_axis(now.axes)
    for axis in now.axes:
        larger = plan.changed(**{axis.name: plan[axis.name] + axis.multiple})
        if larger[axis.name] > axis.maximum:
            words.append(axis.at_bound)
            continue
        if count and not axis.is_count:  # it comes first: a batch above the configured one does not stand in its way
            larger = larger.with_batch_size(min(plan.batch_size, count.clamp(now.configured_batch)))
        words.append(f"{larger} {now.refusal(larger) or 'would fit'}")
    return "; ".join(words)


def _upto(values: range, most: int) -> range:
    return range(values.start, min(values.stop, most + 1), values.step)


def _last(values: range, holds: Callable[[int], bool]) -> int | None:
    """Return the last value for which a condition holds that, once broken, stays broken; by bisection."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if holds(values[middle]):
            low = middle + 1
        else:
            high = middle
    return values[low - 1] if low else None
