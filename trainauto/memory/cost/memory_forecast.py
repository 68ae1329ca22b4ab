"""What plans will need, known before the first step: traces of some plans, and the prior they give."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from trainauto.core.plan import Axis, Plan, count_axis, plan_of, size_axis
from trainauto.core.units import MIB
from trainauto.core.words import counted
from trainauto.memory.cost.ratio_prior import (
    COMPILED_UPPER,
    OF_REQUESTED,
    ON_CARD,
    PROCESS,
    Kernels,
    RatioPrior,
    reserved_belief,
)
from trainauto.memory.cost.traced_fit import SIDE, Prior, Size, allocator_prior, fit_prior
from trainauto.memory.cuda_allocator.segments import Segments
from trainauto.memory.tracing.libraries import Hardware
from trainauto.memory.tracing.phases import OPTIMIZER
from trainauto.memory.tracing.trace import Trace

logger = logging.getLogger(__name__)


LARGEST_TRACED = 64
"""Samples of the largest batch that is traced: of images, activations are most of what it takes by then."""

MUCH_COPIED = 0.1
"""Share of a peak: networks that keep their activations have 0 to 6 %."""


@dataclass(frozen=True)
class PlanBytes:
    """What a step under a plan takes.

    Attributes:
        persistent_bytes: live all the time: weights, optimizer state, averages. Not gradients, which a step begins by
            dropping.
        peak_bytes: highest live bytes.
        phase_peaks_bytes: the same by phase.
        reserved_bytes: the least with which torch's CUDA allocator need not flush in such steps, by simulation;
            ``None`` where no card was asked for.
        kernels: what they take beyond a trace, see :data:`~trainauto.memory.cost.ratio_prior.Kernels`.
        seconds: how long it took, building the model included where it had to be built.
        peak_with_copies_bytes: the peak where a CPU's kernels copy what they are given; 0 where that is not known.
        multiplications: of matrix products, convolutions and fused attention; 0 where that is not known.
        workspaces_bytes: of each workspace of cuBLAS that is part of it.
        attends: attention is part of it, for which cards have different kernels.
        allocated_bytes: the highest bytes of the allocator's blocks in use, by simulation; ``None`` as above.
    """

    persistent_bytes: int
    peak_bytes: int
    phase_peaks_bytes: Mapping[str, int]
    reserved_bytes: int | None
    seconds: float
    kernels: Kernels = "usual"
    peak_with_copies_bytes: int = 0
    multiplications: int = 0
    workspaces_bytes: Sequence[int] = ()
    attends: bool = False
    allocated_bytes: int | None = None

    @classmethod
    def of(cls, trace: Trace, seconds: float, kernels: Kernels = "usual", *, segments: Segments | None) -> "PlanBytes":
        """Return what a trace tells; ``segments`` of the card that is asked for, ``None`` where it is none."""
        needed = trace.needed_bytes(expandable=segments == "expandable") if segments else None
        return cls(
            persistent_bytes=trace.held_bytes,
            peak_bytes=trace.peak_bytes,
            phase_peaks_bytes=dict(trace.phase_peaks_bytes),
            reserved_bytes=needed.least_bytes if needed else None,
            seconds=seconds,
            kernels=kernels,
            peak_with_copies_bytes=trace.peak_with_copies_bytes,
            multiplications=trace.multiplications,
            workspaces_bytes=trace.workspaces_bytes,
            attends=trace.attends,
            allocated_bytes=needed.allocated_bytes if needed else None,
        )


class PlanTracer(Protocol):
    """Traces steps of one training."""

    def trace(self, plan: Plan) -> PlanBytes:
        """Trace a step under a plan.

        Raises:
            TraceError: it cannot be traced.
        """


class CardTracer(PlanTracer, Protocol):
    """Traces steps of one training for a card that need not be there."""

    def aim(self, hardware: Hardware) -> None:
        """Trace for such a card from here on."""

    def step_trace(self, plan: Plan) -> Trace:
        """Return the trace of a step, with what is live at its peak by module.

        Raises:
            TraceError: it cannot be traced.
        """


@dataclass(frozen=True)
class MemoryForecast:
    """What a few traced plans tell of all plans.

    Attributes:
        live: bytes that a step asks for at its peak, weights and optimizer included.
        allocated: the same in blocks of torch's CUDA allocator; ``None`` without a card.
        reserved: the least with which that allocator need not flush for it; ``None`` without a card.
        persistent_bytes: what is held between steps: weights, optimizer state, averages.
        traced: the traced plans, by forward batch and size.
        kernels: what they take beyond a trace, see :data:`~trainauto.memory.cost.ratio_prior.Kernels`.
        seconds: how long the traces took.
    """

    live: Prior
    allocated: Prior | None
    reserved: Prior | None
    persistent_bytes: int
    traced: dict[Size, PlanBytes]
    seconds: float
    kernels: Kernels = "usual"

    @classmethod
    def of(cls, traced: dict[Size, PlanBytes], window_px: int, seconds: float, power: int = SIDE) -> "MemoryForecast":
        """Fit what traced plans tell; extents are padded to multiples of ``window_px`` by the network."""
        live = fit_prior({size: plan_bytes.phase_peaks_bytes for size, plan_bytes in traced.items()}, window_px, power)
        allocated = {size: known for size, one in traced.items() if (known := one.allocated_bytes) is not None}
        reserved = {size: known for size, one in traced.items() if (known := one.reserved_bytes) is not None}
        return cls(
            live=live,
            allocated=allocator_prior(live, allocated, of_blocks=True) if allocated else None,
            reserved=allocator_prior(live, reserved) if reserved else None,
            persistent_bytes=next(iter(traced.values())).persistent_bytes,
            traced=traced,
            seconds=seconds,
            kernels=next(iter(traced.values())).kernels,
        )

    @property
    def attends(self) -> bool:
        """Attention is part of a step, for which cards have different kernels."""
        return any(plan_bytes.attends for plan_bytes in self.traced.values())

    @property
    def workspaces_bytes(self) -> Sequence[int]:
        """Bytes of each workspace of cuBLAS that steps hold."""
        return next(iter(self.traced.values())).workspaces_bytes

    def knows(self, plan: Plan) -> bool:
        """Say whether a plan was traced itself."""
        return (plan.forward_batch_size, plan.size) in self.traced

    def extended(self, traced: Mapping[Plan, PlanBytes]) -> "MemoryForecast":
        """Return a forecast that also knows these plans."""
        more = {(plan.forward_batch_size, plan.size): plan_bytes for plan, plan_bytes in traced.items()}
        seconds = self.seconds + sum(plan_bytes.seconds for plan_bytes in traced.values())
        return MemoryForecast.of({**self.traced, **more}, self.live.window_px, seconds, self.live.power)

    def to_dict(self) -> dict[str, Any]:
        """Return what was traced, in bytes, for files."""
        plans = [
            {
                "batch": batch,
                "size": side,
                "live_bytes": plan_bytes.peak_bytes,
                "with_copies_bytes": plan_bytes.peak_with_copies_bytes,
                "phases": dict(plan_bytes.phase_peaks_bytes),
                "allocated_bytes": plan_bytes.allocated_bytes,
                "reserved_bytes": plan_bytes.reserved_bytes,
            }
            for (batch, side), plan_bytes in self.traced.items()
        ]
        return {
            "seconds": round(self.seconds, 3),
            "persistent_bytes": self.persistent_bytes,
            "window_px": self.live.window_px,
            "power": self.live.power,
            "kernels": self.kernels,
            "workspaces_bytes": list(self.workspaces_bytes),
            "traced": plans,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "MemoryForecast":
        """Rebuild :meth:`to_dict`.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        persistent, kernels = int(content["persistent_bytes"]), content["kernels"]
        if kernels not in ON_CARD:
            raise ValueError(f"kernels are {' or '.join(ON_CARD)}, not {kernels!r}")
        traced = {
            (int(record["batch"]), int(record["size"] if "size" in record else record["lq_size"])): PlanBytes(
                persistent,
                int(record["live_bytes"]),
                {str(phase): int(peak) for phase, peak in record["phases"].items()},
                int(record["reserved_bytes"]) if record["reserved_bytes"] is not None else None,
                0.0,
                kernels,
                int(record.get("with_copies_bytes", 0)),  # not in files of earlier versions
                workspaces_bytes=tuple(content.get("workspaces_bytes", ())),
                allocated_bytes=record.get("allocated_bytes"),
            )
            for record in content["traced"]
        }
        power = int(content.get("power", SIDE))  # not in files of earlier versions
        return cls.of(traced, int(content["window_px"]), float(content["seconds"]), power)

    def spans(self, axes: Sequence[Axis]) -> bool:
        """Say whether nothing within the bounds lies far beyond what was traced."""
        return all(
            batch <= max(size[0] for size in self.traced) and side <= max(size[1] for size in self.traced)
            for batch, side in ((plan.forward_batch_size, plan.size) for plan in spread(axes))
        )

    def peaks_on(self, device_type: str) -> tuple[Prior, RatioPrior]:
        """Return what will be measured as a step's peak on a kind of device: prior, and how far to trust it.

        On the CPU peaks are counted from what was held before the first step. Copies within kernels are part of what is
        believed of every process. Where gradient checkpointing leaves little else live, they are more than that, and
        so is the doubt: such a network took 8 % more than live bytes and copies, and 10 MiB. Compiling adds to it.
        """
        if device_type != "cpu":
            blocks = None if self.kernels in OF_REQUESTED else self.allocated
            return blocks or self.live, ON_CARD[self.kernels]
        copied = max(1.0, self.share_with_copies() / PROCESS.median_ratio)
        doubt = COMPILED_UPPER if self.kernels == "compiled" else 1.0
        return self.live, replace(
            PROCESS,
            median_ratio=copied * PROCESS.median_ratio,
            upper_ratio=doubt * copied**2 * PROCESS.upper_ratio,
            constant_bytes=PROCESS.constant_bytes - self.persistent_bytes,
        )

    def optimizer_bytes(self, device_type: str) -> float:
        """Return what the optimizer's own step is expected to peak at on a kind of device: the same for every plan."""
        _, ratio = self.peaks_on(device_type)
        live = min(plan_bytes.phase_peaks_bytes.get(OPTIMIZER, 0) for plan_bytes in self.traced.values())
        return ratio.median_ratio * live + ratio.constant_bytes

    def share_with_copies(self) -> float:
        """Return the largest peak of a traced plan over its live bytes where copies within kernels are counted."""
        return max(
            plan_bytes.peak_with_copies_bytes / max(1, plan_bytes.peak_bytes) for plan_bytes in self.traced.values()
        )

    def least_reserved(self) -> tuple[Prior, RatioPrior] | None:
        """Return the same for the least with which the allocator need not flush; ``None`` without a card."""
        return (self.reserved, reserved_belief(self.kernels)) if self.reserved is not None else None


def forecast_memory(
    tracer: PlanTracer, axes: Sequence[Axis], device_type: str = "", largest_batch: int = LARGEST_TRACED
) -> MemoryForecast:
    """Trace six plans between the bounds of the axes, and fit what they tell.

    A trace costs the same for a large plan as for a small one, so they span the whole lattice: nothing is extrapolated.

    Args:
        tracer: of the training.
        axes: of the run, with their bounds.
        device_type: where the run trains: on a CPU a budget counts from what is held before the first step.
        largest_batch: traces of larger ones would tell nothing new; where samples are small beside weights, they do.

    Raises:
        TraceError: the model cannot be traced.
    """
    plans = spread(axes, largest_batch)
    traced = {(plan.forward_batch_size, plan.size): tracer.trace(plan) for plan in plans}
    size, seconds = size_axis(axes), sum(plan_bytes.seconds for plan_bytes in traced.values())
    forecast = MemoryForecast.of(traced, size.multiple if size else 1, seconds, size.power if size else 1)
    logger.info(
        "traced %s in %.1f s: weights, averages and optimizer hold %.1f MiB%s; the fit is within %.2f%%",
        counted(len(traced), "plan"),
        forecast.seconds,
        forecast.persistent_bytes / MIB,
        ", beside the budget" if device_type == "cpu" else "",
        100 * forecast.live.residual,
    )
    return forecast


def lacks_room(forecast: MemoryForecast, device_type: str, target_bytes: float | None) -> bool:
    """Say whether the optimizer's own step is expected to peak above what a run may take, however small its batch."""
    return target_bytes is not None and forecast.optimizer_bytes(device_type) > target_bytes


def say_loop_form(forecast: MemoryForecast, device_type: str) -> None:
    """Say that optimizers take one weight after another, and why."""
    logger.warning(
        "the optimizer's step would need %.1f MiB for all weights at once, and less is free: it updates one "
        "weight after another (foreach=False), which is slower and differs in the last bits",
        forecast.optimizer_bytes(device_type) / MIB,
    )


def warn_if_doubtful(forecast: MemoryForecast) -> None:
    """Say of a network on a CPU that its kernels' copies are much of what it takes."""
    share = forecast.share_with_copies() - 1
    if share > MUCH_COPIED:
        logger.warning(
            "the prediction is uncertain: copies within convolutions add %.0f%% to the peak of a step on a CPU ("
            "gradient checkpointing leaves little else); real steps may take a quarter more until they are measured",
            100 * share,
        )


def spread(axes: Sequence[Axis], largest_batch: int = LARGEST_TRACED) -> list[Plan]:
    """Return six plans that span the bounds; fewer where bounds lie close together."""
    count, size = count_axis(axes), size_axis(axes)
    low, middle, high = _three(size, size.maximum if size else 1)
    few, some, many = _three(count, min(count.maximum, max(count.minimum, largest_batch)) if count else 1)
    corners = [(few, low), (some, low), (many, low), (few, middle), (some, middle), (few, high)]
    return list(dict.fromkeys(plan_of(axes, samples, value) for samples, value in corners))


def _three(axis: Axis | None, maximum: int) -> tuple[int, int, int]:
    if axis is None:
        return 1, 1, 1
    low, high = axis.clamp(axis.minimum), axis.clamp(maximum)
    return low, axis.clamp((low + high) // 2), high
