"""The figures of a monitor as TensorBoard's curves."""

from collections.abc import Callable, Mapping
from pathlib import Path

from trainauto.reporting.event_file import EventFile
from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics, EpochMetrics
from trainauto.tasks.multitask.monitoring.batch_sums import (
    ALLOCATED,
    LOSS,
    NORM,
    RATE,
    RECOVERIES,
    RESERVED,
    SPEED,
    BatchSums,
)

SINGLE_POINTS = 1000
"""Batches at the beginning of which each has its own point; later ones share theirs, so that files stay small."""

BATCHES_A_POINT = 10
IN_EVERY_RUN = frozenset({LOSS, ALLOCATED, RESERVED, SPEED, RATE, NORM, RECOVERIES})
"""Figures that :mod:`trainauto.reporting.curves` has of every run, most of them under other names."""


class MetricsBoard:
    """Writes event files: figures by position.

    They are those of :meth:`~trainauto.tasks.multitask.monitoring.batch_sums.BatchSums.figures`.

    Args:
        folder: folder of the event files.
    """

    def __init__(self, folder: Path) -> None:
        self._file = EventFile(folder)
        self._window = BatchSums()
        self._position = -1
        self._shared: Callable[[Mapping[str, float], int], None] | None = None

    def share(self, add_points: Callable[[Mapping[str, float], int], None]) -> None:
        """Write no event file of its own from now on: what a run's curves lack is added to them, at steps from 1."""
        self.close()
        self._shared = add_points

    def resume_at(self, position: int) -> None:
        """Hide what files of before hold from this position on: it is trained again."""
        self.close()
        self._file.hide_from(position)

    def batch(self, position: int, batch: BatchMetrics) -> None:
        """Add a batch to the curves."""
        self._window.add(batch)
        self._position = position
        if position < SINGLE_POINTS or self._window.batches >= BATCHES_A_POINT:
            self._write_window()

    def epoch(self, position: int, metrics: EpochMetrics) -> None:
        """Add an epoch to the curves of epochs, at the position of its last batch."""
        figures = {
            "epoch/avg_loss": metrics.avg_loss,
            "epoch/peak_memory_mib": metrics.peak_memory_mb,
            "epoch/avg_memory_mib": metrics.avg_memory_mb,
            "epoch/samples_per_s": metrics.avg_throughput_samples_per_sec,
            "epoch/seconds": metrics.epoch_time_seconds,
            "epoch/oom_recoveries": float(metrics.oom_recoveries),
            **{f"epoch_loss_by_task/{task}": loss for task, loss in metrics.per_task_avg_loss.items()},
            **{f"epoch_samples_by_task/{task}": float(count) for task, count in metrics.per_task_samples.items()},
        }
        self._write({tag: value for tag, value in figures.items() if value is not None}, max(0, position))

    def close(self) -> None:
        """Write what waits, and close the event file; a later figure opens another."""
        if self._window.batches:
            self._write_window()
        self._file.close()

    def _write_window(self) -> None:
        figures, self._window = self._window.figures(), BatchSums()
        self._write(figures, self._position)

    def _write(self, figures: dict[str, float], position: int) -> None:
        if self._shared is not None:
            self._shared({tag: value for tag, value in figures.items() if tag not in IN_EVERY_RUN}, position + 1)
            return
        self._file.add_points(figures, position)
