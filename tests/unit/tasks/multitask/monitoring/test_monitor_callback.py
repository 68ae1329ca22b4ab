"""A monitor on a memory-aware Trainer of a tiny model."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import ACCEPTANCE
from tests.trainers import Watched, arguments, rows, tiny_model
from tests.unit.reporting.builders import a_step
from trainauto.core.plan import BatchShape
from trainauto.core.records import PeakReading
from trainauto.core.units import MIB
from trainauto.tasks.multitask.monitoring.monitor import DynamicBatchingMonitor
from trainauto.tasks.multitask.monitoring.monitor_callback import MonitorCallback, metrics_of

SAMPLES, A_STEP, EPOCHS = 20, 4, 3


class Tasked(Watched):
    """Its samples are of the tasks even and odd, by their first token."""

    @property
    def task_samples(self) -> dict[str, int]:
        last = max(step for step, _ in self.parts)
        names = [row[0] for step, part in self.parts if step == last for row in part["input_ids"].tolist()]
        return dict(Counter("odd" if name % 2 else "even" for name in names))

    @property
    def task_losses(self) -> dict[str, float]:
        return {"even": 1.0, "odd": 2.0}


def run(folder: Path, resume: str | None = None, **options: Any) -> DynamicBatchingMonitor:
    given = {"per_device_train_batch_size": A_STEP, "num_train_epochs": EPOCHS, "save_strategy": "steps"}
    args = arguments(folder / "checkpoints", **{**given, "save_steps": 1, **options})
    trainer = Tasked(model=tiny_model(), args=args, train_dataset=rows(SAMPLES))
    monitor = DynamicBatchingMonitor(folder, tensorboard=False)
    trainer.add_callback(MonitorCallback(trainer, monitor))
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


def test_figures_of_a_step() -> None:
    record = a_step(
        3,
        shape=BatchShape(samples=6, extent=8),
        losses={"loss": 0.75},
        ooms=1,
        peak=PeakReading(allocated=3 * MIB, reserved=5 * MIB),
    )
    metrics = metrics_of(record, {"T1": 0.5, "T2": 1.5, "T9": 3.0}, {"T1": 1, "T2": 2, "T3": 0}, 12.5)
    assert (metrics.batch_idx, metrics.timestamp, metrics.batch_size, metrics.loss) == (2, 12.5, 6, 0.75)
    assert metrics.per_task_loss == {"T1": 0.5, "T2": 1.5}
    assert metrics.per_task_samples == {"T1": 2, "T2": 4}  # counted on one rank of two
    assert metrics.task_types == ["T1", "T2"]
    assert (metrics.memory_allocated_mb, metrics.memory_reserved_mb, metrics.is_oom_recovery) == (3, 5, True)
    assert metrics.throughput_samples_per_sec == pytest.approx(6 / 0.2)
    assert (metrics.learning_rate, metrics.gradient_norm) == (2e-4, 1.25)


def test_a_step_of_which_little_is_known() -> None:
    metrics = metrics_of(a_step(peak=None, grad_norms={}, learning_rates={}), {}, {}, 0.0)
    assert (metrics.memory_allocated_mb, metrics.gradient_norm, metrics.learning_rate) == (None, None, None)
    assert metrics.samples_by_task == {}
