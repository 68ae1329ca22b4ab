"""Steering crop and batch by peak memory."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from trainauto.automations.registry import AUTOMATIONS
from trainauto.control.bounds import Bounds, check_at_least_one, check_band
from trainauto.control.effective_batch import EffectiveBatch
from trainauto.control.period_controller import PeriodController
from trainauto.control.period_stats import PeriodStats
from trainauto.control.planners import Jump
from trainauto.control.step_policy import PolicyDecision, work
from trainauto.core.decisions import KeepPlan, PlanChange, RunFacts
from trainauto.core.plan import BATCH_SIZE, LQ_SIZE, Axis, Plan
from trainauto.core.records import OutOfMemory, PeakReading, Probe, StepRecord
from trainauto.core.words import counted
from trainauto.memory.cost.cost_model import CostModel
from trainauto.memory.cost.ratio_prior import RatioPrior
from trainauto.memory.cost.traced_fit import Prior

logger = logging.getLogger(__name__)

ELSEWHERE_STEPS = 64
"""Steps under a plan that was not asked for after which it is taken to be the plan; a lookahead is shorter."""

NO_SPEEDS: Mapping[str, Any] = {"speeds": [], "asked": None, "rest": None}


@AUTOMATIONS.register("DynamicBatchSizeOptimizer")
class DynamicBatchSizeOptimizer(PeriodController):
    """Grows crop and batch until peaks lie in the band below target; shrinks them when memory is short.

    When it acts:

    - ``policy: jump`` with a traced model chooses the plan of the first batch, measures it before it is trained, and
      may correct it once after three steps. Afterwards it decides after whole periods of
      ``adjustment_frequency`` steps under one plan.
    - ``policy: step``, ``warmup_period``, a model that cannot be traced, and loops of one's own: nothing is decided
      before a whole first period is complete.

    Failures are remembered in :class:`~trainauto.control.failure_memory.FailureMemory`; nothing is blocked for
    ever. Loops of one's own use the methods of :class:`~trainauto.control.documented_interface.DocumentedInterface`.

    Args:
        target_vram_usage: peaks are steered to this share of the memory the process may use.
        safety_margin: width of the band below target that is left alone, as a share of the same memory.
        adjustment_frequency: steps of a period.
        min_batch_size: smallest batch it goes down to.
        max_batch_size: largest batch it goes up to.
        min_lq_size: smallest crop it goes down to, in low-quality pixels.
        max_lq_size: largest crop it goes up to; the smallest image may stop it earlier.
        vram_history_size: periods kept in the history.
        max_adjustments: changes after which it grows no further; it always shrinks where it must, and comes back.
        policy: ``jump`` goes to the best plan that a trace predicts and corrects it once; ``step`` takes small steps.
        objective: ``memory`` fills the target; ``throughput`` goes from there to the smallest batch that trains as many
            pixels a second.
        target_batch_size: samples of every optimizer step, run in as many micro-batches as memory asks for; ``None``
            lets the step grow with the batch.
        warmup_period: train the first period under the option file's plan, whatever is predicted.
    """

    priority = 20

    def __init__(
        self,
        target_vram_usage: float = 0.85,
        safety_margin: float = 0.05,
        adjustment_frequency: int = 100,
        min_batch_size: int = 2,
        max_batch_size: int = 64,
        min_lq_size: int = 32,
        max_lq_size: int = 256,
        vram_history_size: int = 50,
        max_adjustments: int = 100,
        policy: Literal["jump", "step"] = "jump",
        objective: Literal["memory", "throughput"] = "memory",
        target_batch_size: int | None = None,
        warmup_period: bool = False,
    ) -> None:
        check_band(target_vram_usage, safety_margin)
        check_at_least_one(adjustment_frequency=adjustment_frequency, vram_history_size=vram_history_size)
        self.target_vram_usage = target_vram_usage
        self.safety_margin = safety_margin
        self.adjustment_frequency = adjustment_frequency
        self.max_adjustments = max_adjustments
        self.policy = policy
        self.objective = objective
        self.warmup_period = warmup_period
        limits = {BATCH_SIZE: (min_batch_size, max_batch_size), LQ_SIZE: (min_lq_size, max_lq_size)}
        bounds = Bounds(limits).at_most(BATCH_SIZE, target_batch_size)
        super().__init__(bounds, EffectiveBatch(target_batch_size), vram_history_size)
        self._begins_otherwise = False
        self._answered: tuple[int, Plan] | None = None
        self._elsewhere = 0

    def set_prior(self, peaks: tuple[Prior, RatioPrior], reserved: tuple[Prior, RatioPrior] | None = None) -> None:
        """Take what a trace says of plans, before the first step; ``policy: step`` has no use for it.

        Args:
            peaks: bytes of a step by forward batch and crop, and how the peaks to be measured compare with them.
            reserved: the same for the least with which the allocator need not flush.
        """
        if self.policy == "jump":
            least = CostModel(*reserved) if reserved is not None else None
            self._planner = self._for_objective(Jump(CostModel(*peaks), least))

    def initial_plan(self, plan: Plan) -> Plan:
        """Return the plan a new run starts with instead of ``plan``: with ``target_batch_size`` that many samples."""
        self._configured_batch = self.effective.forward(plan).batch_size
        return self.effective.whole(self.effective.forward(plan))

    def calibration_state(self) -> dict[str, Any] | None:
        """Return what a later run of the same kind may start from; ``None`` while no plan has settled.

        What plans need after :meth:`on_peaks_invalidated` is not what they need in a run that begins.
        """
        if self._settled is None or self.policy != "jump" or self._is_invalidated:
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
        if not (same and all(axis.admits(plan[axis.name]) for axis in axes)):
            self._planner.load_state_dict({**planner, "jumped": False, "corrected": False, **NO_SPEEDS})
            return None
        self._planner.load_state_dict(planner)
        return self.effective.whole(plan)

    # --- in the engine

    def check(self, facts: RunFacts) -> None:
        """Refuse bounds that leave no admissible value, and share ``target_batch_size`` among ranks.

        Raises:
            InputError: names the bounds and what the network and the images admit.
            ValueError: the samples of a step cannot be shared.
        """
        if facts.world_size > 1:
            self.effective = EffectiveBatch(self.effective.total, facts.world_size)
            self._bounds = self._bounds.at_most(BATCH_SIZE, self.effective.samples)
            self._planner = self._new_planner()
        self._bounds.check(facts, self.name)

    def apply_minima(self, axes: tuple[Axis, ...], plan: Plan) -> tuple[Axis, ...]:
        """Raise the minima to those of the options (C17, C19)."""
        return self._bounds.apply_minima(axes, plan)

    def expected_bytes(self, plan: Plan) -> int | None:
        """Return what its policy expects of a plan."""
        return self._planner.expected_bytes(self.effective.forward(plan))

    def on_run_start(self, facts: RunFacts) -> None:
        """Take up bounds and plan of the run."""
        self._run_axes = facts.axes
        self._axes = self.bounded(self._run_axes)
        if self._configured_batch is None:
            self.initial_plan(facts.plan)
        plan = self.effective.forward(facts.plan)
        if plan != self._plan:
            self.restart(plan)
        self._begins_otherwise = self.effective.whole(plan) != facts.plan
        # A resume in mid-period continues it; where a plan is still to be chosen, its first period is yet to begin.
        if not self._seen.peaks and not (self._planner.can_predict() and not self.warmup_period):
            logger.info(
                "%s: a period of %s begins with %s", self.name, counted(self.adjustment_frequency, "step"), plan
            )

    def begin(self, now: PeakReading, probes: int) -> PlanChange | None:
        """Choose the plan of the first batch by what was predicted; it is then measured before it is trained."""
        if self._plan is None or not now.limit or self.warmup_period or not self._planner.can_predict():
            return None
        self._see_limit(now.limit)
        self._seen = PeriodStats(available=now.available)
        decision = self._planner.decide(replace(self._period(now.limit), probes_left=probes))
        return self._begun(self._even(decision))

    def on_probe(self, probe: Probe) -> PlanChange | None:
        """Correct the choice by what was measured of it; ``None`` once it is the best that is known to fit."""
        if self._plan is None or not probe.limit:
            return None
        available = self._seen.available
        self._seen = PeriodStats(available=available)
        if probe.peak is None:
            self._planner.mark_failed(self._plan, probe.limit)
        else:
            self._seen.add(probe.peak)
        decision = self._planner.decide(replace(self._period(probe.limit), probes_left=probe.left))
        self._seen = PeriodStats(available=available)
        if probe.peak is None and work(smaller := self.shrunk(self._plan)) < work(decision.plan):
            # How much too large it was, nobody knows.
            decision = replace(decision, plan=smaller, expected_bytes=self._planner.expected_bytes(smaller))
        decision = self._even(decision)
        return None if decision.plan == self._plan else self._begun(decision)

    def _begun(self, decision: PolicyDecision) -> PlanChange:
        self.restart(decision.plan)
        return PlanChange(self.effective.whole(decision.plan), decision.reason, decision.expected_bytes)

    def on_step_end(self, record: StepRecord) -> PlanChange | None:
        """Take in a step; at the end of a period, decide."""
        if self._plan is None or record.peak is None:
            return None
        if self._begins_otherwise:
            self._begins_otherwise = False
            self._statistics.see(record.peak)
            return PlanChange(self.effective.whole(self._plan), "the option file asks for other steps")
        plan = self.effective.forward(record.plan)
        self._elsewhere = 0 if plan == self._plan else self._elsewhere + 1
        if self._elsewhere > max(ELSEWHERE_STEPS, self.adjustment_frequency):
            self.restart(plan)  # somebody else has changed it for good
        seconds = record.step_seconds
        decision = self.after_step(
            plan,
            record.peak,
            is_whole=plan == self._plan and record.is_as_planned and not record.ooms,
            pixels_per_s=record.units / seconds if seconds > 0 else None,
        )
        if decision is None:
            return None
        measured = max(self._seen.peaks, default=None)
        self.restart(decision.plan)
        return PlanChange(self.effective.whole(decision.plan), decision.reason, decision.expected_bytes, measured)

    def on_out_of_memory(self, event: OutOfMemory) -> PlanChange | KeepPlan | None:
        """Stay, where the plan has held so far and the batch ran in pieces; otherwise shrink both axes and wait."""
        if self._plan is None:
            return None
        failed = self.effective.forward(event.plan)
        if event.recovered and (event.step, failed) == self._answered:
            return None  # another pass of the same step: one failure, one answer
        self._answered = event.step, failed
        if event.peak is not None:
            self._statistics.see(event.peak)
        shrinks, rule = self.after_failure(failed, event.limit, recovered=event.recovered)
        how = f"ran in {event.pieces} pieces" if event.recovered else "did not fit in any pieces"
        reason = f"out of memory under {failed}: the batch {how}; {rule}"
        if not shrinks:
            return KeepPlan(self.effective.whole(self._plan), reason)
        smaller = self.shrunk(failed)
        if smaller == failed:
            return self._in_pieces(event)
        # Never back up to a plan that has become smaller meanwhile.
        is_below = smaller.batch_size <= self._plan.batch_size
        plan = self.effective.even(smaller.capped_by(self._plan) if is_below else self._plan.capped_by(smaller))
        if plan != self._plan:
            self._statistics.note_change(self._iteration, self._plan, plan, reason)
            self._settled = None
        self.restart(plan)
        return PlanChange(self.effective.whole(plan), reason, self._planner.expected_bytes(plan))

    def _in_pieces(self, event: OutOfMemory) -> PlanChange | None:
        """At the floor, have later batches run as this one did in the end; growth waits as after any failure."""
        if event.pieces <= event.plan.micro_batches:
            return None
        run_plan = event.plan.with_micro_batches(min(event.pieces, event.plan.batch_size))
        plan = self.effective.forward(run_plan)
        most = counted(run_plan.forward_batch_size, "sample")
        reason = f"out of memory at the floor: no more than {most} at once from now on"
        if plan != self._plan:
            self._statistics.note_change(self._iteration, self._plan, plan, reason)
            self._settled = None
        self.restart(plan)
        return PlanChange(run_plan, reason, self._planner.expected_bytes(plan))
