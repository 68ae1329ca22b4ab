"""A controller in a loop that is not the engine's: it measures by itself, and what it suggests is taken to be applied.

Both documents' loops work as they are written, through the names that ``DynamicBatchSizeOptimizer`` gives them.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from trainauto.control.controller import Controller
from trainauto.core.plan import Plan, count_axis
from trainauto.core.process import lacking_environment
from trainauto.core.records import PeakReading
from trainauto.core.words import counted
from trainauto.memory.monitor import budget
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.release import release_between_plans, release_memory

logger = logging.getLogger(__name__)


class PlannedLoader(Protocol):
    """A loader that draws by plans."""

    plan: Plan

    def update_plan(self, plan: Plan) -> None:
        """Draw under another plan."""


class OwnLoop:
    """What a loop of one's own does around each step.

    Args:
        controller: decides.
        how_to_begin: what to call before the first step, for the log.
    """

    def __init__(self, controller: Controller, how_to_begin: str) -> None:
        self._controller = controller
        self._name = controller.name
        self._how_to_begin = how_to_begin
        self._meter: MemoryMeter | None = None
        self._loader: PlannedLoader | None = None
        self._set_sizes: Callable[[Plan], None] | None = None
        self._in_flight = 0
        self._before: Plan | None = None
        self._is_unbounded = False
        self._suggested: Plan | None = None
        self._observed: PeakReading | None = None
        self._has_failed = False
        self._has_said_what_lacks = False

    def trains_with(self, requested: Plan) -> None:
        """Say what the loop trains with now, within the bounds; a new period begins if that is another plan."""
        controller = self._controller
        plan = self._within_bounds(requested)
        if plan != requested:
            logger.warning("%s: %s is out of bounds, using %s", self._name, requested, plan)
        self._suggested = None
        self._own_meter()  # from here on peaks are those of steps
        plan = controller.effective.forward(plan)
        if controller.configured_batch is None:
            controller.configured_batch = plan.batch_size
        if plan != controller.plan:
            controller.restart(plan)
        self._hand_on(plan)

    def steer(self, loader: PlannedLoader | None, set_sizes: Callable[[Plan], None] | None = None) -> None:
        """Let what is decided change a loader itself.

        Args:
            loader: has plans.
            set_sizes: changes one that has none.
        """
        self._loader, self._set_sizes = loader, set_sizes

    def set_budget(self, budget_bytes: int) -> None:
        """Let this process use so much and no more: on CUDA of the card, on a CPU beyond what it holds now."""
        meter = self._own_meter()
        if meter.device.type == "cpu":
            budget.calm_allocator()
            if lack := lacking_environment(os.environ):
                logger.warning(
                    "%s: %s, and a memory budget on a CPU needs it: libraries may keep memory that they reserved. Call "
                    "trainauto.core.process.set_environment() before torch is imported",
                    self._name,
                    lack,
                )
        meter.set_budget(budget_bytes)
        meter.start_window()

    def begin_period(self) -> None:
        """Begin a period with fresh peaks."""
        plan = self._controller.plan
        if plan is not None:
            self._controller.restart(plan)
        self._own_meter().start_window()
        period = counted(self._controller.settings.adjustment_frequency, "step")
        logger.info("%s: a period of %s begins with %s", self._name, period, plan or "no plan yet")

    def observe(self, reading: PeakReading) -> None:
        """Take the peak of one step from a loop that measures by itself."""
        self._observed = reading

    def after_step(self) -> tuple[Plan, Plan] | None:
        """Take in a step; return the plan it was trained under and another one, where that is suggested."""
        self._take_up()
        reading, controller = self._reading(), self._controller
        if controller.plan is None:
            self._say_what_lacks()
            return None
        if reading is None:
            return None
        if not reading.limit and not self._is_unbounded:
            self._is_unbounded = True
            logger.warning(
                "%s: no memory limit is known, so the batch size cannot follow memory: set a budget", self._name
            )
        is_whole = not self._in_flight and not self._has_failed
        self._in_flight, self._has_failed = max(0, self._in_flight - 1), False
        decision = controller.after_step(controller.plan, reading, is_whole=is_whole)
        if decision is None:
            return None
        before, after = controller.effective.whole(controller.plan), controller.effective.whole(decision.plan)
        logger.info("%s: %s -> %s: %s", self._name, before, after, decision.reason)
        self._suggested = decision.plan
        self._hand_on(decision.plan)
        self._release_memory(release_between_plans)
        return before, after

    def after_failure(self, requested: Plan) -> None:
        """Continue with a plan after running out of memory; the plan that failed is remembered.

        Growth waits two periods. A plan that is no smaller than what failed is replaced by a smaller one.
        """
        self._take_up()
        controller, reason = self._controller, "out of memory"
        # With a loader that looks ahead, the batch that failed may be one of the plan before.
        failed = self._before if self._in_flight and self._before is not None else controller.plan
        if failed is not None:
            requested = requested.with_micro_batches(min(failed.micro_batches, requested.batch_size))
        plan = controller.effective.forward(self._within_bounds(requested))
        if failed is not None:
            limit = self._meter.limit_bytes if self._meter else None
            if (reading := self._own_meter().end_window()) is not None:
                controller.statistics.see(reading)
            rule = controller.after_failure(failed, limit, recovered=False)[1]
            reason = f"out of memory under {failed}: {rule}"
            plan = plan if controller.work(plan) < controller.work(failed) else controller.shrunk(failed)
        self._has_failed = True
        self._release_memory(release_memory)
        logger.info("%s: %s -> %s: %s", self._name, controller.plan, plan, reason)
        controller.leave_for(plan, reason)
        self._hand_on(plan)

    # --- within

    def _say_what_lacks(self) -> None:
        if not self._has_said_what_lacks:
            self._has_said_what_lacks = True
            what = "%s: the controller is idle, since it does not know the current plan of the loop: call %s"
            logger.warning(what, self._name, self._how_to_begin)

    def _take_up(self) -> None:
        """Count what was suggested as applied: that is what the documented loop does before its next call."""
        if self._suggested is not None:
            self._controller.restart(self._suggested)
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

    def _release_memory(self, release: Callable[..., None]) -> None:
        """Give back what a failure or another plan leaves behind, and have the budget count from there."""
        meter = self._own_meter()
        release(meter.device)
        meter.start_window()

    def _within_bounds(self, plan: Plan) -> Plan:
        axes = replace(self._controller.bounds, ceilings={}).clip(self._controller.run_axes)
        clamped = plan.changed(**{axis.name: axis.clamp(plan[axis.name]) for axis in axes})
        if count_axis(axes) is None:
            return clamped
        return clamped.with_micro_batches(min(plan.micro_batches, clamped.batch_size))

    def _hand_on(self, plan: Plan) -> None:
        """Change the loader, where there is one; a larger plan leaves batches of the old one on their way."""
        effective, loader = self._controller.effective, self._loader
        plan = effective.whole(plan)
        if self._set_sizes is not None:
            self._set_sizes(plan)
        if loader is None or plan == loader.plan:
            return
        grows = plan.capped_by(loader.plan) != plan
        self._in_flight = getattr(loader, "lookahead", 0) if grows else 0
        self._before = effective.forward(loader.plan)
        loader.update_plan(plan)
