"""The sink that has a monitor note a run of the engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.builders import a_step, a_summary
from trainauto.core.decisions import Rollback
from trainauto.core.plan import BatchShape
from trainauto.core.records import PeakReading, Progress
from trainauto.core.run_events import RunEnd
from trainauto.core.units import MIB
from trainauto.tasks.multitask.monitoring.metrics_sink import MetricsSink, metrics_of
from trainauto.tasks.multitask.monitoring.monitor import DynamicBatchingMonitor

SAMPLES, A_STEP = 12, 4


class Run:
    """Tells a sink of steps."""

    def __init__(self, folder: Path, progress: Progress | None = None) -> None:
        self.monitor = DynamicBatchingMonitor(folder, tensorboard=False, clock=lambda: 0.0)
        self.sink = MetricsSink(self.monitor, SAMPLES, None, clock=lambda: 0.0)
        self.progress = progress or Progress()
        self.sink.start(a_summary(progress=self.progress))

    def steps(self, count: int) -> None:
        for _ in range(count):
            record = a_step(
                self.progress.steps + 1,
                shape=BatchShape(A_STEP, 1),
                task_losses={"even": 1.0, "odd": 2.0},
                task_samples={"even": 3, "odd": 1},
            )
            self.progress += record
            self.sink.step(record, (), self.progress)

    def end(self) -> None:
        self.sink.end(RunEnd("completed", "", self.progress, ""))
        self.sink.close()

    def epochs(self) -> list[tuple[int, int]]:
        lines = json.loads((self.monitor.folder / "epoch_metrics.json").read_text())
        return [(line["epoch"], line["total_batches"]) for line in lines]

    def batches(self) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = json.loads((self.monitor.folder / "batch_metrics.json").read_text())
        return lines


def test_epochs_end_with_the_step_that_completes_them_and_the_last_with_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.steps(3)
    assert [epoch.epoch for epoch in run.monitor.epoch_metrics] == [0]
    run.steps(4)
    run.end()
    assert run.epochs() == [(0, 3), (1, 3), (2, 1)]
    assert [line["epoch"] for line in run.batches()] == [0, 0, 0, 1, 1, 1, 2]
    assert run.batches()[0]["per_task_samples"] == {"even": 3, "odd": 1}


@pytest.fixture
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pictures of a run take half a second; test_pictures.py and test_monitor.py look at them.
    for drawing in ("_draw_curves", "_draw_comparison"):
        monkeypatch.setattr(DynamicBatchingMonitor, drawing, lambda monitor: None)


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize("at", [3, 4, 5, 6])
def test_a_resume_goes_on_in_the_files(tmp_path: Path, at: int) -> None:
    """At the end of an epoch and within one; what came after its checkpoint is cut off."""
    first = Run(tmp_path)
    first.steps(7)
    first.end()
    again = Run(tmp_path, Progress(steps=at, samples=at * A_STEP))
    again.steps(9 - at)
    again.end()
    assert again.epochs() == [(0, 3), (1, 3), (2, 3)]
    assert [line["batch_idx"] for line in again.batches()] == list(range(9))


@pytest.mark.usefixtures("_undrawn")
def test_steps_that_a_rollback_undoes_are_cut_off(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.steps(5)
    run.progress = Progress(steps=2, samples=2 * A_STEP)
    run.sink.rolled_back(a_summary(progress=run.progress), Rollback(5, 2, 1, 8, "it diverged"))
    run.steps(1)
    run.end()
    assert run.epochs() == [(0, 3)]
    assert len(run.batches()) == 3


def test_a_run_that_never_began_writes_nothing(tmp_path: Path) -> None:
    """One that is refused when it is built."""
    sink = MetricsSink(DynamicBatchingMonitor(tmp_path, tensorboard=False), SAMPLES, None)
    sink.close()
    assert not list(tmp_path.iterdir())


def test_figures_of_a_step() -> None:
    record = a_step(
        3,
        shape=BatchShape(samples=6, extent=8),
        losses={"loss": 0.75},
        ooms=1,
        peak=PeakReading(allocated=3 * MIB, reserved=5 * MIB),
        task_losses={"T1": 0.5, "T2": 1.5, "T9": 3.0},
        task_samples={"T1": 1, "T2": 2, "T3": 0},
    )
    metrics = metrics_of(record, 12.5)
    assert (metrics.batch_idx, metrics.timestamp, metrics.batch_size, metrics.loss) == (2, 12.5, 6, 0.75)
    assert metrics.per_task_loss == {"T1": 0.5, "T2": 1.5}
    assert metrics.per_task_samples == {"T1": 2, "T2": 4}  # counted on one rank of two
    assert metrics.task_types == ["T1", "T2"]
    assert (metrics.memory_allocated_mb, metrics.memory_reserved_mb, metrics.is_oom_recovery) == (3, 5, True)
    assert metrics.throughput_samples_per_sec == pytest.approx(6 / 0.2)
    assert (metrics.learning_rate, metrics.gradient_norm) == (2e-4, 1.25)


def test_a_step_of_which_little_is_known() -> None:
    metrics = metrics_of(a_step(peak=None, grad_norms={}, learning_rates={}), 0.0)
    assert (metrics.memory_allocated_mb, metrics.gradient_norm, metrics.learning_rate) == (None, None, None)
    assert metrics.samples_by_task == {}
