"""Records as JSON lines hold them, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trainauto.core.json_text import count_of
from trainauto.core.noise_scale import NoiseSample
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import MicrobatchSplit, PeakReading, RankFigures, StepRecord, ValidationRecord


def step_to_dict(record: StepRecord) -> dict[str, Any]:
    """Return a step as a line holds it: ``data_s`` and ``step_s`` in seconds, ``peak`` in bytes."""
    return {
        "step": record.step,
        "phase": "train",  # of every step; readers of logs know the key
        "first_sample": record.first_sample,
        "samples": record.shape.samples,
        "extent": record.shape.extent,
        "tokens": record.shape.tokens,
        "images": record.shape.images,
        "units": record.units,
        "plan": record.plan.to_dict(),
        "drawn": record.drawn.to_dict(),
        "losses": dict(record.losses),
        "lr": dict(record.learning_rates),
        "grad_norm": dict(record.grad_norms),
        "data_s": round(record.data_seconds, 6),
        "step_s": round(record.step_seconds, 6),
        **({"compile_s": round(record.compile_seconds, 6)} if record.compile_seconds else {}),
        "peak": None if record.peak is None else dict(vars(record.peak)),
        "skipped": list(record.skipped),
        "ooms": record.ooms,
        "predicted": record.predicted,
        # Seldom there, so that lines stay short.
        **({"pieces": {name: asdict(split) for name, split in record.pieces.items()}} if record.pieces else {}),
        **({"ranks": _figures(record.ranks)} if record.ranks is not None else {}),
        **({"draw_samples": record.draw_samples} if record.draw_samples else {}),
        **({"task_losses": dict(record.task_losses)} if record.task_losses else {}),
        **({"task_samples": dict(record.task_samples)} if record.task_samples else {}),
        **({"non_finite": list(record.non_finite)} if record.non_finite else {}),
        **({"told": list(record.told)} if record.told else {}),
        **({"left_out": list(record.left_out)} if record.left_out else {}),
        **({"noise": {name: asdict(sample) for name, sample in record.noise.items()}} if record.noise else {}),
    }


def step_from_dict(line: Mapping[str, Any]) -> StepRecord:
    """Return the step that :func:`step_to_dict` wrote, to replay it; times are rounded to microseconds.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, OverflowError: it is something else.
    """
    samples = count_of(line["samples"])
    if samples < 1:
        raise ValueError(f"a step of {line['samples']} samples")
    predicted = line.get("predicted")
    return StepRecord(
        step=count_of(line["step"]),
        plan=Plan.from_dict(line["plan"]),
        drawn=Plan.from_dict(line["drawn"]),
        shape=BatchShape(samples, count_of(line["extent"]), count_of(line["tokens"]), count_of(line["images"])),
        first_sample=count_of(line["first_sample"]),
        losses=_floats(line["losses"]),
        learning_rates=_floats(line["lr"]),
        grad_norms=_floats(line["grad_norm"]),
        data_seconds=_seconds(line["data_s"]),
        step_seconds=_seconds(line["step_s"]),
        units=count_of(line["units"] if "units" in line else line["pixels"]),  # its name before
        peak=None if line["peak"] is None else _peak(line["peak"]),
        skipped=tuple(line["skipped"]),
        ooms=count_of(line.get("ooms", 0)),
        predicted=None if predicted is None else count_of(predicted),
        **({} if _SELDOM.isdisjoint(line) else _seldom(line)),
    )


def _peak(line: Mapping[str, Any]) -> PeakReading:
    sizes: dict[str, Any] = {name: None if size is None else count_of(size) for name, size in line.items()}
    return PeakReading(**sizes)


_LONGEST_S = 1e12


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not abs(seconds) < _LONGEST_S:
        raise ValueError(f"{seconds} is no time in seconds")
    return seconds


_SELDOM = frozenset(
    ("pieces", "ranks", "draw_samples", "task_losses", "task_samples", "non_finite", "told", "left_out", "noise")
) | {"compile_s"}
"""Keys that few lines have."""


def _seldom(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return what few steps have, as arguments of a record."""
    return {
        "pieces": {name: MicrobatchSplit(**split) for name, split in line.get("pieces", {}).items()},
        "ranks": _ranks(line.get("ranks")),
        "draw_samples": count_of(line.get("draw_samples", 0)),
        "task_losses": _floats(line.get("task_losses", {})),
        "task_samples": {name: int(samples) for name, samples in line.get("task_samples", {}).items()},
        "non_finite": tuple(line.get("non_finite", ())),
        "told": tuple(line.get("told", ())),
        "left_out": tuple(line.get("left_out", ())),
        "noise": {name: NoiseSample(**sample) for name, sample in line.get("noise", {}).items()},
        "compile_seconds": _seconds(line.get("compile_s", 0.0)),
    }


def _figures(ranks: RankFigures) -> dict[str, Any]:
    figures = asdict(ranks)
    shares = list(figures.pop("shares"))
    return {**figures, **({"shares": shares} if shares else {})}


def _ranks(figures: Mapping[str, Any] | None) -> RankFigures | None:
    if figures is None:
        return None
    ooms = {int(rank): int(times) for rank, times in figures["ooms"].items()}  # keys are text in the file
    counts = int(figures["count"]), int(figures["planned_samples"]), int(figures["worst"])
    return RankFigures(*counts, ooms, tuple(map(float, figures.get("shares", ()))))


def validation_to_dict(record: ValidationRecord) -> dict[str, Any]:
    """Return a validation as a line holds it; times in seconds, ``tile_px`` in pixels of the input."""
    return {
        "kind": "validation",
        "step": record.step,
        "dataset": record.dataset,
        "metrics": dict(record.metrics),
        record.baseline_name: dict(record.baseline),
        "better_is_higher": dict(record.better_is_higher),
        "left_out": dict(record.left_out),
        "measured_by": dict(record.measured_by),
        "scores": [
            {"name": score.name, "metrics": dict(score.metrics), "bicubic": dict(score.baseline)}
            for score in record.scores
        ],
        "seconds": round(record.seconds, 3),
        "tile_px": record.tile_px,
        "ooms": record.ooms,
        "peak": None if record.peak is None else asdict(record.peak),
    }


def _floats(values: Mapping[str, Any]) -> dict[str, float]:
    # NaN and the infinities are strings in the file.
    return {name: float(value) for name, value in values.items()}
