"""Steering crop and batch by peak memory."""

import logging
import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from trainauto.automations.base import Automation, PlannedLoader
from trainauto.automations.bounds import Bounds, check_at_least_one, check_band
from trainauto.automations.effective_batch import EffectiveBatch
from trainauto.automations.period import Observations
from trainauto.automations.registry import AUTOMATIONS
from trainauto.automations.steering import Jump, Period, SmallSteps, Steering
from trainauto.automations.throughput import Plateau
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.plan import BATCH_SIZE, LQ_SIZE, Axis, Plan
from trainauto.core.records import OutOfMemory, PeakReading, StepRecord
from trainauto.memory.belief import Belief
from trainauto.memory.prior import Prior
from trainauto.memory.step_policy import Judgement, shrunk_after_oom
from trainauto.memory.surface import CostModel

logger = logging.getLogger(__name__)

GIB = 1024**3
STATUS_EVERY = 50
MORE_MEMORY = 1.02
"""Ratio of limits from which a resumed run has another card or budget: readings of one card are the same."""

NO_SPEEDS: Mapping[str, Any] = {"speeds": [], "is_down": False}

NEARLY_FULL = 0.95
"""Use above this is worth a warning (E19): a little more, and a step fails."""


_FIGURES = re.compile(r"[\d.]+")


@AUTOMATIONS.register("DynamicBatchSizeOptimizer")
class DynamicBatchSizeOptimizer(Automation):
    """Grows crop and batch until the peak of a period lies in the band below target; shrinks them when memory is short.

    It judges whole periods of ``adjustment_frequency`` steps under one plan, by the largest peak in them. Nothing is
    judged before the first period is complete. A plan that ran out of memory is not tried again, unless it had fitted
    for a whole period before: then something else took the memory, and a second failure is awaited.

    In a loop of your own: call :meth:`set_current_parameters`, :meth:`start_monitoring_period`, then :meth:`observe`
    and :meth:`update_vram_monitoring` after every step; with :meth:`set_dynamic_wrappers` it changes the loader itself.

    Args:
        target_vram_usage: peaks are steered to this share of the memory the process may use.
        safety_margin: width of the band below target that is left alone, as a share of the same memory.
        adjustment_frequency: steps of a period.
        min_batch_size: smallest batch it goes down to.
        max_batch_size: largest batch it goes up to.
        min_lq_size: smallest crop it goes down to, in low-quality pixels.
        max_lq_size: largest crop it goes up to; the smallest image may stop it earlier.
        vram_history_size: periods kept in the history.
        max_adjustments: changes after which it grows no further; it always shrinks where it must.
        policy: ``jump`` goes to the best plan that a trace foresees and corrects it once; ``step`` takes small steps.
        objective: ``memory`` fills the target; ``throughput`` goes from there to the smallest batch that trains as many
            pixels a second.
        target_batch_size: samples of every optimizer step, run in as many micro-batches as memory asks for; ``None``
            lets the step grow with the batch.
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
    ) -> None:
        check_band(target_vram_usage, safety_margin)
        check_at_least_one(adjustment_frequency=adjustment_frequency, vram_history_size=vram_history_size)
        self.target_vram_usage = target_vram_usage
        self.safety_margin = safety_margin
        self.adjustment_frequency = adjustment_frequency
        self.max_adjustments = max_adjustments
        self.policy = policy
        self.objective = objective
        self.effective = EffectiveBatch(target_batch_size)
        limits = {BATCH_SIZE: (min_batch_size, max_batch_size), LQ_SIZE: (min_lq_size, max_lq_size)}
        self._bounds = Bounds(limits).at_most(BATCH_SIZE, target_batch_size)
        self._run_axes: tuple[Axis, ...] = ()
        self._axes = self.bounded(self._run_axes)
        # Plans are those that EffectiveBatch gives a controller; the run's own are made of them where they leave here.
        self._plan: Plan | None = None
        self._configured_batch: int | None = None
        self._loader: PlannedLoader | None = None
        self._in_flight = 0
        self._seen = Observations()
        self._reading: PeakReading | None = None
        self._is_nearly_full = False
        self._iteration = 0
        self._cooldown = 0
        self._steering = self._afresh()
        self._failed: Counter[Plan] = Counter()
        self._history: deque[float] = deque(maxlen=vram_history_size)
        self._changes: list[dict[str, Any]] = []
        self._oom_count = 0
        self._highest = 0.0
        self._last_said = ""
        self._settled: dict[str, Any] | None = None
        self._has_forgotten = False
        self._begins_otherwise = False
        self._limit_bytes: int | None = None
        self.kind = ""

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
        self._failed.clear()
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
        self.set_current_parameters(facts.plan.batch_size, facts.plan[LQ_SIZE], facts.plan.micro_batches)
        self._begins_otherwise = self._plan is not None and self.effective.whole(self._plan) != facts.plan
        if not self._seen.peaks:  # a resume in mid-period goes on with it
            self.start_monitoring_period()

    def on_step_end(self, record: StepRecord) -> PlanChange | None:
        """Observe a step; at the end of a period, decide."""
        if self._plan is None or record.peak is None:
            return None
        self._iteration += 1
        self._cooldown = max(0, self._cooldown - 1)
        self._see_limit(record.peak.limit)
        if self._begins_otherwise:
            self._begins_otherwise = False
            return PlanChange(self.effective.whole(self._plan), "the option file asks for other steps")
        if (bounded := self._within_maxima(self._plan)) != self._plan:
            # Only a resume comes here: the option file's bounds are lower than they were.
            return self._change(Judgement(bounded, f"{self._plan} is beyond the bounds of the option file"))
        if self._steering.foresees() and record.peak.limit and not record.ooms:
            self._seen.available = record.peak.available
            return self._change(self._judge(record.peak.limit))
        if self.effective.forward(record.plan) != self._plan or not record.is_as_planned or record.ooms:
            return None  # still batches of the plan before, or pieces of them
        if record.step_seconds > 0:
            self._seen.pixels_per_s.append(record.pixels / record.step_seconds)
        self.observe(record.peak)
        judgement = self._judge_if_complete()
        return None if judgement is None else self._change(judgement)

    def on_out_of_memory(self, event: OutOfMemory) -> PlanChange | None:
        """Shrink both axes; remember the plan; wait twice as long before growing again."""
        if self._plan is None:
            return None
        failed = self.effective.forward(event.plan)
        self._failed[failed] += 1 if self._steering.knows(failed) else 2
        self._steering.has_failed(failed, event.limit)
        smaller = shrunk_after_oom(failed, self._axes)
        if smaller is None:
            return self._in_pieces(event)
        # Never back up to a plan that has become smaller meanwhile.
        is_below = smaller.batch_size <= self._plan.batch_size
        plan = self.effective.even(smaller.meet(self._plan) if is_below else self._plan.meet(smaller))
        self.handle_oom_recovery(plan.batch_size, plan[LQ_SIZE])
        how = f"ran in {event.pieces} pieces" if event.recovered else "did not fit in any pieces"
        reason = f"out of memory under {failed}: the batch {how}; both axes shrink"
        return PlanChange(self.effective.whole(plan), reason, self._steering.expected_bytes(plan))

    def _in_pieces(self, event: OutOfMemory) -> PlanChange | None:
        """At the floor, have later batches run as this one did in the end; growth waits as after any failure."""
        self._oom_count += 1
        self._cooldown = 2 * self.adjustment_frequency
        if event.pieces <= event.plan.micro_batches:
            return None
        run_plan = event.plan.with_micro_batches(min(event.pieces, event.plan.batch_size))
        plan = self.effective.forward(run_plan)
        reason = f"out of memory at the floor: no more than {run_plan.forward_batch_size} samples at once from now on"
        if plan != self._plan:
            self._note_change(plan, "out of memory")
        self._restart(plan)
        return PlanChange(run_plan, reason, self._steering.expected_bytes(plan))

    def _see_limit(self, limit_bytes: int | None) -> None:
        """Where a resumed run has more memory than before, what failed may be tried again."""
        if limit_bytes and self._limit_bytes and limit_bytes > MORE_MEMORY * self._limit_bytes:
            logger.info("%s: there is more memory than before, so plans that failed may be tried again", self.name)
            self._failed.clear()
            self._steering.reopen()
        self._limit_bytes = limit_bytes or self._limit_bytes

    # --- the documented interface

    def set_current_parameters(self, batch_size: int, lq_size: int, micro_batches: int = 1) -> None:
        """Say what the loop trains with now; a new period begins if that is another plan."""
        plan = self.effective.forward(Plan.of(batch_size=batch_size, lq_size=lq_size, micro_batches=micro_batches))
        if plan != self._plan:
            self._restart(plan)

    def set_target_parameters(self, batch_size: int, lq_size: int) -> None:
        """Grow towards these values and no further, as far as memory admits."""
        self._bounds.wanted = {BATCH_SIZE: batch_size, LQ_SIZE: lq_size}
        self._axes = self.bounded(self._run_axes)

    def set_dynamic_wrappers(self, dataloader: PlannedLoader, dataset: object = None) -> None:
        """Let what is decided change ``dataloader`` itself. Sizes reach the dataset through its keys."""
        del dataset
        self._loader = dataloader
        self.set_current_parameters(dataloader.plan.batch_size, dataloader.plan[LQ_SIZE], dataloader.plan.micro_batches)

    def start_monitoring_period(self) -> None:
        """Begin a period with fresh peaks."""
        self._seen = Observations()
        logger.info(
            "%s: a period of %d steps begins with %s", self.name, self.adjustment_frequency, self._plan or "no plan yet"
        )

    def observe(self, reading: PeakReading) -> None:
        """Take in the peak of one step."""
        self._reading = reading
        if reading.limit:
            use = reading.allocated / reading.limit
            self._highest = max(self._highest, use)
            if use > NEARLY_FULL and not self._is_nearly_full:
                logger.warning("%s: a step used %.1f%% of the memory there is", self.name, 100 * use)
            self._is_nearly_full = use > NEARLY_FULL
        if self._in_flight:
            self._in_flight -= 1
            return  # still a batch of the plan before
        self._seen.add(reading)
        if self._iteration % STATUS_EVERY == 0 and reading.limit:
            peak = max(self._seen.peaks)
            logger.info(
                "%s: last step %.1f%% (%.2f GiB), period's peak %.1f%% (%.2f of %.2f GiB), target %.0f%%",
                self.name,
                100 * reading.allocated / reading.limit,
                reading.allocated / GIB,
                100 * peak / reading.limit,
                peak / GIB,
                reading.limit / GIB,
                100 * self.target_vram_usage,
            )

    def update_vram_monitoring(self) -> tuple[int | None, int | None]:
        """Judge if a period is complete; return (change of batch_size, change of lq_size), ``None`` for no change."""
        self._iteration += 1
        self._cooldown = max(0, self._cooldown - 1)
        judgement = self._judge_if_complete()
        if judgement is None or self._plan is None or judgement.plan == self._plan:
            return None, None
        before, after = self._plan, judgement.plan
        self._note_change(after, judgement.reason)
        self._hand_on(after)
        self._restart(after)
        deltas = [after[name] - before[name] or None for name in (BATCH_SIZE, LQ_SIZE)]
        return deltas[0], deltas[1]

    def handle_oom_recovery(self, new_batch_size: int, new_lq_size: int) -> None:
        """Go on with these values after running out of memory; growth waits two periods."""
        self._oom_count += 1
        self._cooldown = 2 * self.adjustment_frequency
        micro_batches = self._plan.micro_batches if self._plan else 1
        plan = Plan.of(batch_size=new_batch_size, lq_size=new_lq_size, micro_batches=min(micro_batches, new_batch_size))
        if plan != self._plan:
            self._note_change(plan, "out of memory")
        self._hand_on(plan)
        self._restart(plan)

    def get_vram_stats(self) -> dict[str, Any]:
        """Return every documented figure; usages are shares of the memory the process may use."""
        reading = self._reading
        current = reading.allocated / reading.limit if reading and reading.limit else 0.0
        return {
            "peak_usage": self._highest,
            "avg_usage": sum(self._history) / len(self._history) if self._history else current,
            "current_usage": current,
            "current_batch_size": self.effective.whole(self._plan).batch_size if self._plan else None,
            "current_lq_size": self._plan[LQ_SIZE] if self._plan else None,
            "oom_recovery_count": self._oom_count,
            "target_usage": self.target_vram_usage,
            "safety_margin": self.safety_margin,
            "adjustments": len(self._changes),
            "adjustment_history": list(self._changes),
            "vram_history": list(self._history),
        }

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
            "failed": [[plan.to_dict(), count] for plan, count in self._failed.items()],
            "history": list(self._history),
            "changes": list(self._changes),
            "oom_count": self._oom_count,
            "highest": self._highest,
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
            self._failed = Counter({Plan.from_dict(plan): int(count) for plan, count in state["failed"]})
        else:
            logger.warning("%s: options that memory depends on have changed: what was measured is dropped", self.name)
            self._settled = None
        self._history.extend(state["history"])
        self._changes = list(state["changes"])
        self._oom_count, self._highest = int(state["oom_count"]), float(state["highest"])

    # --- within

    def _judge_if_complete(self) -> Judgement | None:
        reading, peaks = self._reading, self._seen.peaks
        if len(peaks) < self.adjustment_frequency or reading is None or not reading.limit or self._plan is None:
            return None
        self._history.append(max(peaks) / reading.limit)
        fits = max(peaks) <= self.target_vram_usage * reading.limit
        if not fits:
            self._failed[self._plan] += 1
        judgement = self._judge(reading.limit)
        if judgement.plan == self._plan:
            # Said once: of the same words with figures that waver a little only the first are news.
            said = f"{self._plan}: {_FIGURES.sub('#', judgement.reason)}"
            if said != self._last_said:
                logger.info("%s: %s stays: %s", self.name, self._plan, judgement.reason)
            self._last_said = said
            self._seen = Observations()
            if fits:
                conditions = self._conditions(reading.limit, self._axes)
                self._settled = {"plan": self._plan.to_dict(), "conditions": conditions}
        return judgement

    def _judge(self, limit_bytes: int) -> Judgement:
        """Judge what was seen of the present plan, which may be nothing yet."""
        if self._plan is None:
            raise RuntimeError("set_current_parameters() comes before the first judgement")
        judgement = self._steering.judge(
            Period(
                plan=self._plan,
                peak_bytes=max(self._seen.peaks, default=None),
                # The typical peak is what the plan needs, so that one spike shrinks it once and is then forgotten.
                typical_bytes=self._seen.typical_peak,
                limit_bytes=limit_bytes,
                target=self.target_vram_usage,
                margin=self.safety_margin,
                axes=self._axes,
                configured_batch=self._configured_batch or self._plan.batch_size,
                blocked=tuple(plan for plan, count in self._failed.items() if count >= 2),
                may_grow=self._cooldown == 0 and len(self._changes) < self.max_adjustments,
                reserved_bytes=self._seen.typical_reserved,
                available_bytes=self._seen.available,
                alloc_retries=self._seen.alloc_retries,
                pixels_per_s=self._seen.typical_pixels_per_s,
            )
        )
        return replace(judgement, plan=self.effective.even(judgement.plan))

    def _change(self, judgement: Judgement) -> PlanChange | None:
        if judgement.plan == self._plan:
            return None
        plan, measured = self.effective.whole(judgement.plan), max(self._seen.peaks, default=None)
        self._note_change(judgement.plan, judgement.reason)
        self._restart(judgement.plan)
        return PlanChange(plan, judgement.reason, judgement.expected_bytes, measured)

    def _within_maxima(self, plan: Plan) -> Plan:
        highest = {axis.name: min(plan[axis.name], axis.clamp(axis.maximum)) for axis in self._axes}
        return plan.changed(**highest)

    def _note_change(self, plan: Plan, reason: str) -> None:
        old = self._plan.to_dict() if self._plan else {}
        self._settled = None
        self._changes.append({"iteration": self._iteration, "old": old, "new": plan.to_dict(), "reason": reason})

    def _hand_on(self, plan: Plan) -> None:
        """Change the loader, where there is one; a larger plan leaves batches of the old one on their way."""
        plan = self.effective.whole(plan)
        if self._loader is None or plan == self._loader.plan:
            return
        grows = plan.meet(self._loader.plan) != plan
        self._in_flight = getattr(self._loader, "lookahead", 0) if grows else 0
        self._loader.update_plan(plan)

    def _restart(self, plan: Plan) -> None:
        self._plan = plan
        self._seen = Observations()

    def bounded(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Return a run's axes within the bounds of the options; what is asked for lowers maxima, never minima."""
        return self._bounds.narrowed(axes)
