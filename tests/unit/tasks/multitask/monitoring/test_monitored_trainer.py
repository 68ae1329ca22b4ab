"""A monitor on a memory-aware Trainer of a tiny model."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import ACCEPTANCE
from tests.trainers import Watched, arguments, rows, tiny_model
from trainauto.tasks.multitask.monitoring.metrics_sink import MetricsSink
from trainauto.tasks.multitask.monitoring.monitor import DynamicBatchingMonitor

SAMPLES, A_STEP, EPOCHS = 20, 4, 3


class Tasked(Watched):
    """Its samples are of the tasks even and odd, by their first token."""

    def __init__(self, monitor: DynamicBatchingMonitor, **options: Any) -> None:
        super().__init__(**options)
        self._monitor = monitor

    def own_sinks(self, curves: Any) -> list[MetricsSink]:
        return [MetricsSink(self._monitor, SAMPLES, curves)]

    def step_recorded(self, record: Any, *, skipped: bool) -> dict[str, tuple[float, int]]:
        del record, skipped
        last = max(step for step, _ in self.parts)
        names = [row[0] for step, part in self.parts if step == last for row in part["input_ids"].tolist()]
        counts = Counter("odd" if name % 2 else "even" for name in names)
        return {task: (1.0 if task == "even" else 2.0, count) for task, count in counts.items()}


def run(folder: Path, resume: str | None = None, **options: Any) -> DynamicBatchingMonitor:
    given = {"per_device_train_batch_size": A_STEP, "num_train_epochs": EPOCHS, "save_strategy": "steps"}
    args = arguments(folder / "checkpoints", **{**given, "save_steps": 1, **options})
    monitor = DynamicBatchingMonitor(folder, tensorboard=False)
    trainer = Tasked(monitor, model=tiny_model(), args=args, train_dataset=rows(SAMPLES))
    trainer.train(resume_from_checkpoint=resume)
    return monitor


def batches(monitor: DynamicBatchingMonitor) -> list[dict[str, Any]]:
    """All batches, without what differs from run to run."""
    lines: list[dict[str, Any]] = json.loads((monitor.folder / "batch_metrics.json").read_text())
    timed = {"timestamp", "throughput_samples_per_sec", "memory_allocated_mb", "memory_reserved_mb", "epoch_seconds"}
    return [{name: value for name, value in line.items() if name not in timed} for line in lines]


def test_a_training_is_noted_and_a_resume_goes_on_in_its_files(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    lines = batches(whole)
    assert [line["batch_idx"] for line in lines] == list(range(15))
    assert [line["epoch"] for line in lines] == [number // 5 for number in range(15)]
    assert {line["batch_size"] for line in lines} == {A_STEP}
    assert all(sum(line["per_task_samples"].values()) == A_STEP for line in lines)
    assert [each.total_samples for each in whole.epoch_metrics] == [SAMPLES] * EPOCHS
    assert all(each.per_task_samples == {"even": 10, "odd": 10} for each in whole.epoch_metrics)
    first = json.loads((whole.folder / "batch_metrics.jsonl").read_text().splitlines()[0])
    assert first["memory_allocated_mb"] > 1
    assert first["throughput_samples_per_sec"] > 0
    assert first["gradient_norm"] > 0
    assert first["learning_rate"] == pytest.approx(1e-2, rel=0.1)
    names = {path.name for path in whole.folder.iterdir()}
    assert names >= {"training_report.json", "training_curves.png", "task_comparison.png", "epoch_metrics.json"}

    for step in (7, 10) if ACCEPTANCE else (10,):  # within an epoch, and at the end of one
        again = run(tmp_path / "whole", resume=str(tmp_path / "whole" / "checkpoints" / f"checkpoint-{step}"))
        assert batches(again) == lines
        assert [each.epoch for each in again.epoch_metrics] == [0, 1, 2]
        assert [each.total_batches for each in again.epoch_metrics] == [5, 5, 5]


def test_a_run_counted_in_steps_and_a_second_one(tmp_path: Path) -> None:
    for _ in range(2):
        monitor = run(tmp_path, max_steps=7, save_strategy="no")
        assert [(each.epoch, each.total_batches) for each in monitor.epoch_metrics] == [(0, 5), (1, 2)]
        assert len(batches(monitor)) == 7
    assert (tmp_path / "training_metrics_1" / "training_report.json").is_file()
