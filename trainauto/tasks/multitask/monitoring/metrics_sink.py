"""A run's steps and epochs as metric files, pictures and curves: what the monitor of several tasks notes."""

import time
from collections.abc import Callable, Sequence

from trainauto.core.decisions import Decision, Rollback
from trainauto.core.quotas import apportioned
from trainauto.core.records import Progress, StepRecord
from trainauto.core.run_events import RunEnd, RunSummary
from trainauto.core.units import MIB
from trainauto.reporting.sinks import Sink
from trainauto.reporting.tensorboard import TensorBoard
from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics
from trainauto.tasks.multitask.monitoring.monitor import DynamicBatchingMonitor


class MetricsSink(Sink):
    """Has a monitor note each step and epoch, and bring its files up to date when the run ends, by an error too.

    Args:
        monitor: what notes them; it loads now what it draws with, before a memory budget is measured.
        samples: of an epoch.
        curves: the run's own, to which the monitor's are added; ``None`` where it has none.
        clock: returns seconds since 1970.
    """

    def __init__(
        self,
        monitor: DynamicBatchingMonitor,
        samples: int,
        curves: TensorBoard | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._monitor, self._samples, self._clock = monitor, samples, clock
        self._has_begun = False
        if curves is not None:
            monitor.share_curves(curves.add_points)
        monitor.prepare()

    def start(self, summary: RunSummary) -> None:
        """Begin a run, or go on where a resume does."""
        self._go_on_from(summary.progress)

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        """Note a step; the epoch ends with the step that completes it."""
        del decisions
        epoch = (progress.samples - record.shape.samples) // self._samples
        self._monitor.record_batch(metrics_of(record, self._clock()))
        if progress.samples // self._samples > epoch:
            self._monitor.end_epoch()
            self._monitor.start_epoch(progress.samples // self._samples)

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:
        """Cut off what was undone."""
        del rollback
        self._go_on_from(summary.progress)

    def end(self, summary: RunEnd) -> None:
        """End the epoch that is on its way."""
        del summary
        if self._has_begun and self._monitor.has_open_batches:
            self._monitor.end_epoch()

    def close(self) -> None:
        """Bring all files and pictures up to date."""
        if self._has_begun:
            self._monitor.close()

    def _go_on_from(self, progress: Progress) -> None:
        if progress.steps:
            self._monitor.resume(progress.steps, progress.samples // self._samples)
        else:
            self._monitor.begin_run()
        self._monitor.start_epoch(progress.samples // self._samples)
        self._has_begun = True


def metrics_of(record: StepRecord, timestamp: float) -> BatchMetrics:
    """Return what a monitor notes of a step.

    Args:
        record: the step, of all ranks; where its samples of tasks are not those of all, their shares count.
        timestamp: seconds since 1970.
    """
    samples, seconds = record.shape.samples, record.data_seconds + record.step_seconds
    present = {task: count for task, count in record.task_samples.items() if count > 0}
    shares = present if sum(present.values()) == samples else apportioned(samples, present)
    peak = record.peak
    return BatchMetrics(
        batch_idx=record.step - 1,
        timestamp=timestamp,
        task_types=sorted(present),
        batch_size=samples,
        loss=record.loss,
        per_task_loss={task: loss for task, loss in record.task_losses.items() if task in present},
        learning_rate=next(iter(record.learning_rates.values()), None),
        memory_allocated_mb=peak.allocated / MIB if peak is not None else None,
        memory_reserved_mb=peak.reserved / MIB if peak is not None and peak.reserved is not None else None,
        throughput_samples_per_sec=samples / seconds if seconds > 0 else None,
        gradient_norm=next(iter(record.grad_norms.values()), None),
        is_oom_recovery=record.ooms > 0,
        per_task_samples=shares or None,
    )
