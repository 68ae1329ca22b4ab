"""A controller in the engine: records and failures of a run go in, decisions on its plans come out."""

import logging
from collections.abc import Mapping
from typing import Any

from trainauto.control.controller import Controller
from trainauto.control.step_policy import PolicyDecision
from trainauto.core.automation import Automation
from trainauto.core.decisions import KeepPlan, PlanChange, RunFacts
from trainauto.core.plan import BATCH_SIZE, Axis, Plan
from trainauto.core.records import OutOfMemory, PeakReading, Probe, StepRecord
from trainauto.core.words import counted

logger = logging.getLogger(__name__)

ELSEWHERE_STEPS = 64
"""Steps under a plan that was not asked for after which it is taken to be the plan; a lookahead is shorter."""


class ControllerAutomation(Automation):
    """Asks a controller which plan to train.

    Args:
        controller: decides.

    Attributes:
        fills_plan: whether the step on its way takes what steps of its plan take, as far as that is not known of its
            samples; set it, if known, before each step is recorded.
    """

    priority = 20
    steers_memory = True
    outlasts_rollbacks = ("steering", "failures")
    says_periods_at = logging.INFO
    """Level at which a run hears that a period of steps begins that nothing predicts."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.fills_plan = True
        self._begins_otherwise = False
        self._answered: tuple[int, Plan] | None = None
        self._elsewhere = 0

    def check(self, facts: RunFacts) -> None:
        """Refuse bounds that leave no admissible value, and share ``target_batch_size`` among ranks.

        Raises:
            InputError: names the bounds and what the network and the images admit.
            ValueError: the samples of a step cannot be shared.
        """
        self.controller.prepare(facts)
        self.controller.bounds.check(facts, self.name)

    def apply_minima(self, axes: tuple[Axis, ...], plan: Plan) -> tuple[Axis, ...]:
        """Raise the minima to those of the options."""
        return self.controller.bounds.apply_minima(axes, plan)

    def expected_bytes(self, plan: Plan) -> int | None:
        """Return what its policy expects of a plan."""
        return self.controller.expected_bytes(plan)

    def on_run_start(self, facts: RunFacts) -> None:
        """Take up bounds and plan of the run."""
        says_so = self.controller.start(facts)
        plan = self.controller.effective.forward(facts.plan)
        self._begins_otherwise = self.controller.effective.whole(plan) != facts.plan
        if says_so:
            period = counted(self.controller.settings.adjustment_frequency, "step")
            logger.log(self.says_periods_at, "%s: a period of %s begins with %s", self.name, period, plan)

    def begin(self, now: PeakReading, probes: int) -> PlanChange | None:
        """Choose the plan of the first batch by what was predicted; it is then measured before it is trained."""
        return self._change(self.controller.begin(now, probes))

    def on_probe(self, probe: Probe) -> PlanChange | None:
        """Correct the choice by what was measured of it; ``None`` once it is the best that is known to fit."""
        return self._change(self.controller.after_probe(probe))

    def measures_noise(self, step: int) -> bool:
        """Ask for it where the objective goes by what samples are worth."""
        return self.controller.measures_noise(step)

    def on_step_end(self, record: StepRecord) -> PlanChange | None:
        """Take in a step; at the end of a period, decide."""
        controller = self.controller
        if controller.plan is None or record.peak is None:
            return None
        if self._begins_otherwise:
            self._begins_otherwise = False
            controller.statistics.see(record.peak)
            return PlanChange(controller.effective.whole(controller.plan), "the option file asks for other steps")
        plan = controller.effective.forward(record.plan)
        self._elsewhere = 0 if plan == controller.plan else self._elsewhere + 1
        if self._elsewhere > max(ELSEWHERE_STEPS, controller.settings.adjustment_frequency):
            controller.restart(plan)  # somebody else has changed it for good
        seconds = record.data_seconds + record.step_seconds - record.compile_seconds
        units_per_s = record.units / seconds if seconds > 0 else None
        is_whole = plan == controller.plan and record.is_as_planned and not (record.ooms or record.compile_seconds)
        is_divided = bool(record.noise and record.pieces)  # to see how its parts differ: no peak, no speed of the plan
        controller.see_noise(
            record.noise,
            max(record.learning_rates.values(), default=0.0),
            record.plan.batch_size,
            units_per_s if is_divided and is_whole else None,
        )
        decision = controller.after_step(
            plan,
            record.peak,
            is_whole=is_whole and not is_divided,
            fills_plan=self.fills_plan and record.fills_plan,
            units_per_s=units_per_s,
            compile_s=record.compile_seconds,
            step_s=seconds,
        )
        if decision is None:
            return None
        measured = controller.largest_peak
        controller.restart(decision.plan)
        return self._change(decision, measured)

    def on_out_of_memory(self, event: OutOfMemory) -> PlanChange | KeepPlan | None:
        """Stay, where the plan has held so far and the batch ran in pieces; otherwise shrink both axes and wait."""
        controller = self.controller
        if controller.plan is None:
            return None
        failed = controller.effective.forward(event.plan)
        if event.recovered and (event.step, failed) == self._answered:
            return None  # another pass of the same step: one failure, one answer
        self._answered = event.step, failed
        if event.peak is not None:
            controller.statistics.see(event.peak)
        shrinks, rule = controller.after_failure(failed, event.limit, recovered=event.recovered)
        how = (
            f"ran in {event.pieces} micro-batches" if event.recovered else "did not fit in any number of micro-batches"
        )
        reason = f"out of memory under {failed}: the batch {how}; {rule}"
        if not shrinks:
            return KeepPlan(controller.effective.whole(controller.plan), reason)
        smaller = controller.shrunk(failed)
        if smaller == failed:
            return self._in_pieces(event)
        # Never back up to a plan that has become smaller meanwhile.
        is_below = smaller.batch_size <= controller.plan.batch_size
        plan = smaller.capped_by(controller.plan) if is_below else controller.plan.capped_by(smaller)
        plan = controller.effective.even(plan)
        controller.leave_for(plan, reason)
        return PlanChange(controller.effective.whole(plan), reason, controller.expected_of(plan))

    def _in_pieces(self, event: OutOfMemory) -> PlanChange | None:
        """At the floor, have later batches run as this one did in the end; growth waits as after any failure."""
        if event.pieces <= event.plan.micro_batches:
            return None
        counts = BATCH_SIZE in event.plan
        run_plan = event.plan.with_micro_batches(min(event.pieces, event.plan.batch_size) if counts else event.pieces)
        plan = self.controller.effective.forward(run_plan)
        most = f"at most {counted(run_plan.forward_batch_size, 'sample')} per micro-batch"
        how = most if counts else f"every batch in {event.pieces} micro-batches"
        reason = f"out of memory at the smallest plan: {how} from now on"
        self.controller.leave_for(plan, reason)
        return PlanChange(run_plan, reason, self.controller.expected_of(plan))

    def on_peaks_invalidated(self) -> None:
        """Steer by what is measured from now on; plans that ran out of memory may be tried again."""
        self.controller.invalidate()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs; bounds and switches come from the option file."""
        return self.controller.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self.controller.load_state_dict(state)

    def _change(self, decision: PolicyDecision | None, measured_bytes: int | None = None) -> PlanChange | None:
        """Return a decision of the controller as the engine carries it out."""
        if decision is None:
            return None
        plan = self.controller.effective.whole(decision.plan)
        return PlanChange(plan, decision.reason, decision.expected_bytes, measured_bytes)
