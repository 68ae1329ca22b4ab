"""Figures that several sinks show: means over the steps since the last line, rates, gains over what costs nothing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainauto.core.noise_scale import NoiseScales
from trainauto.core.records import PeakReading, StepRecord, ValidationRecord
from trainauto.core.units import MIB

LEAST_BYTES_OF_A_SHARE = 5 * MIB


@dataclass(frozen=True)
class StepFigures:
    """Some consecutive steps as one.

    Attributes:
        last: the last of them; rates and plan are read from it.
        losses: mean of each loss term over the steps in which it was computed; those that left the weights alone, since
            something was no finite number, count only where there are no others.
        grad_norms: mean of each pass's gradient norm, likewise.
        data_s: mean wait for a batch.
        step_s: mean time of a step without that wait.
        steps_per_s: optimizer steps a second, waits included, validation and checkpoints left out.
        samples_per_s: samples a second, likewise.
        peak: the highest readings, and what was held after the last; ``None`` where memory was not read.
        skipped: passes whose optimizer step was skipped, over all the steps.
        ooms: times memory ran out, over all the steps.
        told: loss terms that are reported only, and not minimised.
        noise_scales: of each optimizer whose gradient's noise was measured, as of the last time.
    """

    last: StepRecord
    losses: Mapping[str, float]
    grad_norms: Mapping[str, float]
    data_s: float
    step_s: float
    steps_per_s: float
    samples_per_s: float
    peak: PeakReading | None
    skipped: int = 0
    ooms: int = 0
    told: frozenset[str] = frozenset()
    noise_scales: Mapping[str, float] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """Sum of the loss terms that are minimised."""
        return sum(value for name, value in self.losses.items() if name not in self.told)

    @property
    def waiting(self) -> float:
        """Share of the time spent waiting for data, 0 to 1."""
        total_s = self.data_s + self.step_s
        return self.data_s / total_s if total_s > 0 else 0.0

    @property
    def memory_share(self) -> float | None:
        """Peak as a share of what this process may use; ``None`` if unknown."""
        return self.peak.allocated / self.peak.limit if self.peak is not None and self.peak.limit else None


class StepWindow:
    """Sums up steps until their figures are asked for; its size does not grow with their number."""

    def __init__(self) -> None:
        self._last: StepRecord | None = None
        self._noise = NoiseScales()
        self.clear()

    def __len__(self) -> int:
        return self._steps

    def clear(self) -> None:
        """Begin anew."""
        self._steps = 0
        self._samples = 0
        self._skipped = 0
        self._ooms = 0
        self._data_s = 0.0
        self._step_s = 0.0
        self._losses: dict[str, tuple[float, int]] = {}
        self._told: frozenset[str] = frozenset()
        self._grad_norms: dict[str, tuple[float, int]] = {}
        self._last_peak: PeakReading | None = None
        self._allocated = 0
        self._reserved: int | None = None
        self._device_used: int | None = None
        self._alloc_retries = 0
        self._noise_scales: dict[str, float] = {}

    def add(self, record: StepRecord) -> None:
        """Take one more step in."""
        self._last = record
        self._steps += 1
        self._samples += record.shape.samples
        self._skipped += len(record.skipped)
        self._ooms += record.ooms
        self._told |= frozenset(record.told)
        self._data_s += record.data_seconds
        self._step_s += record.step_seconds
        if not record.non_finite:
            _add(self._losses, record.losses)
            _add(self._grad_norms, record.grad_norms)
        if record.peak is not None:
            self._add_peak(record.peak)
        self._noise_scales |= self._noise.add(record.noise)

    def figures(self) -> StepFigures:
        """Return the steps since the last :meth:`clear` as one.

        Raises:
            ValueError: there was no step.
        """
        if self._last is None or not self._steps:
            raise ValueError("no step to take figures of")
        total_s = self._data_s + self._step_s
        return StepFigures(
            last=self._last,
            losses=_means(self._losses) or self._last.losses,
            grad_norms=_means(self._grad_norms) or self._last.grad_norms,
            data_s=self._data_s / self._steps,
            step_s=self._step_s / self._steps,
            steps_per_s=self._steps / total_s if total_s > 0 else 0.0,
            samples_per_s=self._samples / total_s if total_s > 0 else 0.0,
            peak=self._highest_peak(),
            skipped=self._skipped,
            ooms=self._ooms,
            told=self._told,
            noise_scales=self._noise_scales,
        )

    def _add_peak(self, peak: PeakReading) -> None:
        self._last_peak = peak
        self._allocated = max(self._allocated, peak.allocated)
        self._reserved = _higher(self._reserved, peak.reserved)
        self._device_used = _higher(self._device_used, peak.device_used)
        self._alloc_retries += peak.alloc_retries

    def _highest_peak(self) -> PeakReading | None:
        if self._last_peak is None:
            return None
        return replace(
            self._last_peak,
            allocated=self._allocated,
            reserved=self._reserved,
            device_used=self._device_used,
            alloc_retries=self._alloc_retries,
        )


def error_text(predicted_bytes: int, measured_bytes: int) -> str:
    """Return by how much a prediction was off, as a share of what was measured; negative where it was too low.

    Of small plans the difference itself: buffers of libraries are most of what they take, and a share says nothing.
    """
    if measured_bytes < LEAST_BYTES_OF_A_SHARE:
        return f"{(predicted_bytes - measured_bytes) / MIB:+.1f} MiB"
    return f"{(predicted_bytes - measured_bytes) / measured_bytes:+.1%}"


def gain_over_baseline(record: ValidationRecord, metric: str) -> float | None:
    """Return by how much a metric of a validation is better than that of what costs nothing, as :func:`gain` does."""
    return gain(record.metrics[metric], record.baseline.get(metric), record.better_is_higher.get(metric))


def gain(value: float, baseline: float | None, better_is_higher: bool | None) -> float | None:
    """Return by how much a value is better than that of what costs nothing; ``None`` where one of both is no number.

    Positive is better whichever way the metric points; higher is by default. Two infinite values (both images
    identical) are no gain.
    """
    if baseline is None or math.isnan(value) or math.isnan(baseline):
        return None
    if math.isinf(value) and value == baseline:
        return 0.0
    return baseline - value if better_is_higher is False else value - baseline


def _add(sums: dict[str, tuple[float, int]], values: Mapping[str, float]) -> None:
    for name, value in values.items():
        total, number = sums.get(name, (0.0, 0))
        sums[name] = (total + value, number + 1)


def _means(sums: Mapping[str, tuple[float, int]]) -> dict[str, float]:
    return {name: total / number for name, (total, number) in sums.items()}


def _higher(first: int | None, other: int | None) -> int | None:
    if first is None or other is None:
        return first if other is None else other
    return max(first, other)
