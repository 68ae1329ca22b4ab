"""A run as curves: what points they have, and under which names. TensorBoard and trackers draw the same ones."""

from typing import Literal

from trainauto.core.records import PeakReading, StepRecord, ValidationRecord
from trainauto.core.run_events import RunSummary
from trainauto.core.units import GIB, MIB
from trainauto.reporting.step_stats import StepFigures, gain_over_baseline

Unit = Literal["MiB", "GiB"]

UNITS: dict[Unit, int] = {"MiB": MIB, "GiB": GIB}


def memory_tag(name: str, unit: Unit) -> str:
    """Return the name of a curve of memory, e.g. ``memory/peak_gib``."""
    return f"memory/{name}_{unit.lower()}"


def unit_for(size_bytes: int) -> Unit:
    """Return the unit in which a size of this order reads well."""
    return "MiB" if size_bytes < GIB else "GiB"


def unit_at_start(summary: RunSummary) -> Unit | None:
    """Return the unit that curves of memory are in; ``None`` where the first peak is to say.

    It follows the target where there is one. A limit says it only where it is below 1 GiB: a small network on a large
    card has peaks of some MiB.
    """
    target, limit = summary.memory_target_bytes, summary.memory_limit_bytes
    if target is not None:
        return unit_for(target)
    return "MiB" if limit is not None and unit_for(limit) == "MiB" else None


def step_curves(figures: StepFigures, summary: RunSummary, unit: Unit | None, *, adjusted: bool) -> dict[str, float]:
    """Return the points of all curves of steps by name.

    Args:
        figures: some consecutive steps as one.
        summary: the run's start, for target and limit of its memory.
        unit: of the curves of memory; without it there are none of these.
        adjusted: whether the plan changed in these steps.
    """
    return (
        _scalars(figures, unit)
        | _bounds(figures.peak, summary, unit)
        | marks(figures, adjusted=adjusted)
        | _prediction(figures.last, unit)
    )


def validation_curves(record: ValidationRecord, unit: Unit | None) -> dict[str, float]:
    """Return the points of a validation by name: means, gains over what costs nothing, and its peak in ``unit``."""
    curves: dict[str, float] = {}
    for metric, value in record.metrics.items():
        tag = f"validation/{record.dataset}/{metric}"
        curves[tag] = value
        gain = gain_over_baseline(record, metric)
        if gain is not None:
            curves[f"{tag}_gain_over_{record.baseline_name}"] = gain
    if record.peak is not None:
        curves |= _in(unit, {"validation_peak": record.peak.allocated})
    return curves


def marks(figures: StepFigures, *, adjusted: bool) -> dict[str, float]:
    """Return 1 for what happened and 0 for what did not: curves of spikes, where there are no marks."""
    return {"events/adjustment": float(adjusted), "events/oom": float(figures.ooms > 0)}


def oom_words(record: StepRecord) -> str:
    """Return how often memory ran out in a step, and under which plan."""
    times = "once" if record.ooms == 1 else f"{record.ooms} times"
    return f"memory ran out {times} under {record.plan}"


def _scalars(figures: StepFigures, unit: Unit | None) -> dict[str, float]:
    return {
        **{f"loss/{name}": value for name, value in figures.losses.items()},
        "loss/total": figures.loss,
        **{f"lr/{name}": value for name, value in figures.last.learning_rates.items()},
        **{f"grad_norm/{name}": value for name, value in figures.grad_norms.items()},
        **{f"noise_scale/{name}": value for name, value in figures.noise_scales.items()},
        "speed/iterations_per_s": figures.steps_per_s,
        "speed/samples_per_s": figures.samples_per_s,
        "speed/data_s": figures.data_s,
        "speed/step_s": figures.step_s,
        **{f"plan/{name}": value for name, value in figures.last.plan.to_dict().items()},
        **(_memory(figures.peak, unit) if figures.peak else {}),
    }


def _memory(peak: PeakReading, unit: Unit | None) -> dict[str, float]:
    return _in(unit, {"current": peak.current, "peak": peak.allocated, "reserved": peak.reserved})


def _bounds(peak: PeakReading | None, summary: RunSummary, unit: Unit | None) -> dict[str, float]:
    limit = peak.limit if peak is not None and peak.limit is not None else summary.memory_limit_bytes
    return _in(unit, {"target": summary.memory_target_bytes, "limit": limit})


def _prediction(record: StepRecord, unit: Unit | None) -> dict[str, float]:
    if record.predicted is None:
        return {}
    curves = _in(unit, {"predicted": record.predicted})
    if record.peak is not None and record.peak.allocated and record.is_whole:
        error = (record.predicted - record.peak.allocated) / record.peak.allocated
        curves["memory/prediction_error_percent"] = 100 * error
    return curves


def _in(unit: Unit | None, sizes: dict[str, int | None]) -> dict[str, float]:
    if unit is None:
        return {}
    return {memory_tag(name, unit): size / UNITS[unit] for name, size in sizes.items() if size is not None}
