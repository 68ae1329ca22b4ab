"""How the controller goes from whole periods to plans: in small steps, or straight to the best plan.

Both get the same events and are asked the same question; what they know between two questions is theirs.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trainauto.control import jump_policy, step_policy
from trainauto.control.effective_batch import EffectiveBatch
from trainauto.control.policy_input import PolicyInput
from trainauto.control.step_policy import Measured, PolicyDecision
from trainauto.core.plan import BatchShape, Plan, shape_of
from trainauto.memory.cost.cost_model import CostModel

EARLY_STEPS = 3
"""Whole steps after which what was predicted is corrected: the first one at a new plan may take less or more."""

REMEMBERED_PLANS = 12
"""Peaks of so many plans are kept: old ones were measured under other neighbours and fragmentation."""


class Planner(Protocol):
    """From periods to plans."""

    def can_predict(self) -> bool:
        """Say whether it can decide before anything was measured."""

    def early_steps(self, plan: Plan) -> int | None:
        """Return after how many whole steps it is asked already; ``None`` where a whole period is awaited."""

    def admits(self, plan: Plan, period: PolicyInput) -> bool:
        """Say whether a plan may be gone to, by what is expected of it."""

    def fullest(self, period: PolicyInput) -> Plan | None:
        """Return the plan that fills memory best; ``None`` where that is not known beforehand."""

    def fits_again(self, plan: Plan, period: PolicyInput) -> bool:
        """Say whether a plan that had been left may be gone back to, by what is expected of it and left to it."""

    def decide(self, period: PolicyInput) -> PolicyDecision:
        """Take in a period, if one was measured, and decide how to continue."""

    def is_measured(self, plan: Plan) -> bool:
        """Say whether a plan has been measured for a whole period."""

    def expected_bytes(self, plan: Plan) -> int | None:
        """Return the peak to expect of a plan; ``None`` where nothing is known yet."""

    def mark_failed(self, plan: Plan, limit_bytes: int | None) -> None:
        """Take in that a plan ran out of memory."""

    def reset(self) -> None:
        """Take in that there is more memory than before."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""


class SmallSteps:
    """``policy: step``: one axis at a time, 2 to 8 values by headroom.

    Args:
        work: what activations grow with, by plan.
        effective: of a run whose steps hold so many samples; the batch then goes from one division of them to the next.
    """

    def __init__(self, work: Callable[[Plan], int], effective: EffectiveBatch | None = None) -> None:
        self._work = work
        self._effective = effective or EffectiveBatch()
        self._typical_bytes: dict[Plan, int] = {}

    def can_predict(self) -> bool:
        """Never: it lives by what was measured."""
        return False

    def early_steps(self, plan: Plan) -> int | None:
        """Never: it decides after whole periods."""
        del plan
        return None

    def fullest(self, period: PolicyInput) -> Plan | None:
        """It is found step by step."""
        del period
        return None

    def admits(self, plan: Plan, period: PolicyInput) -> bool:
        """Say so where the expected peak stays at or below the target, and it has not failed."""
        return self.fits_again(plan, period) and not step_policy.is_blocked(plan, period.blocked, period.work)

    def fits_again(self, plan: Plan, period: PolicyInput) -> bool:
        """Say so where the expected peak stays at or below the target."""
        expected = self.expected_bytes(plan)
        return expected is not None and expected <= period.target * _left(period)

    def decide(self, period: PolicyInput) -> PolicyDecision:
        """Take in a period and take one step, or stay."""
        if period.peak_bytes is None or period.typical_bytes is None:
            return PolicyDecision(period.plan, "nothing was measured yet")
        self._typical_bytes.pop(period.plan, None)
        self._typical_bytes[period.plan] = period.typical_bytes
        while len(self._typical_bytes) > REMEMBERED_PLANS:
            self._typical_bytes.pop(next(iter(self._typical_bytes)))
        values = {**vars(period), "limit_bytes": _left(period)}
        now = step_policy.StepInput(**values, measured=Measured(self._typical_bytes, self._work))
        decision = step_policy.decide(now)
        grows = decision.plan.batch_size > period.plan.batch_size
        if grows and self._effective.even(decision.plan) == period.plan:
            return self._to_next_division(now, decision)
        return decision

    def _to_next_division(self, now: step_policy.StepInput, decision: PolicyDecision) -> PolicyDecision:
        larger = self._effective.next_larger(now.plan)
        if larger is None or (why := step_policy.refusal(now, larger)):
            reason = f"{decision.reason}, but {larger} {why}" if larger else decision.reason
            return PolicyDecision(now.plan, reason)
        return PolicyDecision(
            larger, f"{decision.reason}, as one micro-batch less", now.measured.expected_bytes(larger)
        )

    def is_measured(self, plan: Plan) -> bool:
        """Say whether a plan has been measured for a whole period."""
        return plan in self._typical_bytes

    def expected_bytes(self, plan: Plan) -> int | None:
        """Return what follows from the periods measured so far."""
        return Measured(self._typical_bytes, self._work).expected_bytes(plan) if self._typical_bytes else None

    def mark_failed(self, plan: Plan, limit_bytes: int | None) -> None:
        """Nothing: what failed is in the next period's ``blocked``."""

    def reset(self) -> None:
        """Nothing: it grows as long as there is room."""

    def state_dict(self) -> dict[str, Any]:
        """Return the measured peaks."""
        return {"measured": [[plan.to_dict(), peak] for plan, peak in self._typical_bytes.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self._typical_bytes = {Plan.from_dict(plan): int(peak) for plan, peak in state.get("measured", [])}


def _left(period: PolicyInput) -> int:
    """Return the limit that small steps go by: what other processes take of the card is not there to be used."""
    available_bytes = period.limit_bytes if period.available_bytes is None else period.available_bytes
    return max(1, min(period.limit_bytes, available_bytes))


class Jump:
    """``policy: jump``: the best plan that the cost model admits at once, and one correction.

    Args:
        cost: what plans need; with a prior it can be asked before the first step.
        reserved: the least with which the allocator need not flush, where that was predicted; else what it held.
        foresees: it can be asked before the first step, by a prior or by small steps that were measured.
    """

    def __init__(self, cost: CostModel, reserved: CostModel | None = None, *, foresees: bool | None = None) -> None:
        self.cost = cost
        self._foresees = cost.prior is not None if foresees is None else foresees
        self.reserved = reserved or CostModel(None, power=cost.power)
        self._jumped = self._corrected = False
        self._measured: set[Plan] = set()

    def can_predict(self) -> bool:
        """Say whether there is a prior."""
        return self.cost.can_predict and not self._jumped

    def early_steps(self, plan: Plan) -> int | None:
        """Return a few once it has jumped before the first step: what is known of the first steps then corrects it."""
        del plan
        return EARLY_STEPS if self._awaits_correction else None

    @property
    def _awaits_correction(self) -> bool:
        return self._foresees and self._jumped and not self._corrected

    def fits_again(self, plan: Plan, period: PolicyInput) -> bool:
        """Say so where medians stay within target and what is available: it had fitted before, so there is no doubt."""
        shape = shape_of(plan)
        if not self.cost.can_predict or self.cost.predict(shape) > period.target * period.limit_bytes:
            return False
        if period.available_bytes is None or not self.reserved.can_predict:
            return True
        return max(self.cost.predict(shape), self.reserved.predict(shape)) <= period.available_bytes

    def fullest(self, period: PolicyInput) -> Plan | None:
        """Return the best plan that is admitted."""
        return jump_policy.best_plan(self._input(period)) if self.cost.can_predict else None

    def admits(self, plan: Plan, period: PolicyInput) -> bool:
        """Say so where the upper quantile stays within the target, and the allocator manages with what there is."""
        return self.cost.can_predict and self._input(period).admits(plan)

    def decide(self, period: PolicyInput) -> PolicyDecision:
        """Take in a period, if there is one, and go to the best plan."""
        if period.typical_bytes is not None:
            self.cost.observe(shape_of(period.plan), period.typical_bytes)
            self._measured.add(period.plan)
        if period.reserved_bytes is not None and period.available_bytes is not None:
            self._see_reserved(shape_of(period.plan), period.reserved_bytes)
            if period.flushes:
                self.reserved.observe_failure(shape_of(period.plan), period.available_bytes)
        decision = jump_policy.decide(self._input(period))
        if period.probes_left is None:
            # The first decision is the jump, the next one its correction; from then on changes must be worth more.
            self._corrected = self._jumped
        self._jumped = self._jumped or self.cost.can_predict
        return decision

    def _input(self, period: PolicyInput) -> jump_policy.JumpInput:
        return jump_policy.JumpInput(
            **vars(period),
            cost=self.cost,
            reserved=self.reserved if self.reserved.can_predict else None,
            corrected=self._corrected,
            is_fresh_jump=self._awaits_correction,
        )

    def _see_reserved(self, shape: BatchShape, reserved_bytes: int) -> None:
        """Take in what the allocator held: predicted or not, the least that it can do with is no more.

        What it keeps of other plans, and in pieces that fit nothing, it gives back before it fails: that it held more
        than predicted says nothing.
        """
        if self.reserved.prior is None or reserved_bytes < self.reserved.predict(shape):
            self.reserved.observe(shape, reserved_bytes)

    def is_measured(self, plan: Plan) -> bool:
        """Say whether a plan has been measured for a whole period."""
        return plan in self._measured

    def expected_bytes(self, plan: Plan) -> int | None:
        """Return the median of the cost model."""
        return self.cost.predict(shape_of(plan)) if self.cost.can_predict else None

    def mark_failed(self, plan: Plan, limit_bytes: int | None) -> None:
        """Have the cost model expect more of it than the limit; what was chosen by it may be corrected once more."""
        if limit_bytes is not None:
            self.cost.observe_failure(shape_of(plan), limit_bytes)
        self._corrected = False

    def reset(self) -> None:
        """Jump again, by what is known by now."""
        self._jumped = self._corrected = False

    def state_dict(self) -> dict[str, Any]:
        """Return what was measured and how far it has come."""
        return {
            "cost": self.cost.state_dict(),
            "reserved": self.reserved.state_dict(),
            "jumped": self._jumped,
            "corrected": self._corrected,
            "known": [plan.to_dict() for plan in self._measured],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`; what the other policy left says nothing here."""
        if "cost" not in state:
            return
        self.cost.load_state_dict(state["cost"])
        self.reserved.load_state_dict(state["reserved"])
        self._jumped, self._corrected = bool(state["jumped"]), bool(state["corrected"])
        self._measured = {Plan.from_dict(plan) for plan in state["known"]}
