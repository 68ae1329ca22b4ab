"""Steering crop and batch by peak memory."""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from trainauto.automations.bounds import Bounds, check_at_least_one, check_band
from trainauto.automations.documented import DocumentedInterface
from trainauto.automations.effective_batch import EffectiveBatch
from trainauto.automations.failure_memory import FailureMemory
from trainauto.automations.period import Observations
from trainauto.automations.registry import AUTOMATIONS
from trainauto.automations.steering import Jump, Period, SmallSteps, Steering
from trainauto.automations.throughput import Plateau
from trainauto.automations.vram_statistics import VramStatistics
from trainauto.core.decisions import KeepPlan, PlanChange, RunFacts
from trainauto.core.plan import BATCH_SIZE, LQ_SIZE, Axis, Plan
from trainauto.core.records import OutOfMemory, PeakReading, Probe, StepRecord
from trainauto.memory.belief import Belief
from trainauto.memory.prior import Prior
from trainauto.memory.step_policy import Judgement, shrunk_after_oom
from trainauto.memory.surface import CostModel

logger = logging.getLogger(__name__)

STATUS_EVERY = 50
MORE_MEMORY = 1.02
"""Ratio of limits from which a resumed run has another card or budget: readings of one card are the same."""

EARLY_STEPS = 3
"""Whole steps after which what was foreseen is corrected: the first one at a new plan may take less or more."""

NO_SPEEDS: Mapping[str, Any] = {"speeds": [], "is_down": False}

_FIGURES = re.compile(r"[\d.]+")


@AUTOMATIONS.register("DynamicBatchSizeOptimizer")
class DynamicBatchSizeOptimizer(DocumentedInterface):
    """Grows crop and batch until peaks lie in the band below target; shrinks them when memory is short.

    When it acts:

    - ``policy: jump`` with a traced model chooses the plan of the first batch, measures it before it is trained, and
      may correct it once after :data:`EARLY_STEPS` steps. Afterwards it judges whole periods of
      ``adjustment_frequency`` steps under one plan.
    - ``policy: step``, ``warmup_period``, a model that cannot be traced, and loops of one's own: nothing is decided
      before a whole first period is complete.

    Failures are remembered in :class:`~trainauto.automations.failure_memory.FailureMemory`; nothing is blocked for
    ever. Loops of one's own use the methods of :class:`~trainauto.automations.documented.DocumentedInterface`.

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
        policy: ``jump`` goes to the best plan that a trace foresees and corrects it once; ``step`` takes small steps.
        objective: ``memory`` fills the target; ``throughput`` goes from there to the smallest batch that trains as many
            pixels a second.
        target_batch_size: samples of every optimizer step, run in as many micro-batches as memory asks for; ``None``
            lets the step grow with the batch.
        warmup_period: train the first period under the option file's plan, whatever is foreseen.
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
        self.effective = EffectiveBatch(target_batch_size)
        limits = {BATCH_SIZE: (min_batch_size, max_batch_size), LQ_SIZE: (min_lq_size, max_lq_size)}
        self._bounds = Bounds(limits).at_most(BATCH_SIZE, target_batch_size)
        self._run_axes: tuple[Axis, ...] = ()
        self._axes = self.bounded(self._run_axes)
        # Plans are those that EffectiveBatch gives a controller; the run's own are made of them where they leave here.
        self._plan: Plan | None = None
        self._configured_batch: int | None = None
        self._seen = Observations()
        self._iteration = 0
        self._cooldown = 0
        self._steering = self._afresh()
        self._failures = FailureMemory(adjustment_frequency)
        self._statistics = VramStatistics(self.name, vram_history_size)
        self._last_said = ""
        self._settled: dict[str, Any] | None = None
        self._has_forgotten = False
        self._begins_otherwise = False
        self._limit_bytes: int | None = None
        self.kind = ""
        super().__init__()

    def foresee(self, peaks: tuple[Prior, Belief], reserved: tuple[Prior, Belief] | None = None) -> None:
        """Take what a trace says of plans, before the first step; ``policy: step`` has no use for it.

        Args:
            peaks: bytes of a step by forward batch and crop, and how the peaks to be measured compare with them.
            reserved: the same for what the allocator will hold.
        """
        if self.policy == "jump":
            held = CostModel(*reserved) if reserved is not None else None
            self._steering = self._steered_by(Jump(CostModel(*peaks), held))

    def _afresh(self) -> Steering:
        return self._steered_by(SmallSteps(self.effective) if self.policy == "step" else Jump(CostModel(None)))

    def _steered_by(self, memory: Steering) -> Steering:
        return Plateau(memory, self.effective.even) if self.objective == "throughput" else memory

    def first_plan(self, plan: Plan) -> Plan:
        """Return the plan a new run starts with instead of ``plan``: with ``target_batch_size`` that many samples."""
        self._configured_batch = self.effective.forward(plan).batch_size
        return self.effective.whole(self.effective.forward(plan))

    def learned(self) -> dict[str, Any] | None:
        """Return what a later run of the same kind may start from; ``None`` while no plan has settled.

        What plans need after :meth:`forget` is not what they need in a run that begins.
        """
        if self._settled is None or self.policy != "jump" or self._has_forgotten:
            return None
        return {**self._settled, "steering": self._steering.state_dict()}

    def forget(self) -> None:
        """Steer by what is measured from now on; plans that failed may be tried again."""
        self._steering, self._has_forgotten = self._afresh(), True
        self._failures.clear()
        self._cooldown = 0

    def recall(self, learned: Mapping[str, Any], facts: RunFacts, limit_bytes: int) -> Plan | None:
        """Take what :meth:`learned` gave; return the plan it settled at, if this run would settle there, too.

        Under another limit, other bounds or another target what was measured still holds, and the run jumps by it.
        """
        self.first_plan(facts.plan)
        plan, state = Plan.from_dict(learned["plan"]), dict(learned["steering"])
        axes = self.bounded(facts.axes)
        same = learned["conditions"] == self._conditions(limit_bytes, axes)
        if not (same and all(axis.admits(plan[axis.name]) for axis in axes)):
            self._steering.load_state_dict({**state, "jumped": False, "corrected": False, **NO_SPEEDS})
            return None
        self._steering.load_state_dict(state)
        return self.effective.whole(plan)

    def _conditions(self, limit_bytes: int, axes: tuple[Axis, ...]) -> dict[str, Any]:
        """Return what decides, beside the network, where a run settles; as JSON gives it back."""
        return {
            "limit_bytes": limit_bytes,
            "target": self.target_vram_usage,
            "margin": self.safety_margin,
            "axes": [[axis.name, axis.minimum, axis.maximum, axis.multiple] for axis in axes],
            "configured_batch": self._configured_batch,
            "objective": self.objective,
            "samples": self.effective.samples,
        }

    # --- in the engine

    def check(self, facts: RunFacts) -> None:
        """Refuse bounds that leave no admissible value, and share ``target_batch_size`` among ranks.

        Raises:
            InputError: names the bounds and what the network and the images admit.
            ValueError: the samples of a step cannot be shared.
        """
        if facts.ranks > 1:
            self.effective = EffectiveBatch(self.effective.total, facts.ranks)
            self._bounds = self._bounds.at_most(BATCH_SIZE, self.effective.samples)
            self._steering = self._afresh()
        self._bounds.check(facts, self.name)

    def floored(self, axes: tuple[Axis, ...], plan: Plan) -> tuple[Axis, ...]:
        """Raise the minima to those of the options (C17, C19)."""
        return self._bounds.floored(axes, plan)

    def expected_bytes(self, plan: Plan) -> int | None:
        """Return what its policy expects of a plan."""
        return self._steering.expected_bytes(self.effective.forward(plan))

    def on_run_start(self, facts: RunFacts) -> None:
        """Take up bounds and plan of the run."""
        self._run_axes = facts.axes
        self._axes = self.bounded(self._run_axes)
        if self._configured_batch is None:
            self.first_plan(facts.plan)
        plan = self.effective.forward(facts.plan)
        if plan != self._plan:
            self.restart(plan)
        self._begins_otherwise = self.effective.whole(plan) != facts.plan
        if not self._seen.peaks:  # a resume in mid-period goes on with it
            logger.info("%s: a period of %d steps begins with %s", self.name, self.adjustment_frequency, plan)

    def begin(self, now: PeakReading, probes: int) -> PlanChange | None:
        """Choose the plan of the first batch by what was foreseen; it is then measured before it is trained."""
        if self._plan is None or not now.limit or self.warmup_period or not self._steering.foresees():
            return None
        self._see_limit(now.limit)
        self._seen = Observations(available=now.available)
        judgement = self._steering.judge(replace(self._period(now.limit), probes_left=probes))
        return self._begun(self._even(judgement))

    def on_probe(self, probe: Probe) -> PlanChange | None:
        """Correct the choice by what was measured of it; ``None`` once it is the best that is known to fit."""
        if self._plan is None or not probe.limit:
            return None
        available = self._seen.available
        self._seen = Observations(available=available)
        if probe.peak is None:
            self._steering.has_failed(self._plan, probe.limit)
        else:
            self._seen.add(probe.peak)
        judgement = self._steering.judge(replace(self._period(probe.limit), probes_left=probe.left))
        self._seen = Observations(available=available)
        judgement = self._even(judgement)
        return None if judgement.plan == self._plan else self._begun(judgement)

    def _begun(self, judgement: Judgement) -> PlanChange:
        self.restart(judgement.plan)
        return PlanChange(self.effective.whole(judgement.plan), judgement.reason, judgement.expected_bytes)

    def on_step_end(self, record: StepRecord) -> PlanChange | None:
        """Take in a step; at the end of a period, decide."""
        if self._plan is None or record.peak is None:
            return None
        if self._begins_otherwise:
            self._begins_otherwise = False
            return PlanChange(self.effective.whole(self._plan), "the option file asks for other steps")
        plan = self.effective.forward(record.plan)
        seconds = record.step_seconds
        judgement = self.after_step(
            plan,
            record.peak,
            is_whole=plan == self._plan and record.is_as_planned and not record.ooms,
            pixels_per_s=record.pixels / seconds if seconds > 0 else None,
        )
        if judgement is None:
            return None
        measured = max(self._seen.peaks, default=None)
        self.restart(judgement.plan)
        return PlanChange(self.effective.whole(judgement.plan), judgement.reason, judgement.expected_bytes, measured)

    def on_out_of_memory(self, event: OutOfMemory) -> PlanChange | KeepPlan | None:
        """Stay, where the plan has held so far and the batch ran in pieces; otherwise shrink both axes and wait."""
        if self._plan is None:
            return None
        failed = self.effective.forward(event.plan)
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
        plan = self.effective.even(smaller.meet(self._plan) if is_below else self._plan.meet(smaller))
        if plan != self._plan:
            self._statistics.note_change(self._iteration, self._plan, plan, reason)
            self._settled = None
        self.restart(plan)
        return PlanChange(self.effective.whole(plan), reason, self._steering.expected_bytes(plan))

    def _in_pieces(self, event: OutOfMemory) -> PlanChange | None:
        """At the floor, have later batches run as this one did in the end; growth waits as after any failure."""
        if event.pieces <= event.plan.micro_batches:
            return None
        run_plan = event.plan.with_micro_batches(min(event.pieces, event.plan.batch_size))
        plan = self.effective.forward(run_plan)
        reason = f"out of memory at the floor: no more than {run_plan.forward_batch_size} samples at once from now on"
        if plan != self._plan:
            self._statistics.note_change(self._iteration, self._plan, plan, reason)
            self._settled = None
        self.restart(plan)
        return PlanChange(run_plan, reason, self._steering.expected_bytes(plan))

    # --- the mechanism of both the engine and loops of one's own

    def after_step(
        self, plan: Plan, reading: PeakReading, *, is_whole: bool, pixels_per_s: float | None = None
    ) -> Judgement | None:
        """Take in a step; return a judgement only if it asks for another plan.

        Args:
            plan: it was trained under, as the controller reasons about plans.
            reading: of the step; it counts in the statistics whatever the step was.
            is_whole: it trained what the plan of now says, without running out of memory.
            pixels_per_s: how fast it was.
        """
        self._statistics.see(reading)
        self._iteration += 1
        self._cooldown = max(0, self._cooldown - 1)
        self._failures.step(plan if is_whole else None)
        self._see_limit(reading.limit)
        if self._plan is None:
            return None
        if is_whole:
            if pixels_per_s is not None:
                self._seen.pixels_per_s.append(pixels_per_s)
            self._seen.add(reading)
        if self._iteration % STATUS_EVERY == 0:
            self._statistics.log_status(self._seen.peaks, self.target_vram_usage)
        judgement = self._judge_if_due(reading, is_whole=is_whole)
        if judgement is None or judgement.plan == self._plan:
            return None
        self._statistics.note_change(self._iteration, self._plan, judgement.plan, judgement.reason)
        self._settled = None
        return judgement

    def after_failure(self, failed: Plan, limit_bytes: int | None, *, recovered: bool) -> tuple[bool, str]:
        """Take in that a step ran out of memory; return whether its plan is to shrink, and by which rule."""
        self._statistics.oom_count += 1
        has_fitted = self._steering.knows(failed)
        answer = self._failures.out_of_memory(failed, has_fitted=has_fitted, recovered=recovered)
        if answer.shrinks:
            self._cooldown = 2 * self.adjustment_frequency
            if not has_fitted:
                self._steering.has_failed(failed, limit_bytes)
        return answer.shrinks, answer.rule

    def shrunk(self, failed: Plan) -> Plan:
        """Return the plan with both axes a quarter smaller, within the floors; itself where there is none."""
        return shrunk_after_oom(failed, self._reachable_axes(failed)) or failed

    def restart(self, plan: Plan) -> None:
        """Begin a period under a plan."""
        self._plan = plan
        self._seen = Observations()

    def _see_limit(self, limit_bytes: int | None) -> None:
        """Where a resumed run has more memory than before, what failed may be tried again."""
        if limit_bytes and self._limit_bytes and limit_bytes > MORE_MEMORY * self._limit_bytes:
            logger.info("%s: there is more memory than before, so plans that failed may be tried again", self.name)
            self._failures.clear()
            self._steering.reopen()
        self._limit_bytes = limit_bytes or self._limit_bytes

    def _judge_if_due(self, reading: PeakReading, *, is_whole: bool) -> Judgement | None:
        plan, limit = self._plan, reading.limit
        if plan is None or not limit:
            return None
        if (bounded := self._within_maxima(plan)) != plan:
            # The option file's bounds are lower than they were, or smaller values were asked for.
            return self._even(Judgement(bounded, f"{plan} is beyond the bounds"))
        peaks = self._seen.peaks
        if not is_whole:
            return None
        if len(peaks) >= self.adjustment_frequency:
            return self._judge_period(plan, limit)
        if self.warmup_period and not self._statistics.history:
            return None
        if self._steering.foresees():
            # A run that goes on with more memory, or under options that need other memory, chooses anew at once.
            self._seen = Observations(available=reading.available)
            return self._even(self._steering.judge(self._period(limit)))
        if self._steering.awaits_correction() and len(peaks) == EARLY_STEPS:
            period = self._period(limit)
            # The first step of a plan may take less or more than all others, so the largest peak stands for them.
            return self._even(self._steering.judge(replace(period, typical_bytes=period.peak_bytes, pixels_per_s=None)))
        return None

    def _judge_period(self, plan: Plan, limit_bytes: int) -> Judgement:
        """Judge a whole period; the plan that was left comes back before anything else grows."""
        peaks, target_bytes = self._seen.peaks, int(self.target_vram_usage * limit_bytes)
        self._statistics.history.append(max(peaks) / limit_bytes)
        peak = self._failures.judged_peak(plan, peaks, target_bytes, int(self.safety_margin * limit_bytes))
        period = replace(self._period(limit_bytes), peak_bytes=peak)
        home = self._way_home(plan, period)
        # Where there is a way back, or home is blocked for a while, nothing else may grow meanwhile.
        may_grow = period.may_grow and home is None and not self._failures.is_waiting
        judgement = self._even(self._steering.judge(replace(period, may_grow=may_grow)))
        if judgement.plan != plan:
            if judgement.is_pressure and (self._seen.typical_peak or 0) <= target_bytes:
                self._failures.left(plan)  # it fits by itself: a spike or a neighbour drives it away
            return judgement
        if home is not None and not self._cooldown:
            expected = self._steering.expected_bytes(home)
            return Judgement(home, f"{plan} was a way out, and {home} fits again", expected)
        self._say_why_it_stays(plan, judgement)
        self._seen = Observations()
        if peak <= target_bytes and self._failures.home is None:
            self._settled = {"plan": plan.to_dict(), "conditions": self._conditions(limit_bytes, self._axes)}
        return judgement

    def _way_home(self, plan: Plan, period: Period) -> Plan | None:
        """Return the plan to go back to from a way out, if that fits what there is now."""
        home = self._failures.way_back(plan, period.axes, period.configured_batch)
        home = None if home is None else self.effective.even(home)
        return home if home not in (None, plan) and self._steering.fits_again(home, period) else None

    def _say_why_it_stays(self, plan: Plan, judgement: Judgement) -> None:
        """Log it once: of the same words with figures that waver a little only the first are news."""
        said = f"{plan}: {_FIGURES.sub('#', judgement.reason)}"
        if said != self._last_said:
            logger.info("%s: %s stays: %s", self.name, plan, judgement.reason)
        self._last_said = said

    def _period(self, limit_bytes: int) -> Period:
        """Return what was seen of the present plan, which may be nothing yet."""
        if self._plan is None:
            raise RuntimeError("set_current_parameters() comes before the first judgement")
        return Period(
            plan=self._plan,
            peak_bytes=max(self._seen.peaks, default=None),
            # The typical peak is what the plan needs, so that one spike shrinks it once and is then forgotten.
            typical_bytes=self._seen.typical_peak,
            limit_bytes=limit_bytes,
            target=self.target_vram_usage,
            margin=self.safety_margin,
            axes=self._reachable_axes(self._plan),
            configured_batch=self._configured_batch or self._plan.batch_size,
            blocked=self._failures.blocked,
            may_grow=self._cooldown == 0 and len(self._statistics.changes) < self.max_adjustments,
            reserved_bytes=self._seen.typical_reserved,
            available_bytes=self._seen.available,
            alloc_retries=self._seen.alloc_retries,
            pixels_per_s=self._seen.typical_pixels_per_s,
        )

    def _even(self, judgement: Judgement) -> Judgement:
        return replace(judgement, plan=self.effective.even(judgement.plan))

    def _within_maxima(self, plan: Plan) -> Plan:
        highest = {axis.name: min(plan[axis.name], axis.clamp(axis.maximum)) for axis in self._axes}
        return plan.changed(**highest)

    def _reachable_axes(self, plan: Plan) -> tuple[Axis, ...]:
        """Return the bounds; a run that starts below a minimum grows to it from where it is."""
        return self._bounds.floored(self._axes, plan)

    def bounded(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Return a run's axes within the bounds of the options; what is asked for lowers maxima, never minima."""
        return self._bounds.narrowed(axes)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs; bounds and switches come from the option file."""
        return {
            "plan": self._plan.to_dict() if self._plan else None,
            "configured_batch": self._configured_batch,
            "iteration": self._iteration,
            "cooldown": self._cooldown,
            "seen": self._seen.state_dict(),
            "settled": self._settled,
            "has_forgotten": self._has_forgotten,
            "limit_bytes": self._limit_bytes,
            "kind": self.kind,
            "steering": self._steering.state_dict(),
            "failures": self._failures.state_dict(),
            "statistics": self._statistics.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self._plan = Plan.from_dict(state["plan"]) if state["plan"] else None
        self._configured_batch = state["configured_batch"]
        self._iteration, self._cooldown = int(state["iteration"]), int(state["cooldown"])
        self._seen, self._settled = Observations.from_state(state["seen"]), state["settled"]
        self._has_forgotten = bool(state["has_forgotten"])
        if self._has_forgotten:
            self._steering = self._afresh()  # what was foreseen of this run is not what it needs
        if state["kind"] == self.kind:
            self._limit_bytes = state["limit_bytes"]
            self._steering.load_state_dict(state["steering"])
            self._failures.load_state_dict(state["failures"])
        else:
            logger.warning("%s: options that memory depends on have changed: what was measured is dropped", self.name)
            self._settled = None
        self._statistics.load_state_dict(state["statistics"])
