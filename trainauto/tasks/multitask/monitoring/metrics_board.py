"""The figures of a monitor as TensorBoard's curves. torch and tensorboard are imported with the first of them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trainauto.reporting.tensorboard import write_points
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

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

SINGLE_POINTS = 1000
"""Batches at the beginning of which each has its own point; later ones share theirs, so that files stay small."""

BATCHES_A_POINT = 10
IN_EVERY_RUN = frozenset({LOSS, ALLOCATED, RESERVED, SPEED, RATE, NORM, RECOVERIES})
"""Figures that :mod:`trainauto.reporting.curves` has of every run, most of them under other names."""

_FLUSH_S = 30


class MetricsBoard:
    """Writes event files: figures by position.

    They are those of :meth:`~trainauto.tasks.multitask.monitoring.batch_sums.BatchSums.figures`.

    Args:
        folder: folder of the event files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None
        self._window = BatchSums()
        self._position = -1
        self._purge_from: int | None = None
        self._shared: Callable[[Mapping[str, float], int], None] | None = None

    def share(self, add_points: Callable[[Mapping[str, float], int], None]) -> None:
        """Write no event file of its own from now on: what a run's curves lack is added to them, at steps from 1."""
        self.close()
        self._shared = add_points

    def resume_at(self, position: int) -> None:
        """Hide what files of before hold from this position on: it is trained again."""
        self.close()
        self._purge_from = position if self._folder.is_dir() and any(self._folder.iterdir()) else None

    def open(self) -> None:
        """Open an event file, unless one is open."""
        if self._writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=self._purge_from, flush_secs=_FLUSH_S)
            self._purge_from = None

    def load(self) -> None:
        """Import what writes event files, without opening one."""
        import tensorboard.compat.proto.summary_pb2  # type: ignore[import-untyped]  # noqa: F401
        import torch.utils.tensorboard.writer  # noqa: F401

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
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write_window(self) -> None:
        figures, self._window = self._window.figures(), BatchSums()
        self._write(figures, self._position)

    def _write(self, figures: dict[str, float], position: int) -> None:
        if self._shared is not None:
            self._shared({tag: value for tag, value in figures.items() if tag not in IN_EVERY_RUN}, position + 1)
            return
        self.open()
        if self._writer is not None:
            write_points(self._writer, figures, position)
