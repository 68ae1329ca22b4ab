import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tasks.multitask.monitoring.made_batches import a_batch, a_long_run
from trainauto.core.errors import InputError
from trainauto.core.json_text import read_lines
from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics
from trainauto.tasks.multitask.monitoring.monitor import DynamicBatchingMonitor

OUTPUTS = {
    "batch_metrics.json",
    "batch_metrics.jsonl",
    "epoch_metrics.json",
    "epoch_metrics.jsonl",
    "training_report.json",
    "training_curves.png",
    "task_comparison.png",
}


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def monitor(tmp_path: Path) -> DynamicBatchingMonitor:
    return DynamicBatchingMonitor(tmp_path, tensorboard=False)


def lines(path: Path) -> list[dict[str, Any]]:
    return list(read_lines(path))


def array(path: Path) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = json.loads(path.read_text())
    return values


def test_the_example_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A54 to A64: as the README has it, but for where its names are imported from."""
    monkeypatch.chdir(tmp_path)
    from trainauto.multitask import BatchMetrics, DynamicBatchingMonitor

    monitor = DynamicBatchingMonitor(output_dir="./metrics")

    monitor.start_epoch()

    # Record batch metrics (typically done by trainer)
    batch_metrics = BatchMetrics(
        batch_idx=0,
        timestamp=0.0,
        task_types=["T1", "T2"],
        batch_size=16,
        loss=0.5,
        per_task_loss={"T1": 0.4, "T2": 0.6},
        memory_allocated_mb=5000,
    )
    monitor.record_batch(batch_metrics)

    # End epoch and generate report
    epoch_metrics = monitor.end_epoch(total_samples=160, total_batches=10)

    # Generate final report
    report = monitor.generate_report()
    monitor.plot_task_comparison()

    folder = tmp_path / "metrics" / "training_metrics"
    assert {path.name for path in folder.iterdir()} == OUTPUTS | {"tensorboard"}
    assert (epoch_metrics.total_samples, epoch_metrics.total_batches, epoch_metrics.recorded_batches) == (160, 10, 1)
    assert (epoch_metrics.avg_loss, epoch_metrics.per_task_samples) == (0.5, {"T1": 8, "T2": 8})
    assert report == json.loads((folder / "training_report.json").read_text())
    assert report["memory_statistics"]["max_mb"] == 5000


def test_lines_are_the_truth_and_arrays_the_same(monitor: DynamicBatchingMonitor) -> None:
    """A60, A61: every batch at once, the arrays at the end."""
    monitor.start_epoch()
    for number in range(3):
        monitor.record_batch(a_batch(number))
        assert len(lines(monitor.folder / "batch_metrics.jsonl")) == number + 1
    monitor.end_epoch(24, 3)
    monitor.generate_report()
    for name in ("batch_metrics", "epoch_metrics"):
        assert array(monitor.folder / f"{name}.json") == lines(monitor.folder / f"{name}.jsonl")
    assert BatchMetrics.from_dict(array(monitor.folder / "batch_metrics.json")[2]) == a_batch(2)


def test_arrays_every_100_batches_and_pictures_every_500(monitor: DynamicBatchingMonitor) -> None:
    """A54."""
    refreshed, drawn = [], []
    held = 0
    for number, batch in enumerate(a_long_run(600)):
        monitor.record_batch(batch)
        path = monitor.folder / "batch_metrics.json"
        if path.exists() and (found := path.stat().st_size) != held:
            held = found
            refreshed.append(number + 1)
        if not drawn and (monitor.folder / "training_curves.png").exists():
            drawn.append(number + 1)
    assert refreshed == [100, 200, 300, 400, 500, 600]
    assert drawn == [500]


def test_long_runs_refresh_whenever_they_have_grown_by_a_hundredth(tmp_path: Path) -> None:
    monitor = DynamicBatchingMonitor(tmp_path, save_interval=1, plot_interval=10**6, tensorboard=False)
    times = 0
    size = 0
    for number in range(250):
        monitor.record_batch(a_batch(number))
        found = (monitor.folder / "batch_metrics.json").stat().st_size
        times, size = times + (found != size), found
    assert times == 100 + 50 + 16  # each of the first 100, then every 2nd, then every 3rd


@pytest.mark.parametrize("name", ["save_interval", "plot_interval"])
def test_intervals_count_batches(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name} counts batches, 1 or more, got 0"):
        DynamicBatchingMonitor(tmp_path, **{name: 0})


def test_each_epoch_has_its_own_figures(tmp_path: Path) -> None:
    """A55, A57: the public code went on adding up tasks' losses and samples over epochs."""
    clock = Clock()
    monitor = DynamicBatchingMonitor(tmp_path, tensorboard=False, clock=clock)
    for epoch in range(2):
        clock.seconds += 100  # evaluation between epochs
        monitor.start_epoch()
        for number in range(2):
            clock.seconds += 5
            monitor.record_batch(a_batch(2 * epoch + number, per_task_loss={"T1": 1.0 + epoch, "T2": 0.5}))
        monitor.end_epoch(16, 2)
    first, second = monitor.epoch_metrics
    assert (first.epoch, second.epoch) == (0, 1)
    assert (first.per_task_avg_loss["T1"], second.per_task_avg_loss["T1"]) == (1, 2)
    assert first.per_task_samples == second.per_task_samples == {"T1": 12, "T2": 4}
    assert first.epoch_time_seconds == second.epoch_time_seconds == 10
    assert (first.peak_memory_mb, second.peak_memory_mb) == (101, 103)
    public = sum(metrics.per_task_samples["T1"] for metrics in (first, second))
    assert public != second.per_task_samples["T1"]


def test_epochs_nobody_began_or_ended(monitor: DynamicBatchingMonitor) -> None:
    monitor.record_batch(a_batch(0))
    monitor.start_epoch()  # ends the one before
    monitor.start_epoch()  # which held nothing
    monitor.record_batch(a_batch(1))
    metrics = monitor.end_epoch()
    assert [each.epoch for each in monitor.epoch_metrics] == [0, 2]
    assert (metrics.total_samples, metrics.total_batches) == (8, 1)
    with pytest.raises(InputError, match=r"no epoch has begun\n  Call start_epoch\(\) first"):
        monitor.end_epoch()


def test_batches_that_are_counted_anew_in_each_epoch_follow_each_other(monitor: DynamicBatchingMonitor) -> None:
    for _ in range(3):
        monitor.start_epoch()
        for number in range(4):
            monitor.record_batch(a_batch(number))
        monitor.end_epoch()
    assert monitor._history.position == 11
    assert monitor._history.epoch_positions == [0, 4, 8]


def test_a_report_of_the_run(monitor: DynamicBatchingMonitor) -> None:
    """A58, A62: with the names of the source."""
    for number in range(20):
        monitor.record_batch(a_batch(number, batch_size=8 + 2 * (number == 19), per_task_samples=None))
    monitor.end_epoch(162, 20)
    monitor.record_batch(a_batch(20, is_oom_recovery=True))
    report = monitor.generate_report()
    summary = report["summary"]
    assert (summary["total_epochs"], summary["total_batches"], summary["total_samples"]) == (1, 21, 170)
    assert (summary["training_start_time"], summary["training_end_time"]) == (1000.0, 1020.0)
    assert summary["oom_recoveries"] == 1
    assert report["loss_statistics"].keys() == {"min", "max", "mean", "std"}
    assert report["memory_statistics"].keys() == {"min_mb", "max_mb", "mean_mb", "std_mb"}
    assert report["throughput_statistics"]["mean_samples_per_sec"] == pytest.approx(40)
    assert report["batch_size_statistics"]["max"] == 10
    assert report["per_task_statistics"]["T1"]["samples"] == 8 * 4 + 11 * 4 + 5 + 6
    assert report["per_task_statistics"]["T1"]["loss_of_last_tenth_over_first"] < 0.1
    assert [epoch["total_batches"] for epoch in report["epoch_metrics"]] == [20, 1]


def test_nothing_recorded(monitor: DynamicBatchingMonitor) -> None:
    assert monitor.generate_report()["summary"]["total_batches"] == 0
    assert not monitor.folder.exists()
    for plot in (monitor.plot_training_curves, monitor.plot_task_comparison):
        with pytest.raises(InputError, match=r"nothing has been recorded yet\n  Call record_batch"):
            plot()
    monitor.close()


def test_a_batch_of_another_kind_is_refused(monitor: DynamicBatchingMonitor) -> None:
    with pytest.raises(InputError, match="record_batch takes BatchMetrics, got dict"):
        monitor.record_batch({"loss": 1.0})  # type: ignore[arg-type]


def test_a_failure_to_write_is_said_once_and_ends_nothing(
    monitor: DynamicBatchingMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    monitor.record_batch(a_batch(0))
    path = monitor.folder / "batch_metrics.jsonl"
    before = path.read_bytes()
    path.unlink()
    path.mkdir()
    monitor.record_batch(a_batch(1))
    monitor.record_batch(a_batch(2))
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        f"Writing metrics failed, and the training goes on; this is said once. IsADirectoryError: "
        f"[Errno 21] Is a directory: '{path}'"
    ]
    path.rmdir()
    path.write_bytes(before)
    monitor.record_batch(a_batch(3))
    assert [line["batch_idx"] for line in lines(path)] == [0, 1, 2, 3]


def test_without_matplotlib_files_are_written_all_the_same(
    monitor: DynamicBatchingMonitor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without: Callable[[str], None] = lambda name: None  # noqa: E731
    monkeypatch.setattr("trainauto.tasks.multitask.monitoring.monitor.find_spec", without)
    monitor.prepare()
    monitor.record_batch(a_batch(0))
    monitor.close()
    assert {path.name for path in monitor.folder.iterdir()} == {
        name for name in OUTPUTS - {"epoch_metrics.jsonl"} if not name.endswith(".png")
    }
    assert "Drawing failed" in caplog.text
    with pytest.raises(InputError, match=r"need matplotlib: pip install 'trainauto\[multitask\]'"):
        monitor.plot_training_curves()


def test_a_monitor_that_begins_a_second_run(tmp_path: Path) -> None:
    monitor = DynamicBatchingMonitor(tmp_path)
    monitor.record_batch(a_batch(0))
    monitor.close()
    monitor.begin_run()
    monitor.record_batch(a_batch(0))
    monitor.end_epoch()
    assert len(lines(tmp_path / "training_metrics" / "batch_metrics.jsonl")) == 1
    assert {path.name for path in (tmp_path / "training_metrics_1").iterdir()} >= {"tensorboard", "batch_metrics.json"}
    monitor._board.close()  # type: ignore[union-attr]


def test_pictures_that_show_all_there_is_are_not_drawn_again(monitor: DynamicBatchingMonitor) -> None:
    monitor.record_batch(a_batch(0))

    def drawn() -> list[int]:
        paths = (monitor.plot_training_curves(), monitor.plot_task_comparison())
        return [path.stat().st_ino for path in paths]

    first = drawn()
    assert drawn() == first
    monitor.end_epoch()
    second = drawn()
    assert all(before != after for before, after in zip(first, second, strict=True))
    (monitor.folder / "training_curves.png").unlink()
    assert drawn()[1] == second[1]
    assert (monitor.folder / "training_curves.png").exists()
