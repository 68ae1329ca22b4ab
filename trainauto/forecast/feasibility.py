"""What to say before a run of which not even the smallest plan will fit."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainauto.core.plan import Axis, Plan, plan_of, shape_of, size_axis
from trainauto.core.units import MIB
from trainauto.forecast.trace_process import TraceProcess
from trainauto.memory.cost.cost_model import UPPER, CostModel
from trainauto.memory.cost.memory_forecast import MemoryForecast
from trainauto.memory.cuda_allocator.segments import Segments
from trainauto.memory.tracing.trace import TraceError
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions

logger = logging.getLogger(__name__)

SWITCH = "memory:gradient_checkpointing=true"


@dataclass(frozen=True)
class Feasibility:
    """Whether a run can begin.

    Attributes:
        fits: one sample of the smallest crop is expected within the limit.
        with_checkpointing: it is, or may be, with gradient checkpointing.
    """

    fits: bool = True
    with_checkpointing: bool = True


def what_fits(
    loaded: LoadedOptions[FileOptions],
    forecast: MemoryForecast,
    axes: Sequence[Axis],
    device_type: str,
    limit_bytes: int,
    *,
    segments: Segments | None = None,
    world_size: int = 1,
    known: Mapping[str, Any] | None = None,
) -> Feasibility:
    """Find out whether the run can begin.

    If one sample of the smallest crop is expected above the limit, the log says so, and what could be done.

    Where gradient checkpointing is neither on nor impossible, a trace with it tells what would remain; that takes a
    process of its own and some seconds, and only then.

    Args:
        loaded: the run's options.
        forecast: of the run.
        axes: of the run, with their bounds.
        device_type: where it runs.
        limit_bytes: what it may use.
        segments: how the allocator takes memory there; ``None`` without a card.
        world_size: how many processes train it together.
        known: what a process that traces cannot know by the option file alone.
    """
    size = size_axis(axes)
    smallest = plan_of(axes, 1, size.clamp(size.minimum) if size else 1)
    cost = CostModel(*forecast.peaks_on(device_type))
    expected, most = (cost.predict(shape_of(smallest), quantile) for quantile in (0.5, UPPER))
    if expected <= limit_bytes:
        return Feasibility()
    overrides = [*loaded.overrides, SWITCH]
    tracer = TraceProcess(loaded.path, overrides, segments=segments, world_size=world_size, known=known)
    smaller = "network or crop" if size is None or size.unit == "px" else "model, shorter samples"
    otherwise = f"Take a smaller {smaller}, use_amp, or more memory."
    advice, may_help = _advice(loaded, forecast, smallest, tracer, expected, limit_bytes, otherwise)
    logger.warning(
        "one sample%s is expected to peak at %.0f MiB (99 %% within %.0f), above the limit of %.0f: the run "
        "will hardly begin. %s",
        f" of {smallest.size} {size.unit}" if size else "",
        expected / MIB,
        most / MIB,
        limit_bytes / MIB,
        advice,
    )
    return Feasibility(fits=False, with_checkpointing=may_help)


def _advice(
    loaded: LoadedOptions[FileOptions],
    forecast: MemoryForecast,
    smallest: Plan,
    checkpointing: TraceProcess,
    expected: int,
    limit_bytes: int,
    otherwise: str,
) -> tuple[str, bool]:
    """Return what to do, and whether gradient checkpointing may be it."""
    memory = loaded.options.memory
    if memory.gradient_checkpointing is True:
        return f"Gradient checkpointing is already enabled. {otherwise}", False
    try:
        with checkpointing as tracer:
            checkpointed = tracer.trace(smallest)
    except TraceError as error:
        return f"What gradient checkpointing would save is not known ({error}). {otherwise}", True
    saved = forecast.live.bytes(smallest.batch_size, smallest.size) - checkpointed.peak_bytes
    what = f"With gradient checkpointing it is {(expected - saved) / MIB:.0f} MiB"
    if expected - saved > limit_bytes:
        return f"{what}, which does not fit either. {otherwise}", False
    if memory.may_checkpoint:
        return f"{what}: it is switched on when memory runs out, and a step then takes about a third longer.", True
    return f"{what}, and a step takes about a third longer: `memory: gradient_checkpointing: true` does that.", True
