"""``objective: goodput`` and ``throughput``: memory is the bound, and speed times worth the goal.

The batch begins at the option file's and is never smaller. Other plans are judged by what was timed:

    value(plan) = units a second * worth of a unit

With ``throughput`` every unit is worth the same, and the smallest plan within :data:`PLATEAU` of the best speed is
taken. With ``goodput`` a sample of a larger step is worth (B + b0) / (B + b) of one of the option file's step b0, by
the gradient noise scale B (``core/noise_scale.py``); its lower bound counts, and nothing changes before it is known.

A plan that was not timed is tried for a few steps where it may be better by more than a change has to bring, at most
twice as large as any that was. It is taken where even its lower bound is. Memory is the business of another planner,
which is asked first, and which every larger plan has to be admitted by.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainauto.control.effective_batch import EffectiveBatch
from trainauto.control.noise import Noise
from trainauto.control.planners import Planner
from trainauto.control.policy_input import PolicyInput
from trainauto.control.step_policy import PolicyDecision, is_blocked
from trainauto.control.step_speeds import StepSpeeds
from trainauto.core.noise_scale import worth
from trainauto.core.plan import Axis, Plan, count_axis

PLATEAU = 0.02
"""Share of the best speed that a smaller plan may lack."""

GAIN = 0.05
"""Least gain that a change is worth: less is within what periods vary by."""

TRIED = 0.10
"""Least gain that a plan has to promise at best to be tried: trying takes some steps, and most promises fail."""

CLOSE = 0.25
"""Share of the batch within which plans are not told apart by trying: their speeds lie between those of neighbours."""

FIRST_STEPS, NEXT_STEPS = 24, 12
"""Whole steps after which the first plan, and each one that is tried, is judged."""


@dataclass(frozen=True)
class _Value:
    """What a plan is worth: lower bound, expectation, upper bound, in units a second."""

    least: float
    expected: float
    most: float


class WorthSearch:
    """Steers by what plans are worth, within memory.

    Args:
        memory: what steers by memory, and keeps guarding it.
        effective: between its plans and those of the run.
        first: returns the plan of the option file.
        noise: what is known of the gradient's noise; ``None`` where every sample is worth the same.
    """

    def __init__(
        self,
        memory: Planner,
        effective: EffectiveBatch,
        first: Callable[[], Plan | None],
        noise: Noise | None = None,
    ) -> None:
        self._memory = memory
        self._effective = effective
        self._even = effective.even
        self._first = first
        self.noise = noise
        self._speeds = StepSpeeds()
        self._timed: set[Plan] = set()
        self._rest: Plan | None = None

    def can_predict(self) -> bool:
        """As what steers by memory says."""
        return self._memory.can_predict()

    def early_steps(self, plan: Plan) -> int | None:
        """Return when memory corrects, else when a plan that was not timed yet is judged."""
        if (early := self._memory.early_steps(plan)) is not None or plan in self._timed:
            return early
        return NEXT_STEPS if self._timed else FIRST_STEPS

    def fits_again(self, plan: Plan, period: PolicyInput) -> bool:
        """As what steers by memory says."""
        return self._memory.fits_again(plan, period)

    def fullest(self, period: PolicyInput) -> Plan | None:
        """As what steers by memory says."""
        return self._memory.fullest(period)

    def admits(self, plan: Plan, period: PolicyInput) -> bool:
        """As what steers by memory says."""
        return self._memory.admits(plan, period)

    def decide(self, period: PolicyInput) -> PolicyDecision:
        """Take in a period. Memory comes first."""
        axis = _batch_axis(period.axes)
        decision = self._memory.decide(replace(period, axes=self._bounded(period, axis)))
        decision = replace(decision, plan=self._even(decision.plan))
        if decision.plan != period.plan or period.is_probe or period.units_per_s is None:
            if decision.plan != period.plan:
                self._rest = None  # memory has led elsewhere: what is fastest is sought from there
            return decision
        self._timed.add(period.plan)
        self._speeds.observe(period.work(period.plan), period.work(period.plan) / period.units_per_s)
        if (better := self._better(period, axis)) is not None:
            return better
        return replace(decision, reason=f"{decision.reason}; {self._words(period)}{self._others(period)}")

    def _bounded(self, period: PolicyInput, batch: Axis) -> tuple[Axis, ...]:
        """Return the axes as memory may grow them: the batch to the option file's alone, and with goodput sizes, too.

        How large a crop is, is a choice of quality.
        """
        first, bounded = self._first(), []
        for axis in period.axes:
            most = axis.maximum
            if axis is batch:
                most = max(self._base(period, axis), period.plan[axis.name])
            elif self.noise is not None and first is not None:
                most = max(first[axis.name], period.plan[axis.name])
            bounded.append(replace(axis, maximum=max(axis.minimum, min(axis.maximum, most))))
        return tuple(bounded)

    def _better(self, period: PolicyInput, axis: Axis) -> PolicyDecision | None:
        """Return a decision for a plan that is, or may be, better than the present one."""
        if self.noise is not None and self.noise.least is None:
            return None
        if self.noise is None and self._rest == period.plan:
            return None  # speeds waver, and worth does not change
        values = {plan: self._value(plan, period) for plan in self._candidates(period, axis)}
        plan = self._best(values)
        if self._rest == period.plan and values[plan].least <= (1 + GAIN) * values[period.plan].least:
            plan = period.plan  # of two that are as good, the one that is there
        to_try = self._to_try(values, plan)
        if to_try is not None:
            return self._to(to_try, f"{self._words(period)}; is {to_try} better?")
        self._rest = plan
        if plan == period.plan:
            return None
        gain = values[plan].expected / values[period.plan].expected - 1
        return self._to(plan, f"{self._words(period)}; {plan} is expected to bring {gain:+.0%}")

    def _to(self, plan: Plan, reason: str) -> PolicyDecision:
        return PolicyDecision(plan, reason, self._memory.expected_bytes(plan))

    def _candidates(self, period: PolicyInput, axis: Axis) -> Sequence[Plan]:
        """Return the plans between the option file's batch and twice the largest that was timed, which may be taken."""
        value = period.plan[axis.name]
        per_work = period.work(period.plan) / value
        floor = min(self._base(period, axis), value)
        largest = max(value, int(2 * self._speeds.works[-1] / per_work))
        values = [number for number in axis.values if floor <= number <= largest]
        values = values[:: max(1, len(values) // 64)]
        plans = dict.fromkeys(
            self._even(period.plan.changed(**{axis.name: number})) for number in dict.fromkeys([*values, value])
        )
        return [
            plan
            for plan in plans
            if plan == period.plan
            or plan[axis.name] < value
            or (
                period.may_grow
                and not is_blocked(plan, period.blocked, period.work)
                and self._memory.admits(plan, period)
            )
        ]

    def _value(self, plan: Plan, period: PolicyInput) -> _Value:
        work = period.work(plan)
        seconds = self._speeds.predict(work)
        least, expected = self._worth(plan, period)
        return _Value(work / seconds.most * least, work / seconds.expected * expected, work / seconds.least * expected)

    def _worth(self, plan: Plan, period: PolicyInput) -> tuple[float, float]:
        """Return what a sample is worth under a plan, over one of the option file's step: lower bound, expected."""
        if self.noise is None:
            return 1.0, 1.0
        axis = _batch_axis(period.axes)
        base = self._samples(plan.changed(**{axis.name: self._base(period, axis)}), axis)
        amount = max(base, self._samples(plan, axis))
        least, expected = self.noise.least or 0.0, self.noise.expected or 0.0
        return worth(amount, min(least, expected), base), worth(amount, expected, base)

    def _base(self, period: PolicyInput, axis: Axis) -> int:
        """Return the option file's value on the axis of the batch."""
        if axis.is_count:
            return period.configured_batch
        return int((self._first() or period.plan)[axis.name])  # checkpoints of earlier versions do not hold the first

    def _samples(self, plan: Plan, axis: Axis) -> int:
        """Return what a whole optimizer step holds on all ranks, in what plans count."""
        return int(self._effective.whole(plan)[axis.name]) * self._effective.world_size

    def _best(self, values: Mapping[Plan, _Value]) -> Plan:
        """Return the plan to take by what is known.

        Where samples differ in worth, the smallest whose lower bound is as large as any but for what a change is worth;
        else the smallest of those timed that are as fast as any of them.
        """
        if self.noise is not None:
            least = max(value.least for value in values.values()) / (1 + GAIN)
            return min((plan for plan, value in values.items() if value.least >= least), key=_amount)
        timed = {plan: value for plan, value in values.items() if plan in self._timed}
        least = (1 - PLATEAU) * max(value.expected for value in timed.values())
        return min((plan for plan, value in timed.items() if value.expected >= least), key=_amount)

    def _to_try(self, values: Mapping[Plan, _Value], best: Plan) -> Plan | None:
        """Return the plan that may be better than the best one, if it is far enough from those that were timed."""
        known = values[best].expected

        def may_be_better(plan: Plan) -> bool:
            if self.noise is not None:
                return values[plan].most > (1 + TRIED) * known
            if _amount(plan) < _amount(best):  # as fast, and smaller
                return values[plan].most >= (1 - PLATEAU) * known
            return values[plan].most > (1 + PLATEAU) * known

        open_ones = [plan for plan in values if self._is_far(plan) and may_be_better(plan)]
        return max(open_ones, key=lambda plan: values[plan].most, default=None)

    def _is_far(self, plan: Plan) -> bool:
        return all(abs(_amount(timed) / _amount(plan) - 1) > CLOSE for timed in self._timed)

    def _words(self, period: PolicyInput) -> str:
        """Say how fast the plan is, and what its batch is worth."""
        axis = _batch_axis(period.axes)
        speed = f"{(period.units_per_s or 0.0) / 1e6:.3g} M units/s"
        if self.noise is None or self.noise.expected is None:
            return speed
        base = self._samples(period.plan.changed(**{axis.name: self._base(period, axis)}), axis)
        amount = self._samples(period.plan, axis)
        noise = self.noise.expected
        known = "too large to tell" if noise == float("inf") else f"{noise:.3g}"
        counts = amount * worth(max(base, amount), noise, base)
        return f"{speed}, noise scale {known}: a batch of {amount} is worth {counts:.3g} samples in batches of {base}"

    def _others(self, period: PolicyInput) -> str:
        """Say what the other objectives would take, as far as that is known."""
        known = {"memory": self._memory.fullest(period)}
        timed = [plan for plan in self._timed if plan.size == period.plan.size]
        if self.noise is not None and timed:
            speeds = {plan: period.work(plan) / self._speeds.predict(period.work(plan)).expected for plan in timed}
            least = (1 - PLATEAU) * max(speeds.values())
            known["throughput"] = min((plan for plan in timed if speeds[plan] >= least), key=_amount)
        named = [f"`{name}` {plan}" for name, plan in known.items() if plan is not None]
        return f"; other objectives would choose: {', '.join(named)}" if named else ""

    def is_measured(self, plan: Plan) -> bool:
        """Say whether a plan has been measured for a whole period."""
        return self._memory.is_measured(plan)

    def expected_bytes(self, plan: Plan) -> int | None:
        """Return the peak to expect of a plan."""
        return self._memory.expected_bytes(plan)

    def mark_failed(self, plan: Plan, limit_bytes: int | None) -> None:
        """Pass it on."""
        self._memory.mark_failed(plan, limit_bytes)

    def reset(self) -> None:
        """Pass it on."""
        self._memory.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs; what is known of speed serves the next run of the kind, too."""
        return {
            **self._memory.state_dict(),
            "speeds": self._speeds.state_dict(),
            "timed": [plan.to_dict() for plan in self._timed],
            "rest": self._rest.to_dict() if self._rest else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`; what a run without this objective left says nothing of speed."""
        self._memory.load_state_dict(state)
        if not isinstance(speeds := state.get("speeds"), Mapping):
            return
        self._speeds.load_state_dict(speeds)
        self._timed = {Plan.from_dict(plan) for plan in state["timed"]}
        self._rest = Plan.from_dict(state["rest"]) if state.get("rest") else None


def _amount(plan: Plan) -> int:
    """Return what a forward pass of a plan holds, at one size of samples."""
    return plan.forward_batch_size * plan.forward_size


def _batch_axis(axes: Sequence[Axis]) -> Axis:
    """Return the axis of the batch: samples, or where plans count none, tokens."""
    return count_axis(axes) or axes[-1]
