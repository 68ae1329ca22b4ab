"""A monitor that goes on in the files of an earlier run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tasks.multitask.monitoring.made_batches import a_batch
from trainauto.core.json_text import read_lines
from trainauto.tasks.multitask.monitoring.batch_metrics import EpochMetrics
from trainauto.tasks.multitask.monitoring.monitor import DynamicBatchingMonitor
from trainauto.tasks.multitask.monitoring.training_report import report_of

AN_EPOCH, EPOCHS = 5, 3


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def train(folder: Path, first: int = 0, until: int = AN_EPOCH * EPOCHS) -> DynamicBatchingMonitor:
    """Batches of a run from this one on, each of 2 s."""
    clock = Clock()
    monitor = DynamicBatchingMonitor(folder, tensorboard=False, clock=clock)
    if first:
        monitor.resume(first, first // AN_EPOCH)
    for number in range(first, until):
        if number % AN_EPOCH == 0 or number == first:
            monitor.start_epoch(number // AN_EPOCH)
        clock.seconds += 2
        monitor.record_batch(a_batch(number))
        if number % AN_EPOCH == AN_EPOCH - 1:
            monitor.end_epoch()
    return monitor


def written(monitor: DynamicBatchingMonitor) -> dict[str, Any]:
    names = ("batch_metrics", "epoch_metrics")
    lines = {name: list(read_lines(monitor.folder / f"{name}.jsonl")) for name in names}
    monitor._files.refresh()
    arrays = {name: json.loads((monitor.folder / f"{name}.json").read_text()) for name in names}
    assert arrays == lines
    return {**lines, "report": report_of(monitor._history, None)}


@pytest.mark.parametrize(
    ("resumed_at", "killed_at"),
    [(1, 3), (1, 12), (4, 7), (5, 5), (5, 7), (5, 10), (7, 7), (7, 15), (10, 10), (10, 12), (10, 15)],
)
def test_all_is_as_if_nothing_had_happened(tmp_path: Path, killed_at: int, resumed_at: int) -> None:
    whole = train(tmp_path / "whole")
    train(tmp_path / "again", until=killed_at)
    again = train(tmp_path / "again", first=resumed_at)
    assert written(again) == written(whole)
    assert again.epoch_metrics == whole.epoch_metrics
    curves, expected = again._history.curves, whole._history.curves
    assert curves.positions == expected.positions
    assert curves.of("loss/all_tasks") == expected.of("loss/all_tasks")
    assert again._history.epoch_positions == whole._history.epoch_positions


def test_an_epoch_whose_line_the_kill_lost_gets_one(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", until=AN_EPOCH)
    train(tmp_path / "again", until=AN_EPOCH)
    lines = tmp_path / "again" / "training_metrics" / "epoch_metrics.jsonl"
    lines.unlink()
    again = DynamicBatchingMonitor(tmp_path / "again", tensorboard=False)
    again.resume(AN_EPOCH, 1)
    assert [EpochMetrics.from_dict(line) for line in read_lines(lines)] == whole.epoch_metrics == again.epoch_metrics


def test_an_epoch_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    """A run of a few steps ends its epoch early; resumed for more steps, that epoch is not at its end."""
    train(tmp_path, until=7).end_epoch()
    again = train(tmp_path, first=7)
    assert [(each.epoch, each.total_batches) for each in again.epoch_metrics] == [(0, 5), (1, 5), (2, 5)]
    assert [each.epoch_time_seconds for each in again.epoch_metrics] == [10, 10, 10]


def test_what_the_monitor_never_saw_is_not_made_up(tmp_path: Path) -> None:
    """The checkpoint of another folder: the figures begin where the resume does."""
    again = train(tmp_path, first=7)
    assert [each.epoch for each in again.epoch_metrics] == [1, 2]
    assert again.epoch_metrics[0].recorded_batches == 3
    assert [line["batch_idx"] for line in read_lines(again.folder / "batch_metrics.jsonl")] == list(range(7, 15))


def test_lines_that_are_no_batches_go(tmp_path: Path) -> None:
    train(tmp_path, until=3)
    path = tmp_path / "training_metrics" / "batch_metrics.jsonl"
    good = path.read_text()
    path.write_text('{"step": 1}\n' + good + '{"batch_idx": 3, "batch_size": 0}\n{"batch_idx": 4,')
    epochs = path.with_name("epoch_metrics.jsonl")
    epochs.write_text('{"epoch_time": 3}\n')
    monitor = DynamicBatchingMonitor(tmp_path, tensorboard=False)
    monitor.resume(3, 0)
    assert path.read_text() == good
    assert epochs.read_text() == ""


def test_a_batch_right_after_a_resume_is_of_the_epoch_that_goes_on(tmp_path: Path) -> None:
    train(tmp_path, until=3)
    monitor = DynamicBatchingMonitor(tmp_path, tensorboard=False)
    monitor.resume(2, 0)
    monitor.record_batch(replace(a_batch(2), loss=9.0))
    metrics = monitor.end_epoch()
    assert (metrics.epoch, metrics.recorded_batches) == (0, 3)
    assert metrics.avg_loss == pytest.approx((1.0 + 0.5 + 9.0) / 3)
