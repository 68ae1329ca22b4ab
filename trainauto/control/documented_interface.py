"""The documented calls by which a loop of one's own uses the controller (C29 to C36, E09 to E13).

Both documents' loops work as they are written: the controller measures by itself, and what it suggests is taken to be
applied when it is called again. Everything ends in the two methods in which the engine's events end, too.
"""

import logging
import os
from abc import abstractmethod
from dataclasses import replace
from typing import Any

from trainauto.control.bounds import Bounds
from trainauto.control.effective_batch import EffectiveBatch
from trainauto.control.step_policy import PolicyDecision, work
from trainauto.control.vram_statistics import VramStatistics
from trainauto.core.automation import Automation
from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import BATCH_SIZE, LQ_SIZE, Axis, Plan
from trainauto.core.process import lacking_environment
from trainauto.core.records import PeakReading
from trainauto.core.words import counted
from trainauto.memory.monitor import budget
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.release import release_memory

logger = logging.getLogger(__name__)


class DocumentedInterface(Automation):
    """What a loop of one's own calls.

    Once: :meth:`set_current_parameters` (or :meth:`set_dynamic_wrappers` with a loader that knows its plan), then
    :meth:`start_monitoring_period`. After every step: :meth:`update_vram_monitoring`. When a step runs out of memory:
    :meth:`handle_oom_recovery` with the sizes to continue with.

    Attributes:
        adjustment_frequency: steps of a period.
        target_vram_usage: share of the memory that peaks are steered to.
        safety_margin: width of the band below target.
        effective: between the plans of a run and those reasoned about here.
    """

    adjustment_frequency: int
    target_vram_usage: float
    safety_margin: float
    effective: EffectiveBatch
    _bounds: Bounds
    _axes: tuple[Axis, ...]
    _run_axes: tuple[Axis, ...]
    _plan: Plan | None
    _iteration: int
    _configured_batch: int | None
    _statistics: VramStatistics

    def __init__(self) -> None:
        self._meter: MemoryMeter | None = None
        self._loader: Any = None
        self._dataset: Any = None
        self._in_flight = 0
        self._before: Plan | None = None
        self._is_unbounded = False
        self._suggested: Plan | None = None
        self._observed: PeakReading | None = None
        self._has_failed = False
        self._has_said_what_lacks = False

    @abstractmethod
    def after_step(
        self, plan: Plan, reading: PeakReading, *, is_whole: bool, pixels_per_s: float | None = None
    ) -> PolicyDecision | None:
        """Take in a step; return a decision only if it asks for another plan."""

    @abstractmethod
    def after_failure(self, failed: Plan, limit_bytes: int | None, *, recovered: bool) -> tuple[bool, str]:
        """Take in that a step ran out of memory; return whether its plan is to shrink, and by which rule."""

    @abstractmethod
    def restart(self, plan: Plan) -> None:
        """Begin a period under a plan."""

    @abstractmethod
    def shrunk(self, failed: Plan) -> Plan:
        """Return the plan after one that ran out of memory, within the floors."""

    # --- what loops read

    @property
    def min_batch_size(self) -> int:
        """Smallest batch it goes down to."""
        return self._bounds.of(BATCH_SIZE)[0]

    @property
    def max_batch_size(self) -> int:
        """Largest batch it goes up to."""
        return self._bounds.of(BATCH_SIZE)[1]

    @property
    def min_lq_size(self) -> int:
        """Smallest crop it goes down to, in low-quality pixels."""
        return self._bounds.of(LQ_SIZE)[0]

    @property
    def max_lq_size(self) -> int:
        """Largest crop it goes up to."""
        return self._bounds.of(LQ_SIZE)[1]

    @property
    def current_batch_size(self) -> int | None:
        """Samples of a step now; ``None`` before anybody has said. What was suggested counts from the next call on."""
        return self.effective.whole(self._plan).batch_size if self._plan else None

    @property
    def current_lq_size(self) -> int | None:
        """Crop of now, in low-quality pixels; ``None`` before anybody has said."""
        return self._plan[LQ_SIZE] if self._plan else None

    @property
    def current_micro_batches(self) -> int:
        """MicrobatchSplit in which a step is to run its samples; above 1 with ``target_batch_size`` only."""
        return self.effective.whole(self._plan).micro_batches if self._plan else 1

    def get_vram_stats(self) -> dict[str, Any]:
        """Return every documented figure; usages are shares of the memory the process may use.

        ``peak_usage`` is the highest peak of all steps, ``current_usage`` what was in use after the last one.
        """
        return {
            **self._statistics.figures(),
            "current_batch_size": self.current_batch_size,
            "current_lq_size": self.current_lq_size,
            "target_usage": self.target_vram_usage,
            "safety_margin": self.safety_margin,
        }

    # --- what loops call

    def set_current_parameters(self, batch_size: int, lq_size: int, micro_batches: int = 1) -> None:
        """Say what the loop trains with now, within the bounds; a new period begins if that is another plan."""
        requested = Plan.of(batch_size=batch_size, lq_size=lq_size, micro_batches=micro_batches)
        plan = self._within_bounds(requested)
        if plan != requested:
            logger.warning("%s: %s is out of bounds, using %s", self.name, requested, plan)
        self._suggested = None
        self._own_meter()  # from here on peaks are those of steps
        if self._configured_batch is None:
            self._configured_batch = self.effective.forward(plan).batch_size
        plan = self.effective.forward(plan)
        if plan != self._plan:
            self.restart(plan)
        self._hand_on(plan)

    def set_target_parameters(self, batch_size: int, lq_size: int) -> None:
        """Go to these values as far as memory admits, and no further; a larger plan shrinks to them."""
        self._bounds.ceilings = {BATCH_SIZE: batch_size, LQ_SIZE: lq_size}
        self._axes = self._bounds.clip(self._run_axes)

    def set_dynamic_wrappers(self, dataloader: Any, dataset: Any = None) -> None:
        """Let what is decided change a loader itself.

        Args:
            dataloader: has ``update_plan``, or ``update_batch_size`` and ``update_lq_size``; ``None`` for a loop that
                applies what :meth:`update_vram_monitoring` returns.
            dataset: has ``update_lq_size`` where the loader has not. Sizes reach trainauto's own datasets through keys.

        Raises:
            InputError: neither has what changes a size that is to change.
        """
        _check_setters(dataloader, dataset, changes_crop=self.min_lq_size < self.max_lq_size)
        self._loader, self._dataset = dataloader, dataset
        if isinstance(plan := getattr(dataloader, "plan", None), Plan):
            self.set_current_parameters(plan.batch_size, plan[LQ_SIZE], plan.micro_batches)

    def set_memory_budget(self, budget_bytes: int) -> None:
        """Let this process use so much and no more: on CUDA of the card, on a CPU beyond what it holds now."""
        meter = self._own_meter()
        if meter.device.type == "cpu":
            budget.calm_allocator()
            if lack := lacking_environment(os.environ):
                logger.warning(
                    "%s: %s, and a memory budget on a CPU needs it: libraries may keep what they took. Call "
                    "trainauto.core.process.set_environment() before torch is imported",
                    self.name,
                    lack,
                )
        meter.set_budget(budget_bytes)
        meter.start_window()

    def start_monitoring_period(self) -> None:
        """Begin a period with fresh peaks."""
        if self._plan is not None:
            self.restart(self._plan)
        meter = self._own_meter()
        meter.start_window()
        logger.info(
            "%s: a period of %s begins with %s",
            self.name,
            counted(self.adjustment_frequency, "step"),
            self._plan or "no plan yet",
        )

    def observe(self, reading: PeakReading) -> None:
        """Hand in the peak of one step, for a loop that measures by itself."""
        self._observed = reading

    def update_vram_monitoring(self) -> tuple[int | None, int | None]:
        """Take in a step; return (change of batch_size, change of lq_size), ``None`` for no change.

        With :meth:`set_dynamic_wrappers` the loader has them already, and setting the same values again does no harm.
        """
        self._take_up()
        reading = self._reading()
        if self._plan is None:
            self._say_what_lacks()
            return None, None
        if reading is None:
            return None, None
        if not reading.limit and not self._is_unbounded:
            self._is_unbounded = True
            logger.warning("%s: no memory limit is known, so there is nothing to fill: set a budget", self.name)
        is_whole = not self._in_flight and not self._has_failed
        self._in_flight, self._has_failed = max(0, self._in_flight - 1), False
        decision = self.after_step(self._plan, reading, is_whole=is_whole)
        if decision is None:
            return None, None
        before, after = self.effective.whole(self._plan), self.effective.whole(decision.plan)
        logger.info("%s: %s -> %s: %s", self.name, before, after, decision.reason)
        self._suggested = decision.plan
        self._hand_on(decision.plan)
        self._release_memory()  # blocks cached for the old sizes would be in the way of the new ones
        deltas = [after[name] - before[name] or None for name in (BATCH_SIZE, LQ_SIZE)]
        return deltas[0], deltas[1]

    def handle_oom_recovery(self, new_batch_size: int, new_lq_size: int) -> None:
        """Continue with these values (samples, pixels) after running out of memory; the plan that failed is remembered.

        Growth waits two periods. Values that are no smaller than what failed are replaced by smaller ones. Call it
        outside of the ``except`` block, where the error's traceback no longer holds the tensors of the failed step.
        """
        self._take_up()
        requested = Plan.of(batch_size=new_batch_size, lq_size=new_lq_size)
        reason = "out of memory"
        # With a loader that looks ahead, the batch that failed may be one of the plan before.
        failed = self._before if self._in_flight and self._before is not None else self._plan
        if failed is not None:
            requested = requested.changed(micro_batches=min(failed.micro_batches, new_batch_size))
        plan = self.effective.forward(self._within_bounds(requested))
        if failed is not None:
            limit = self._meter.limit_bytes if self._meter else None
            if (reading := self._own_meter().end_window()) is not None:
                self._statistics.see(reading)
            rule = self.after_failure(failed, limit, recovered=False)[1]
            reason = f"out of memory under {failed}: {rule}"
            plan = plan if work(plan) < work(failed) else self.shrunk(failed)
        self._has_failed = True
        self._release_memory()
        if plan != self._plan:
            self._statistics.note_change(self._iteration, self._plan, plan, reason)
        logger.info("%s: %s -> %s: %s", self.name, self._plan, plan, reason)
        self.restart(plan)
        self._hand_on(plan)

    # --- within

    def _say_what_lacks(self) -> None:
        if not self._has_said_what_lacks:
            self._has_said_what_lacks = True
            logger.warning(
                "%s: no plan is controlled, since it is not known what the loop trains with: call "
                "set_current_parameters(batch_size=..., lq_size=...) before the first step",
                self.name,
            )

    def _take_up(self) -> None:
        """Count what was suggested as applied: that is what the documented loop does before its next call."""
        if self._suggested is not None:
            self.restart(self._suggested)
            self._suggested = None

    def _reading(self) -> PeakReading | None:
        """Return the reading handed in for this step, or the peak since the last call."""
        if (observed := self._observed) is not None:
            self._observed = None
            return observed
        meter = self._own_meter()
        reading = meter.end_window()
        meter.start_window()
        return reading

    def _own_meter(self) -> MemoryMeter:
        if self._meter is None:
            self._meter = MemoryMeter.of_this_process()
            self._meter.start_window()
        return self._meter

    def _release_memory(self) -> None:
        """Give back what a failure or another plan leaves behind, and have the budget count from there."""
        meter = self._own_meter()
        release_memory(meter.device)
        meter.start_window()

    def _within_bounds(self, plan: Plan) -> Plan:
        axes = replace(self._bounds, ceilings={}).clip(self._run_axes)
        clamped = {axis.name: axis.clamp(plan[axis.name]) for axis in axes}
        return plan.changed(micro_batches=min(plan.micro_batches, clamped[BATCH_SIZE]), **clamped)

    def _hand_on(self, plan: Plan) -> None:
        """Change the loader, where there is one; a larger plan leaves batches of the old one on their way."""
        plan, loader = self.effective.whole(plan), self._loader
        if loader is None:
            return
        if hasattr(loader, "update_plan"):
            if plan == loader.plan:
                return
            grows = plan.capped_by(loader.plan) != plan
            self._in_flight = getattr(loader, "lookahead", 0) if grows else 0
            self._before = self.effective.forward(loader.plan)
            loader.update_plan(plan)
            return
        loader.update_batch_size(plan.batch_size)
        sized = loader if hasattr(loader, "update_lq_size") else self._dataset
        if hasattr(sized, "update_lq_size"):
            sized.update_lq_size(plan[LQ_SIZE])


def _check_setters(loader: Any, dataset: Any, *, changes_crop: bool) -> None:
    """Refuse a loader that what is decided would not reach.

    Raises:
        InputError: names the method that lacks.
    """
    if loader is None or (hasattr(loader, "update_plan") and hasattr(loader, "plan")):
        return
    instead = "or pass None, and apply what update_vram_monitoring() returns."
    kind = type(loader).__name__
    if not callable(getattr(loader, "update_batch_size", None)):
        advice = f"Give it this method, which makes the next batches that large, {instead}"
        raise InputError(Problem(f"the loader, a {kind}, has no update_batch_size(n)", advice=advice))
    crops = [part for part in (loader, dataset) if callable(getattr(part, "update_lq_size", None))]
    if changes_crop and not crops:
        message = f"neither the loader, a {kind}, nor the dataset ({type(dataset).__name__}) has update_lq_size(n)"
        advice = f"Give one of them this method; set max_lq_size to min_lq_size where crops are to stay; {instead}"
        raise InputError(Problem(message, advice=advice))
