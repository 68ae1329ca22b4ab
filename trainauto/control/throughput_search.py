"""``objective: throughput``: the smallest batch that trains as many units (pixels, tokens) a second as the largest one.

A batch beyond the point where the device is busy costs memory and generalisation and wins no time. Memory decides
first; from the plan it settles at, the batch is halved as long as that is not slower, then the edge is searched between
the last two by bisection, a period each, at the same crop.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainauto.control.planners import Planner
from trainauto.control.policy_input import PolicyInput
from trainauto.control.step_policy import PolicyDecision, is_blocked
from trainauto.core.plan import Plan, count_axis, size_axis

PLATEAU = 0.05
"""Share of the best speed that a smaller batch may lack: less is within what periods vary by."""

CLOSE = 0.25
"""Share of the batch to which the edge of the plateau is searched: closer, a period is worth more than the batch."""


class ThroughputSearch:
    """Steers by memory until that rests, then down to the edge of the plateau of speed.

    Args:
        memory: what steers by memory, and keeps guarding it.
        even: makes of a plan the one that the run will train, see ``EffectiveBatch``.
    """

    def __init__(self, memory: Planner, even: Callable[[Plan], Plan]) -> None:
        self._memory = memory
        self._even = even
        self._speeds: dict[Plan, float] = {}
        self._requested: Plan | None = None
        self._rest: Plan | None = None

    def can_predict(self) -> bool:
        """As what steers by memory says."""
        return self._memory.can_predict()

    def awaits_correction(self) -> bool:
        """As what steers by memory says."""
        return self._memory.awaits_correction()

    def fits_again(self, plan: Plan, period: PolicyInput) -> bool:
        """As what steers by memory says."""
        return self._memory.fits_again(plan, period)

    def decide(self, period: PolicyInput) -> PolicyDecision:
        """Take in a period; memory comes first, and nothing is sought where memory is only waiting to grow again."""
        is_at_rest = period.plan == self._rest
        if self._speeds and self._rest is None and period.plan not in (*self._speeds, self._requested):
            self._start_over()  # a failure or a neighbour has led elsewhere in the middle of the search
        is_seeking = bool(self._speeds) and self._rest is None
        may_grow = period.may_grow and not is_at_rest and not is_seeking
        decision = self._memory.decide(replace(period, may_grow=may_grow))
        decision = replace(decision, plan=self._even(decision.plan))
        if decision.plan != period.plan:
            if self._rest is None:
                self._start_over()
            return decision
        if is_at_rest or period.units_per_s is None or not (period.may_grow or is_seeking):
            return decision
        if self._rest is not None:
            self._start_over()  # memory has settled elsewhere: what is fastest is sought from there
        return self._seek(period, period.units_per_s)

    def _seek(self, period: PolicyInput, units_per_s: float) -> PolicyDecision:
        """Take in how fast a plan is; return the next one to look at, or the smallest that is as fast as any."""
        self._speeds[period.plan] = units_per_s
        open_to_it = [plan for plan in self._speeds if _may_be_taken(plan, period)]
        fastest = max(open_to_it, key=lambda plan: self._speeds[plan])
        unit = axis.unit if (axis := size_axis(period.axes)) else "samples"
        words = f"{units_per_s / 1e6:.2f} M{unit}/s, at most {self._speeds[fastest] / 1e6:.2f} under {fastest}"
        fast = [plan for plan in open_to_it if self._speeds[plan] >= (1 - PLATEAU) * self._speeds[fastest]]
        best = min(fast, key=lambda plan: plan.batch_size)
        if (smaller := self._between(period, best)) is not None:
            self._requested = smaller
            return PolicyDecision(
                smaller, f"{words}: is a smaller batch as fast?", self._memory.expected_bytes(smaller)
            )
        self._rest = best
        reason = f"{words}; {best} is the smallest within {PLATEAU:.0%} of it"
        return PolicyDecision(best, reason, self._memory.expected_bytes(best))

    def is_measured(self, plan: Plan) -> bool:
        """Say whether a plan has been measured for a whole period."""
        return self._memory.is_measured(plan)

    def expected_bytes(self, plan: Plan) -> int | None:
        """Return the peak to expect of a plan."""
        return self._memory.expected_bytes(plan)

    def mark_failed(self, plan: Plan, limit_bytes: int | None) -> None:
        """Pass it on; where there is less memory, the search starts over."""
        self._memory.mark_failed(plan, limit_bytes)
        self._start_over()

    def reset(self) -> None:
        """Pass it on; where there is more memory, the search starts over."""
        self._memory.reset()
        self._start_over()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return {
            **self._memory.state_dict(),
            "speeds": [[plan.to_dict(), speed] for plan, speed in self._speeds.items()],
            "asked": self._requested.to_dict() if self._requested else None,
            "rest": self._rest.to_dict() if self._rest else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`; what a run without this objective left says nothing of speed."""
        self._memory.load_state_dict(state)
        self._speeds = {Plan.from_dict(plan): float(speed) for plan, speed in state.get("speeds", [])}
        self._requested, self._rest = (
            Plan.from_dict(state[name]) if state.get(name) else None for name in ("asked", "rest")
        )

    def _start_over(self) -> None:
        self._speeds, self._requested, self._rest = {}, None, None

    def _between(self, period: PolicyInput, best: Plan) -> Plan | None:
        """Return a plan between the best one and what is known to be slower; ``None`` where they are close enough."""
        axis = count_axis(period.axes)
        if axis is None:
            return None
        floor = max(axis.clamp(axis.minimum), min(period.configured_batch, best.batch_size))
        slower = max((plan.batch_size for plan in self._speeds if plan.batch_size < best.batch_size), default=0)
        batch = max(floor, axis.clamp((slower + best.batch_size) // 2))
        if slower and best.batch_size - slower <= CLOSE * best.batch_size:
            return None
        plan = self._even(best.changed(batch_size=batch))
        return None if plan in self._speeds or plan.batch_size >= best.batch_size else plan


def _may_be_taken(plan: Plan, period: PolicyInput) -> bool:
    """Say whether a plan measured before may be gone back to: it has not failed since, nor is it growth out of turn."""
    if plan == period.plan:
        return True
    within = all(axis.admits(plan[axis.name]) for axis in period.axes)
    grows = plan.batch_size > period.plan.batch_size
    return within and (period.may_grow or not grows) and not is_blocked(plan, period.blocked, period.work)
