"""Straight to the best plan, one correction, then rest: a pure function of a cost model. No torch, no clock.

The best plan is the one with the largest crop at the configured batch, then with the largest batch at that crop, among
the plans of the lattice that are *admitted*: their upper quantile stays within target and limit, and they are not as
large as a plan that failed. Admission is monotone on both axes, so every search is a bisection.

- Before anything was measured: the best plan at once, larger or smaller than the present one.
- Where plans can be measured before they are trained (probes), the median decides instead of the upper quantile: a
  probe above target costs nothing.
- Peak within [target - margin, target]: the plan stays.
- Below: the best plan under what is known by now, if it is worth a change: :data:`CORRECTION_GAIN` more use for the one
  correction after a jump, :data:`LATER_GAIN` afterwards. A batch below the configured one is restored before crops
  grow, if need be at the price of some crop, and is worth a change by itself.
- Above: a jump that was not corrected yet went too far, and the best plan under what is known by now is taken. After
  that it is pressure: the batch shrinks first, below the configured one if it must, then the crop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from trainauto.control.policy_input import PolicyInput
from trainauto.control.step_policy import PolicyDecision, is_blocked, work
from trainauto.core.plan import BATCH_SIZE, LQ_SIZE, Axis, Plan
from trainauto.core.units import size_text
from trainauto.memory.cost.cost_model import UPPER, CostModel, shape_of

CORRECTION_GAIN = 0.02
"""Least growth of use that the one correction after a jump is worth: less is within what peaks vary by."""

LATER_GAIN = 0.10
"""Least growth of use that a change is worth once corrected: memory became free, or pressure has passed."""

PROBE_GAIN = 0.01
"""Least growth of use that another probe is worth."""

PROBE_ROOM = 0.01
"""Share of the target that a plan found by probes leaves free: what peaks of one plan vary by from step to step."""

ROUND_PX, ROUND_LOSS, ROUND_REACH = 8, 0.02, 0.9
"""Crops are rounded to multiples of 8, which kernels and windows like, where that costs at most 2 % of the use; never
below 90 % of the side."""


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
        if is_blocked(plan, self.blocked):
            return "is as large as a plan that failed"
        if self.is_probe:
            expected = self.cost.predict(shape_of(plan))
            if expected > (1 - PROBE_ROOM) * self.target_bytes:
                share = expected / self.limit_bytes
                return f"is expected to need {share:.1%}, too close to the target of {self.target:.0%}"
            if (most := self.most(plan)) > self.limit_bytes:
                return f"may need {most / self.limit_bytes:.1%}"
        elif (most := self.most(plan)) > self.target_bytes:
            return f"may need {most / self.limit_bytes:.1%}, above the target {self.target:.0%}"
        if self.reserved is None or self.available_bytes is None:
            return None
        quantile = 0.5 if self.is_probe else UPPER
        if (most := self.least_reserved(plan, quantile)) > self.available_bytes:
            return f"may have to reserve {size_text(most, 0)} of {size_text(self.available_bytes, 0)} available"
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
        most = self.cost.predict(shape_of(plan), UPPER)
        if self.peak_bytes is None or self.peak_bytes <= self.target_bytes:
            return most
        beyond = self.peak_bytes / self.cost.predict(shape_of(self.plan))
        return max(most, ceil(beyond * self.cost.predict(shape_of(plan))))

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
        if best is not None and work(best) < work(now.plan):  # it went too far: pressure is something else
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
    """Return the admitted plan that is largest by (batch up to the configured one, crop, batch); ``None`` if none is.

    The first term says that the configured batch is restored before crops grow; the others are the order of growth.
    """
    extents, batches = _values(now.axis(LQ_SIZE)), _values(now.axis(BATCH_SIZE))
    configured = _upto(batches, max(batches[0], now.configured_batch))

    def admits(batch: int, extent: int) -> bool:
        return now.admits(now.plan.changed(batch_size=batch, lq_size=extent))

    least = _last(configured, lambda batch: admits(batch, extents[0]))
    if least is None:
        return None
    extent = _last(extents, lambda value: admits(least, value)) or extents[0]
    rest = batches[batches.index(least) :] if least == configured[-1] else range(least, least + 1)
    best = now.plan.changed(batch_size=_last(rest, lambda batch: admits(batch, extent)) or least, lq_size=extent)
    return _rounded(now, best, rest)


def _rounded(now: JumpInput, best: Plan, batches: range) -> Plan:
    """Return the plan with the largest round crop that uses nearly as much as the best one, if any does."""
    axis, side = now.axis(LQ_SIZE), best[LQ_SIZE]
    least_bytes = (1 - ROUND_LOSS) * now.cost.predict(shape_of(best))
    for extent in range(side // ROUND_PX * ROUND_PX, int(ROUND_REACH * side), -ROUND_PX):
        if not axis.admits(extent):
            continue
        plan = now.plan.changed(lq_size=extent)
        batch = _last(batches, lambda value, plan=plan: now.admits(plan.changed(batch_size=value)))  # type: ignore[misc]
        if batch is not None and now.cost.predict(shape_of(plan.changed(batch_size=batch))) >= least_bytes:
            return plan.changed(batch_size=batch)
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
    """Return for each crop the largest batch whose quantile stays within the limit, as far as there is one.

    ``admits`` may ask for more than that; what it refuses, it refuses of larger plans, too.
    """
    by_name = {axis.name: axis for axis in axes}
    batches = _values(by_name[BATCH_SIZE])
    plans: list[Plan] = []
    for extent in _values(by_name[LQ_SIZE]):

        def fits(batch: int, extent: int = extent) -> bool:
            plan = Plan.of(micro_batches=micro_batches, batch_size=batch, lq_size=extent)
            return cost.predict(shape_of(plan), quantile) <= limit_bytes and (admits is None or admits(plan))

        batch = _last(batches, fits)
        if batch is None:
            break
        batches = batches[: batches.index(batch) + 1]  # a larger crop admits no larger batch
        plans.append(Plan.of(micro_batches=micro_batches, batch_size=batch, lq_size=extent))
    return plans


def _initial_decision(now: JumpInput) -> PolicyDecision:
    fits = now.admits(now.plan)
    best = best_plan(now) if now.may_grow else None
    if best is not None and best != now.plan:
        return _explained(now, best, f"the best plan that is predicted to fit is taken: {now.plan} -> {best}")
    if fits:
        why = "the present plan is the best that fits" if now.may_grow else "growth is not allowed now"
        return _explained(now, now.plan, why)
    return _shrink(now, f"{now.plan} {now.refusal(now.plan)}")


def _after_probe(now: JumpInput, measured: str, peak_bytes: int) -> PolicyDecision:
    best = best_plan(now)
    if peak_bytes > (1 - PROBE_ROOM) * now.target_bytes:
        if best is None or work(best) >= work(now.plan):
            return _shrink(now, f"{measured} is above the target {now.target:.0%}")
        return _explained(now, best, f"{measured} is above the target {now.target:.0%}: {now.plan} -> {best}")
    if best is None or best == now.plan or now.cost.predict(shape_of(best)) < (1 + PROBE_GAIN) * peak_bytes:
        return PolicyDecision(now.plan, f"{measured}, {_why_not_larger(now, now.plan)}", peak_bytes)
    return _explained(now, best, f"{measured}: {now.plan} -> {best}")


def _correct(now: JumpInput, measured: str, peak_bytes: int) -> PolicyDecision:
    best = best_plan(now)
    stays = PolicyDecision(now.plan, f"{measured}, but {_why_not_larger(now, now.plan)}")
    if best is None or best == now.plan:
        return stays
    gain = now.cost.predict(shape_of(best)) / peak_bytes - 1
    least = LATER_GAIN if now.corrected else CORRECTION_GAIN
    restores = now.plan.batch_size < best.batch_size <= now.configured_batch
    if gain <= 0 and not restores:  # only doubt makes the best plan smaller than the one that was measured
        return stays
    if gain < least and not restores:
        return PolicyDecision(now.plan, f"{measured}, but {best} would use {gain:+.1%}: a change asks for {least:.0%}")
    return _explained(now, best, f"{measured}: {now.plan} -> {best}")


def _shrink(now: JumpInput, why: str) -> PolicyDecision:
    """Return the largest smaller plan that is admitted: smaller in batch, then at the smallest batch in crop."""
    batches, extents = _values(now.axis(BATCH_SIZE)), _values(now.axis(LQ_SIZE))
    smaller = _upto(batches, now.plan.batch_size - 1)
    batch = _last(smaller, lambda value: now.admits(now.plan.changed(batch_size=value)))
    if batch is not None:
        why = f"{why}: batch_size {now.plan.batch_size} -> {batch}"
        return _explained(now, now.plan.changed(batch_size=batch), why, is_pressure=True)
    least = min(now.plan.batch_size, batches[0])
    smaller = _upto(extents, now.plan[LQ_SIZE] - 1)
    extent = _last(smaller, lambda value: now.admits(now.plan.changed(batch_size=least, lq_size=value)))
    if extent is None:
        smallest = now.plan.changed(batch_size=least, lq_size=min(now.plan[LQ_SIZE], extents[0]))
        why = f"{why}, and so is every smaller plan: all axes go to their floor"
        return _explained(now, smallest, why, is_pressure=True)
    plan = now.plan.changed(batch_size=least, lq_size=extent)
    return _explained(now, plan, f"{why}: {now.plan} -> {plan}", is_pressure=True)


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
    for name in (LQ_SIZE, BATCH_SIZE):
        axis = now.axis(name)
        larger = plan.changed(**{name: plan[name] + axis.multiple})
        if larger[name] > axis.maximum:
            words.append(axis.at_bound)
            continue
        if name == LQ_SIZE:  # crops come first: a batch above the configured one does not stand in their way
            larger = larger.changed(batch_size=min(plan.batch_size, now.axis(BATCH_SIZE).clamp(now.configured_batch)))
        words.append(f"{larger} {now.refusal(larger) or 'would fit'}")
    return "; ".join(words)


def _values(axis: Axis) -> range:
    smallest = axis.clamp(axis.minimum)
    return range(smallest, max(smallest, axis.maximum) + 1, axis.multiple)


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
