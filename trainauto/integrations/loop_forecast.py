"""What the plans of a loop of one's own will take: traces of its step on a copy without data, else two real steps."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from trainauto.control.controller import Controller
from trainauto.core.batch import Batch
from trainauto.core.plan import Axis, Plan, work
from trainauto.core.records import PeakReading
from trainauto.core.units import MIB
from trainauto.engine.optimizer_form import take_loop_form
from trainauto.engine.traced_training import FakeTraining
from trainauto.engine.training import Training
from trainauto.integrations.loop_model import LoopModel
from trainauto.integrations.map_samples import MapSamples
from trainauto.integrations.samples import NestedSamples
from trainauto.memory.cost.memory_forecast import (
    MemoryForecast,
    PlanBytes,
    forecast_memory,
    lacks_room,
    say_loop_form,
    warn_if_doubtful,
)
from trainauto.memory.cuda_allocator.segments import segments_of
from trainauto.memory.tracing.fake_tensors import fake_copy
from trainauto.memory.tracing.libraries import card_libraries
from trainauto.memory.tracing.trace import TraceError

logger = logging.getLogger(__name__)

LARGER_STEP = 4
"""How many times the work of the smaller step that is measured the larger one has at least."""

TELLING_SHARE = 0.05
"""Share of the limit by which the larger step has to take more: a process's own noise is some MiB."""

Measure = Callable[[Plan], PeakReading | None]
"""Runs an untrained step under a plan, and returns its peak; ``None`` if it does not fit."""


class LiveModelError(TraceError):
    """A loss calls the live model instead of the one it is given."""

    def __init__(self) -> None:
        super().__init__("a loss calls a model that it was not given")


class LoopTracer:
    """Traces the steps of a loop's model on a fake copy, in this process.

    Args:
        model: stays as it is.
        dataset: makes the largest batch of a plan.
        clips: whether gradients are clipped.

    Raises:
        TraceError: it cannot be copied.
    """

    def __init__(self, model: LoopModel, dataset: MapSamples, *, clips: bool) -> None:
        if any(hasattr(part, "_orig_mod") for part in model.module.modules()):
            raise TraceError("the model is compiled: what it keeps is the compiler's decision")
        self._live = model.module
        self._segments = segments_of(model.device)
        libraries = card_libraries() if model.device.type == "cuda" else None
        self._fake = FakeTraining(
            lambda mode: _copied(model, mode),
            lambda plan: largest_batch(dataset, plan),
            clips=clips,
            libraries=libraries,
            told=told_by(dataset),
        )

    def trace(self, plan: Plan) -> PlanBytes:
        """Trace a step under a plan.

        Raises:
            TraceError: a loss uses the live model, its memory depends on data, or it fails on fake tensors.
        """
        start = time.perf_counter()
        with refusing_calls(self._live):
            trace = self._fake.trace(plan)
        return PlanBytes.of(trace, time.perf_counter() - start, self._fake.kernels(trace), segments=self._segments)


def predict_from_traces(controller: Controller, run: Training, model: LoopModel, dataset: MapSamples) -> bool:
    """Tell the controller what traces say of plans; return whether they say anything.

    Where the optimizer's step alone would peak above the target of the run, whatever the plan, the optimizers take one
    weight after another from now on.

    Args:
        controller: learns it.
        run: whose plans.
        model: of the run.
        dataset: makes the largest batch of a plan.
    """
    axes, clips, device_type = run.axes, run.controls.max_norm is not None, model.device.type
    largest_batch = next((axis.maximum for axis in axes if axis.is_count), 1)

    def forecast_now() -> MemoryForecast:
        return forecast_memory(LoopTracer(model, dataset, clips=clips), axes, device_type, largest_batch)

    try:
        forecast = forecast_now()
        if lacks_room(forecast, device_type, run.memory_target_bytes) and take_loop_form(model.optimizers.values()):
            say_loop_form(forecast, device_type)
            forecast = forecast_now()
    except TraceError as error:
        logger.info("cannot trace memory (%s): two small steps are measured instead, and nothing is trained", error)
        return False
    if device_type == "cpu":
        warn_if_doubtful(forecast)
    controller.set_prior(forecast.peaks_on(device_type), forecast.least_reserved())
    return True


def told_by(dataset: MapSamples) -> Sequence[Tensor]:
    """Return the real tensors of which the largest batch is made that say sizes."""
    workload = dataset.workload
    return workload.told() if isinstance(workload, NestedSamples) else ()


def largest_batch(dataset: MapSamples, plan: Plan) -> Batch:
    """Return the largest batch of a plan, as it leaves the loader, to be traced."""
    tensors, workload = dataset.largest_batch(plan, plan.batch_size), copy(dataset.workload)
    # Its weight would be read out of a tensor, which has no values here; memory follows no weight.
    workload.weighs_samples, workload.weight = True, _no_weight  # type: ignore[method-assign, assignment]
    shape = workload.shape(tensors)
    return Batch(tensors, workload, ("",) * shape.samples, 0, plan, plan, shape, workload.units(tensors))


def _no_weight(_tensors: object) -> int:
    return 1


def predict_from_small_steps(
    controller: Controller, axes: Sequence[Axis], start: Plan, measure: Measure, limit_bytes: int
) -> None:
    """Tell the controller what untrained steps say of plans; memory must be limited already, as it will be.

    Two steps where the second tells: the larger one grows until it does, or does not fit.

    Args:
        controller: learns it.
        axes: bounds of plans.
        start: the plan of the smaller step.
        measure: runs a step.
        limit_bytes: memory that steps may take.
    """
    peaks: dict[Plan, int] = {}
    for plan in _growing(start, axes):
        if peaks and work(plan, axes) < LARGER_STEP * work(list(peaks)[-1], axes):
            continue
        reading = measure(plan)
        if reading is None:
            break
        peaks[plan] = reading.allocated
        logger.info("measured %s at %.1f MiB", plan, reading.allocated / MIB)
        if reading.allocated - peaks[start] > TELLING_SHARE * limit_bytes:
            break
    if not peaks:
        logger.warning("%s does not fit: plans follow what training measures", start)
        return
    # Those between are within the noise of the first.
    controller.learn(dict(list(peaks.items())[:: max(1, len(peaks) - 1)]))


def _growing(start: Plan, axes: Sequence[Axis]) -> Iterator[Plan]:
    """Yield larger and larger plans: more samples first, of which memory is a line."""
    plan = start
    yield plan
    for axis in sorted(axes, key=lambda axis: not axis.is_count):
        for value in axis.values:
            if value > plan[axis.name]:
                plan = plan.changed(**{axis.name: value})
                yield plan


def _copied(model: LoopModel, mode: FakeTensorMode) -> LoopModel:
    optimizers = [objective.optimizer for objective in model.given]
    # Fresh optimizers: what they keep is made by the first step, as in training.
    memo: dict[int, Any] = {id(optimizer.state): defaultdict(dict) for optimizer in optimizers}
    module, copies = fake_copy((model.module, optimizers), mode, memo)
    # A scaler would keep numbers of the copy; scaling a loss takes no memory to speak of.
    objectives = [
        replace(objective, optimizer=copied, scaler=None) for objective, copied in zip(model.given, copies, strict=True)
    ]
    traced = LoopModel(module, objectives, model.structure)
    traced.said = model.said
    return traced


@contextmanager
def refusing_calls(module: nn.Module) -> Iterator[None]:
    """Have every call of a module fail: what uses it in a trace would have used the wrong one."""

    def refuse(_module: nn.Module, _arguments: Any) -> None:
        raise LiveModelError

    handles = [layer.register_forward_pre_hook(refuse) for layer in module.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
