"""Batches of a run of three tasks, for tests to vary."""

import math
from typing import Any

from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics


def a_batch(number: int = 0, **changes: Any) -> BatchMetrics:
    figures: dict[str, Any] = {
        "batch_idx": number,
        "timestamp": 1000.0 + number,
        "task_types": ["T1", "T2"],
        "batch_size": 8,
        "loss": 1.0 / (1 + number),
        "per_task_loss": {"T1": 2.0 / (1 + number), "T2": 0.5},
        "learning_rate": 1e-3,
        "memory_allocated_mb": 100.0 + number,
        "memory_reserved_mb": 200.0,
        "throughput_samples_per_sec": 40.0,
        "gradient_norm": 1.5,
        "per_task_samples": {"T1": 6, "T2": 2},
    }
    return BatchMetrics(**figures | changes)


def a_long_run(batches: int) -> list[BatchMetrics]:
    """Batches that grow, losses of three scales that fall, with some noise, and one that ran out of memory."""
    made = []
    for number in range(batches):
        size = 4 + number * 28 // batches
        noise = 1 + 0.2 * math.sin(37.0 * number)
        fall = math.exp(-2.5 * number / batches) * noise
        samples = {"T1": size // 2, "T2": size // 4, "T3": size - size // 2 - size // 4}
        losses = {"T1": 2.3 * fall, "T2": 0.7 * (0.4 + 0.6 * fall), "T3": 90 * fall}
        made.append(
            a_batch(
                number,
                task_types=list(samples),
                batch_size=size,
                loss=sum(losses[task] * samples[task] for task in samples) / size,
                per_task_loss=losses,
                per_task_samples=samples,
                learning_rate=1e-3 * (1 - number / batches),
                memory_allocated_mb=150 + 12.0 * size,
                memory_reserved_mb=170 + 13.0 * size,
                throughput_samples_per_sec=(20 + size) * noise,
                gradient_norm=3 * fall,
                is_oom_recovery=number == batches * 2 // 3,
            )
        )
    return made
