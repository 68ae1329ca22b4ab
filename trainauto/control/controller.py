"""What a controller may know before the first step: predictions, an earlier run of its kind, plans that were probed."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from trainauto.control.period_controller import PeriodController
from trainauto.control.period_stats import PeriodStats
from trainauto.control.planners import Jump
from trainauto.control.step_policy import PolicyDecision
from trainauto.core.automation import Automation
from trainauto.core.decisions import RunFacts
from trainauto.core.plan import Plan, count_axis, shape_of
from trainauto.core.records import PeakReading, Probe
from trainauto.memory.cost.cost_model import CostModel
from trainauto.memory.cost.ratio_prior import RatioPrior
from trainauto.memory.cost.traced_fit import Prior

NO_SPEEDS: Mapping[str, Any] = {"speeds": None}


class Controller(PeriodController):
    """Chooses the plans of a run by its memory: before its first step, after steps, and after failures.

    When it acts:

    - ``policy: jump`` with a traced model chooses the plan of the first batch, measures it before it is trained, and
      may correct it once after three steps. Afterwards it decides after whole periods of
      ``adjustment_frequency`` steps under one plan.
    - ``policy: step``, ``warmup_period``, a model that cannot be traced, and loops of one's own: nothing is decided
      before a whole first period is complete.

    Failures are remembered in :class:`~trainauto.control.failure_memory.FailureMemory`; nothing is blocked for ever.
    """

    def prepare(self, facts: RunFacts) -> None:
        """Take up the axes of a run that is being built, and share the samples of every step among its ranks.

        Raises:
            ValueError: they cannot be shared equally, or the plans of the run do not count them.
        """
        if self.effective.samples is not None and count_axis(facts.axes) is None:
            raise ValueError("target_batch_size asks for samples of a step, which the plans of this run do not count")
        if facts.world_size > 1:
            self.effective = replace(self.effective, world_size=facts.world_size)
            if (count := count_axis(facts.axes)) is not None and not self.effective.may_grow:
                self.bounds = self.bounds.at_most(count.name, self.effective.samples)
            self._planner = self._new_planner()
        self.take_axes(facts.axes)

    def set_prior(self, peaks: tuple[Prior, RatioPrior], reserved: tuple[Prior, RatioPrior] | None = None) -> None:
        """Take what a trace says of plans, before the first step; ``policy: step`` has no use for it.

        Args:
            peaks: bytes of a step by forward batch and size, and how the peaks to be measured compare with them.
            reserved: the same for the least with which the allocator need not flush.
        """
        if self.settings.policy == "jump":
            least = CostModel(*reserved) if reserved is not None else None
            self._planner = self._for_objective(Jump(CostModel(*peaks), least))

    def learn(self, peaks: Mapping[Plan, int]) -> None:
        """Take what plans were measured to peak at, before the first step, where no trace says what they need.

        Args:
            peaks: bytes by plan.
        """
        if self.settings.policy == "jump":
            cost = CostModel(None, power=self._power)
            for plan, peak in peaks.items():
                cost.observe(shape_of(self.effective.forward(plan)), peak)
            self._planner = self._for_objective(Jump(cost, foresees=True))

    def initial_plan(self, plan: Plan) -> Plan:
        """Return the plan a new run starts with instead of ``plan``: with ``target_batch_size`` that many samples."""
        self._first = self.effective.forward(plan)
        self.configured_batch = self._first.batch_size
        return self.effective.whole(self.effective.forward(plan))

    def calibration_state(self) -> dict[str, Any] | None:
        """Return what a later run of the same kind may start from; ``None`` while no plan has settled.

        What plans need after :meth:`invalidate` is not what they need in a run that begins.
        """
        if self._settled is None or self.settings.policy != "jump" or self._is_invalidated:
            return None
        return {**self._settled, "steering": self._planner.state_dict()}

    def load_calibration(self, state: Mapping[str, Any], facts: RunFacts, limit_bytes: int) -> Plan | None:
        """Take what :meth:`calibration_state` gave; return the plan it settled at, if this run would settle there, too.

        Under another limit, other bounds or another target what was measured still holds, and the run jumps by it.
        """
        self.initial_plan(facts.plan)
        plan, planner = Plan.from_dict(state["plan"]), dict(state["steering"])
        axes = self.bounded(facts.axes)
        same = state["conditions"] == self._conditions(limit_bytes, axes)
        if self.settings.objective == "goodput":
            # What samples are worth depends on how far a run has come: it begins with the file's batch.
            self._planner.load_state_dict({**planner, "jumped": False, "corrected": False, "rest": None})
            return None
        if not (same and all(axis.name in plan and axis.admits(plan[axis.name]) for axis in axes)):
            self._planner.load_state_dict({**planner, "jumped": False, "corrected": False, **NO_SPEEDS})
            return None
        self._planner.load_state_dict(planner)
        return self.effective.whole(plan)

    def expected_bytes(self, plan: Plan) -> int | None:
        """Return what its policy expects of a plan of the run."""
        return self._planner.expected_bytes(self.effective.forward(plan))

    def start(self, facts: RunFacts) -> bool:
        """Take up axes and plan of the run; return whether a period of unmeasured steps begins."""
        self.take_axes(facts.axes)
        if self.configured_batch is None:
            self.initial_plan(facts.plan)
        plan = self.effective.forward(facts.plan)
        if plan != self.plan:
            self.restart(plan)
        # A resume in mid-period continues it; where a plan is still to be chosen, its first period is yet to begin.
        return not self._seen.peaks and not (self._planner.can_predict() and not self.settings.warmup_period)

    def begin(self, now: PeakReading, probes: int) -> PolicyDecision | None:
        """Choose the plan of the first batch by what was predicted; it is then measured before it is trained."""
        if self.plan is None or not now.limit or self.settings.warmup_period or not self._planner.can_predict():
            return None
        self._see_limit(now.limit)
        self._seen = PeriodStats(available=now.available)
        decision = self._even(self._planner.decide(replace(self._period(now.limit), probes_left=probes)))
        self.restart(decision.plan)
        return decision

    def after_probe(self, probe: Probe) -> PolicyDecision | None:
        """Correct the choice by what was measured of it; ``None`` once it is the best that is known to fit."""
        if self.plan is None or not probe.limit:
            return None
        available = self._seen.available
        self._seen = PeriodStats(available=available)
        if probe.peak is None:
            self._planner.mark_failed(self.plan, probe.limit)
        else:
            self._seen.add(probe.peak)
        decision = self._planner.decide(replace(self._period(probe.limit), probes_left=probe.left))
        self._seen = PeriodStats(available=available)
        if probe.peak is None and self.work(smaller := self.shrunk(self.plan)) < self.work(decision.plan):
            # How much too large it was, nobody knows.
            decision = replace(decision, plan=smaller, expected_bytes=self._planner.expected_bytes(smaller))
        decision = self._even(decision)
        if decision.plan == self.plan:
            return None
        self.restart(decision.plan)
        return decision


def controllers_of(automations: Iterable[Automation]) -> list[Controller]:
    """Return the controllers of those automations that have one (``steers_memory``)."""
    held = (getattr(automation, "controller", None) for automation in automations)
    return [controller for controller in held if isinstance(controller, Controller)]
