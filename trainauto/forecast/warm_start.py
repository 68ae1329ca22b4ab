"""What is known of a run's memory before its first step: what an earlier run of its kind learned, else traces."""

import hashlib
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import trainauto
from trainauto.control.controller import Controller, controllers_of
from trainauto.core.automation import Automation
from trainauto.core.decisions import RunFacts
from trainauto.core.files import write_json_atomically
from trainauto.core.plan import Axis, Plan
from trainauto.core.process import ALLOCATOR_SETTINGS, unknown_to_predictions
from trainauto.core.worker_process import WorkerProcess
from trainauto.distributed.communicator import Communicator
from trainauto.forecast.feasibility import Feasibility, what_fits
from trainauto.forecast.trace_process import ONE_BY_ONE, TraceProcess, TraceProcessDiedError
from trainauto.memory.cost.calibration import Calibration
from trainauto.memory.cost.memory_forecast import (
    MemoryForecast,
    forecast_memory,
    lacks_room,
    say_loop_form,
    warn_if_doubtful,
)
from trainauto.memory.cuda_allocator.segments import Segments, segments_of
from trainauto.memory.monitor.device_use import driver_version
from trainauto.memory.tracing.trace import TraceError
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.storage.run_directory import RunDirectory

logger = logging.getLogger(__name__)

SAMPLES = "target_batch_size"
TRACES = 5
"""Counts what traces follow: forecasts of an older count are not reused."""


@dataclass(frozen=True)
class WarmStart:
    """What a run begins with, and what it leaves to the next one.

    Attributes:
        plan: the plan to start with.
        configured_samples: samples of a step that the option file asks for, whatever the run starts with.
        forecast: traced in this run or an earlier one; ``None`` where nothing was traced.
        calibration: where it keeps what it learns; ``None`` where it does not.
        controller: who learns it.
        refused: the model cannot be traced.
        checkpointing_may_help: ``False`` where nothing fits, not even with gradient checkpointing.
        one_by_one: optimizers take one weight after another: all at once, their step alone would not fit.
        recomputed: names of the blocks that run again in the backward pass, where the option file leaves them to the
            run.
    """

    plan: Plan
    configured_samples: int
    forecast: MemoryForecast | None = None
    calibration: Calibration | None = None
    controller: Controller | None = None
    refused: bool = False
    checkpointing_may_help: bool = True
    one_by_one: bool = False
    recomputed: tuple[str, ...] | None = None

    def keep(self) -> None:
        """Keep what the run has learned by now, if it has come to rest."""
        state = self.controller.calibration_state() if self.controller is not None else None
        if state is None or self.calibration is None:
            return
        traced = self.forecast.to_dict() if self.forecast is not None else None
        self.calibration.write(
            {"controller": state, "foresight": traced, "refused": self.refused, ONE_BY_ONE: self.one_by_one}
        )


def prepare_warm_start(
    loaded: LoadedOptions[FileOptions],
    kind: Mapping[str, Any],
    facts: RunFacts,
    device: torch.device,
    limit_bytes: int | None,
    automations: Iterable[Automation],
    *,
    calibrated: bool = True,
    tracer: WorkerProcess | None = None,
    known: Mapping[str, Any] | None = None,
) -> WarmStart:
    """Give the controller what is known of its run, and say what plan to start with.

    Traces run in a process that may fail without hurting this one. Where there is no limit there is nothing to know.

    Args:
        loaded: the run's options.
        kind: of run, see :func:`kind_of_run`.
        facts: the run's axes, and the plan of its option file.
        device: where it trains.
        limit_bytes: what it may use there; ``None`` if unknown.
        automations: of the run, the controller among them.
        calibrated: start from what an earlier run learned, and keep what this one does.
        tracer: a process that traces, started before.
        known: what that cannot know by the option file alone.
    """
    if (controller := next(iter(controllers_of(automations)), None)) is None:
        return WarmStart(facts.plan, facts.plan.batch_size)
    plan = controller.initial_plan(facts.plan)
    calibration = Calibration(kind)
    controller.kind = calibration.digest
    if limit_bytes is None or controller.settings.policy != "jump":
        return WarmStart(plan, plan.batch_size)
    state = calibration.read() if calibrated else None
    axes = controller.bounded(facts.axes)
    forecast, segments = _cached_forecast(state, axes), segments_of(device)
    refused, one_by_one = bool(state and state.get("refused")), bool(state and state.get(ONE_BY_ONE))
    if forecast is None and not refused:
        target_bytes = limit_bytes * controller.settings.target_vram_usage
        forecast, refused, one_by_one = _traced(
            loaded, axes, device.type, segments, facts.world_size, tracer, known or {}, target_bytes
        )
        state = None
    if one_by_one:
        known = {**(known or {}), ONE_BY_ONE: True}
    for unknown in unknown_to_predictions(os.environ if device.type == "cuda" else {}, torch.__version__):
        logger.warning("%s", unknown)
    feasible = Feasibility()
    if forecast is not None:
        controller.set_prior(forecast.peaks_on(device.type), forecast.least_reserved())
        feasible = what_fits(
            loaded,
            forecast,
            axes,
            device.type,
            limit_bytes,
            segments=segments,
            world_size=facts.world_size,
            known=known,
        )
    begins, kept = _settled_plan(controller, state, facts, limit_bytes) or plan, calibration if calibrated else None
    return WarmStart(
        begins, plan.batch_size, forecast, kept, controller, refused, feasible.with_checkpointing, one_by_one
    )


def _settled_plan(
    controller: Controller, state: dict[str, Any] | None, facts: RunFacts, limit_bytes: int
) -> Plan | None:
    """Load the calibration of an earlier run into the controller; return the plan it settled at, if that holds here."""
    try:
        settled = controller.load_calibration(state["controller"], facts, limit_bytes) if state else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        logger.warning("what an earlier run learned is damaged and is ignored: %r", error)
        return None
    if settled is not None:
        logger.info("an earlier run of this kind settled at %s: this one starts there and checks it", settled)
    return settled


def kind_of_run(
    loaded: LoadedOptions[FileOptions], network: nn.Module, device: torch.device, world_size: int = 1
) -> dict[str, Any]:
    """Return everything that a run's memory depends on but its plan and its limit, as plain values.

    Args:
        loaded: its options.
        network: to be trained; its weights' names and shapes tell it from others.
        device: where.
        world_size: how many processes train it together.
    """
    options = loaded.options
    shapes = [
        f"{name} {tuple(tensor.shape)} {tensor.dtype}"
        for name, tensor in network.state_dict().items()
        if isinstance(tensor, Tensor)  # a module may keep anything beside them
    ]
    controllers = options.training_automations.active.values()
    return {
        **options.of_steps(world_size),
        SAMPLES: next(
            (controller.arguments[SAMPLES] for controller in controllers if SAMPLES in controller.arguments), None
        ),
        "checkpointing": options.memory.model_dump(mode="json", exclude={"budget", "cpu_budget", "calibration"}),
        "plugin_sources": [_source_digest(name) for name in options.plugins],
        "weights": hashlib.sha256("\n".join(shapes).encode()).hexdigest(),
        "trainauto": trainauto.__version__,
        "traces": TRACES,
        "torch": torch.__version__,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "allocator": {name: os.environ.get(name) for name in ALLOCATOR_SETTINGS},
        "device": _device_facts(device),
    }


def _source_digest(module: str) -> str | None:
    """Return a digest of a plugin's file: edited, it may compute something else under the same names."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file and Path(file).is_file() else None


def _device_facts(device: torch.device) -> dict[str, Any]:
    if device.type == "cuda":  # pragma: no cuda
        properties = torch.cuda.get_device_properties(device)
        return {
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
            "driver": driver_version(),
        }
    return {"name": device.type, "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def _cached_forecast(state: dict[str, Any] | None, axes: Sequence[Axis]) -> MemoryForecast | None:
    """Return the traces of an earlier run, where they reach as far as this one may go."""
    if not state or not state.get("foresight"):
        return None
    try:
        forecast = MemoryForecast.from_dict(state["foresight"])
    except (KeyError, TypeError, ValueError) as error:
        logger.warning("the traces of an earlier run are damaged and are ignored: %s", error)
        return None
    return forecast if forecast.spans(axes) else None


def _traced(
    loaded: LoadedOptions[FileOptions],
    axes: Sequence[Axis],
    device_type: str,
    segments: Segments | None,
    world_size: int,
    worker: WorkerProcess | None,
    known: Mapping[str, Any],
    target_bytes: float,
) -> tuple[MemoryForecast | None, bool, bool]:
    """Return what traces tell, whether the model refuses to be traced, and whether optimizers go weight by weight.

    A model that refuses will do so another time.
    """
    one_by_one = False
    try:
        with TraceProcess(
            loaded.path, loaded.overrides, segments=segments, world_size=world_size, worker=worker, known=known
        ) as tracer:
            forecast = forecast_memory(tracer, axes, device_type)
            if lacks_room(forecast, device_type, target_bytes):
                tracer.knows(ONE_BY_ONE)
                smaller = forecast_memory(tracer, axes, device_type)
                if smaller.optimizer_bytes(device_type) < forecast.optimizer_bytes(device_type):
                    say_loop_form(forecast, device_type)
                    forecast, one_by_one = smaller, True
    except TraceError as error:
        logger.warning("cannot trace memory (%s), falling back to measured peaks", error)
        return None, not isinstance(error, TraceProcessDiedError), False
    if device_type == "cpu":
        warn_if_doubtful(forecast)
    return forecast, False, one_by_one


def broadcast_warm_start(ranks: Communicator, plan: Plan, pending: Future[WarmStart] | None) -> WarmStart:
    """Return what the first rank knows of the run's memory; the other ranks receive the plan to start with."""
    warm_start = pending.result() if pending is not None else WarmStart(plan, plan.batch_size)
    begin = ranks.broadcast_object(
        lambda: {
            "plan": warm_start.plan.to_dict(),
            "configured_samples": warm_start.configured_samples,
            ONE_BY_ONE: warm_start.one_by_one,
            "recomputed": warm_start.recomputed,
        }
    )
    if ranks.is_first:
        return warm_start
    return WarmStart(
        Plan.from_dict(begin["plan"]),
        begin["configured_samples"],
        one_by_one=begin[ONE_BY_ONE],
        recomputed=begin["recomputed"],
    )


def keep_forecast(
    directory: RunDirectory, forecast: MemoryForecast | None, limit_bytes: int | None, device: torch.device
) -> None:
    """Keep what was known of the run's memory before its first step, for who compares it with what was measured."""
    if forecast is not None:
        facts = {"device_type": device.type, "limit_bytes": limit_bytes}
        write_json_atomically(directory.forecast, {**forecast.to_dict(), **facts})
