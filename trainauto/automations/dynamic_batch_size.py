"""Steering crop and batch by peak memory: the automation, under the documented names."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, Literal, TypeVar

from trainauto.automations.controller_automation import ControllerAutomation
from trainauto.automations.registry import AUTOMATIONS
from trainauto.control.bounds import ANY, Bounds
from trainauto.control.control_settings import ControlSettings
from trainauto.control.controller import Controller
from trainauto.control.effective_batch import EffectiveBatch
from trainauto.control.own_loop import OwnLoop
from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import BATCH_SIZE, TOKENS, Axis, Plan
from trainauto.core.records import PeakReading

LQ_SIZE = "lq_size"
T = TypeVar("T")

AXES = (Axis(LQ_SIZE, "px", 1, ANY, power=2), Axis(BATCH_SIZE, "samples", 1, ANY))
"""Crops grow first."""


class Setting(Generic[T]):
    """A setting of the controller, which a loop may read and change; the next decision goes by it.

    Raises:
        ValueError: it is set to what the controller cannot go by.
    """

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, automation: ControllerAutomation, _owner: type) -> T:
        value: T = getattr(automation.controller.settings, self._name)
        return value

    def __set__(self, automation: ControllerAutomation, value: T) -> None:
        controller = automation.controller
        changed: Any = {self._name: value}
        controller.settings = replace(controller.settings, **changed)


@AUTOMATIONS.register("DynamicBatchSizeOptimizer")
class DynamicBatchSizeOptimizer(ControllerAutomation):
    """Grows crop and batch until peaks lie in the band below target; shrinks them when memory is short.

    When it acts, :class:`~trainauto.control.controller.Controller` says. A loop of one's own calls once
    :meth:`set_current_parameters` (or :meth:`set_dynamic_wrappers` with a loader that knows its plan), then
    :meth:`start_monitoring_period`; after every step :meth:`update_vram_monitoring`; and when a step runs out of
    memory :meth:`handle_oom_recovery` with the sizes to continue with.

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
        objective: ``memory`` fills the target; ``throughput`` goes to the smallest batch that trains as many pixels a
            second as any; ``goodput`` to the one that learns most a second, by speed and the gradient's noise, at the
            option file's crop. Both begin with its batch, and memory bounds them.
        target_batch_size: samples of every optimizer step, run in as many micro-batches as memory asks for; ``None``
            lets the step grow with the batch.
        warmup_period: train the first period under the option file's plan, whatever is predicted.
        min_tokens: fewest tokens of a batch of texts it goes down to; ``None`` is one row.
        max_tokens: most tokens of a batch of texts it goes up to; ``None`` is 16 times those it begins with.
        target_may_grow: let a forward pass that holds more than ``target_batch_size`` make the step as large as itself.
    """

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
        objective: Literal["memory", "throughput", "goodput"] = "memory",
        target_batch_size: int | None = None,
        warmup_period: bool = False,
        min_tokens: int | None = None,
        max_tokens: int | None = None,
        target_may_grow: bool = False,
    ) -> None:
        settings = ControlSettings(
            target_vram_usage=target_vram_usage,
            safety_margin=safety_margin,
            adjustment_frequency=adjustment_frequency,
            vram_history_size=vram_history_size,
            max_adjustments=max_adjustments,
            policy=policy,
            objective=objective,
            warmup_period=warmup_period,
        )
        limits = {
            BATCH_SIZE: (min_batch_size, max_batch_size),
            LQ_SIZE: (min_lq_size, max_lq_size),
            TOKENS: (1 if min_tokens is None else min_tokens, ANY if max_tokens is None else max_tokens),
        }
        bounds = Bounds(limits, AXES).at_most(BATCH_SIZE, None if target_may_grow else target_batch_size)
        steps = EffectiveBatch(target_batch_size, may_grow=target_may_grow)
        super().__init__(Controller(self.name, settings, bounds, steps))
        self._loop = OwnLoop(
            self.controller, "set_current_parameters(batch_size=..., lq_size=...) before the first step"
        )

    # --- what loops read

    target_vram_usage = Setting[float]()
    safety_margin = Setting[float]()
    adjustment_frequency = Setting[int]()
    max_adjustments = Setting[int]()
    warmup_period = Setting[bool]()

    @property
    def min_batch_size(self) -> int:
        """Smallest batch it goes down to."""
        return self.controller.bounds.of(BATCH_SIZE)[0]

    @property
    def max_batch_size(self) -> int:
        """Largest batch it goes up to."""
        return self.controller.bounds.of(BATCH_SIZE)[1]

    @property
    def min_lq_size(self) -> int:
        """Smallest crop it goes down to, in low-quality pixels."""
        return self.controller.bounds.of(LQ_SIZE)[0]

    @property
    def max_lq_size(self) -> int:
        """Largest crop it goes up to."""
        return self.controller.bounds.of(LQ_SIZE)[1]

    @property
    def current_batch_size(self) -> int | None:
        """Samples of a step now; ``None`` before anybody has said. What was suggested counts from the next call on."""
        plan = self.controller.plan
        return self.controller.effective.whole(plan).batch_size if plan else None

    @property
    def current_lq_size(self) -> int | None:
        """Crop of now, in low-quality pixels; ``None`` before anybody has said."""
        plan = self.controller.plan
        return plan.size if plan else None

    @property
    def current_micro_batches(self) -> int:
        """Micro-batches in which a step is to run its samples; above 1 with ``target_batch_size`` only."""
        plan = self.controller.plan
        return self.controller.effective.whole(plan).micro_batches if plan else 1

    def get_vram_stats(self) -> dict[str, Any]:
        """Return every documented figure; usages are shares of the memory the process may use.

        ``peak_usage`` is the highest peak of all steps, ``current_usage`` what was in use after the last one.
        """
        return {
            **self.controller.statistics.figures(),
            "current_batch_size": self.current_batch_size,
            "current_lq_size": self.current_lq_size,
            "target_usage": self.target_vram_usage,
            "safety_margin": self.safety_margin,
        }

    # --- what loops call

    def set_current_parameters(self, batch_size: int, lq_size: int, micro_batches: int = 1) -> None:
        """Say what the loop trains with now, within the bounds; a new period begins if that is another plan."""
        self._loop.trains_with(Plan.of(batch_size=batch_size, lq_size=lq_size, micro_batches=micro_batches))

    def set_target_parameters(self, batch_size: int, lq_size: int) -> None:
        """Go to these values as far as memory admits, and no further; a larger plan shrinks to them."""
        self.controller.limit_to({BATCH_SIZE: batch_size, LQ_SIZE: lq_size})

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
        if dataloader is None or hasattr(dataloader, "update_plan"):
            self._loop.steer(dataloader)
        else:
            self._loop.steer(None, _setter(dataloader, dataset))
        if isinstance(plan := getattr(dataloader, "plan", None), Plan):
            self._loop.trains_with(plan)

    def set_memory_budget(self, budget_bytes: int) -> None:
        """Let this process use so much and no more: on CUDA of the card, on a CPU beyond what it holds now."""
        self._loop.set_budget(budget_bytes)

    def start_monitoring_period(self) -> None:
        """Begin a period with fresh peaks."""
        self._loop.begin_period()

    def observe(self, reading: PeakReading) -> None:
        """Hand in the peak of one step, for a loop that measures by itself."""
        self._loop.observe(reading)

    def update_vram_monitoring(self) -> tuple[int | None, int | None]:
        """Take in a step; return (change of batch_size, change of lq_size), ``None`` for no change.

        With :meth:`set_dynamic_wrappers` the loader has them already, and setting the same values again does no harm.
        """
        change = self._loop.after_step()
        if change is None:
            return None, None
        before, after = change
        return after.batch_size - before.batch_size or None, after.size - before.size or None

    def handle_oom_recovery(self, new_batch_size: int, new_lq_size: int) -> None:
        """Continue with these values (samples, pixels) after running out of memory; the plan that failed is remembered.

        Growth waits two periods. Values that are no smaller than what failed are replaced by smaller ones. Call it
        outside of the ``except`` block, where the error's traceback no longer holds the tensors of the failed step.
        """
        self._loop.after_failure(Plan.of(batch_size=new_batch_size, lq_size=new_lq_size))


def _setter(loader: Any, dataset: Any) -> Callable[[Plan], None]:
    """Return what gives a plan to a loader that has no plans."""
    sized = loader if hasattr(loader, "update_lq_size") else dataset

    def set_sizes(plan: Plan) -> None:
        loader.update_batch_size(plan.batch_size)
        if hasattr(sized, "update_lq_size"):
            sized.update_lq_size(plan.size)

    return set_sizes


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
