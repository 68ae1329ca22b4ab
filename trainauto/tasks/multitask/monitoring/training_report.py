"""The report of a run: what its batches and epochs came to, in figures."""

from typing import Any

from trainauto.tasks.multitask.monitoring.batch_metrics import EpochMetrics
from trainauto.tasks.multitask.monitoring.batch_sums import ALLOCATED, BATCH_SIZE, LOSS, SPEED, TASK_LOSS, BatchSums
from trainauto.tasks.multitask.monitoring.metrics_history import MetricsHistory

UNITS = {
    "total_batches": "those recorded, as total_samples; epochs also have what end_epoch was told",
    "memory": "MiB (2**20 bytes); of a batch the highest of its step",
    "throughput": "samples a second; the mean is samples over seconds",
    "loss": "mean over samples: each batch weighted by its samples, each task by its samples in a batch",
    "time": "seconds; timestamps are seconds since 1970",
    "loss_of_last_tenth_over_first": "mean loss of the task in the last tenth of the batches over that in the first",
}
"""What the figures are in, for readers of the file alone."""


def report_of(history: MetricsHistory, so_far: EpochMetrics | None) -> dict[str, Any]:
    """Return the report of a run.

    Args:
        history: the run.
        so_far: the epoch on its way, which stands beside those that have ended; ``None`` between epochs.
    """
    run = history.run
    epochs = history.epochs + ([so_far] if so_far is not None and so_far.recorded_batches else [])
    return {
        "summary": {
            "total_epochs": len(history.epochs),
            "total_batches": run.batches,
            "total_samples": run.samples,
            "training_start_time": run.first_timestamp,
            "training_end_time": run.last_timestamp,
            "epoch_time_seconds": sum(epoch.epoch_time_seconds for epoch in epochs),
            "oom_recoveries": run.oom_recoveries,
        },
        "loss_statistics": run.of(LOSS).to_dict(),
        "batch_size_statistics": run.of(BATCH_SIZE).to_dict(),
        "memory_statistics": run.of(ALLOCATED).to_dict("_mb"),
        "throughput_statistics": run.of(SPEED).to_dict("_samples_per_sec"),
        "per_task_statistics": _by_task(run, history),
        "epoch_metrics": [epoch.to_dict() for epoch in epochs],
        "units": UNITS,
    }


def _by_task(run: BatchSums, history: MetricsHistory) -> dict[str, dict[str, Any]]:
    relative = history.curves.relative_losses()
    return {
        task: {
            "samples": count,
            "share_of_samples": count / run.samples,
            "loss": loss.to_dict() if (loss := run.of(f"{TASK_LOSS}{task}")).weight else None,
            "loss_of_last_tenth_over_first": relative.get(task),
        }
        for task, count in sorted(run.task_samples.items())
    }
