from pathlib import Path
from typing import Any

import pytest

from tests.unit.tasks.multitask.monitoring.made_batches import a_batch
from trainauto.tasks.multitask.monitoring.batch_sums import BatchSums
from trainauto.tasks.multitask.monitoring.metrics_board import BATCHES_A_POINT, SINGLE_POINTS, MetricsBoard


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()


def points(events: Any, tag: str) -> list[tuple[int, Any]]:
    return [(event.step, pytest.approx(event.value, rel=1e-5)) for event in events.Scalars(tag)]


def test_the_figures_of_each_batch(tmp_path: Path) -> None:
    """Part 7: the same figures as in the files."""
    board = MetricsBoard(tmp_path)
    for number in range(3):
        board.batch(number, a_batch(number))
    board.close()
    board.close()
    events = read(tmp_path)
    assert points(events, "loss/all_tasks") == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    assert points(events, "loss_by_task/T1") == [(0, 2.0), (1, 1.0), (2, 2 / 3)]
    assert points(events, "memory/allocated_mib") == [(0, 100.0), (1, 101.0), (2, 102.0)]
    assert points(events, "share_of_samples/T2") == [(0, 0.25), (1, 0.25), (2, 0.25)]


def test_epochs_stand_at_their_last_batch(tmp_path: Path) -> None:
    sums = BatchSums()
    sums.add(a_batch(7, is_oom_recovery=True))
    board = MetricsBoard(tmp_path)
    board.epoch(7, sums.as_epoch(1, 2.0))
    board.close()
    events = read(tmp_path)
    assert points(events, "epoch/avg_loss") == [(7, 0.125)]
    assert points(events, "epoch/peak_memory_mib") == [(7, 107.0)]
    assert points(events, "epoch/oom_recoveries") == [(7, 1.0)]
    assert points(events, "epoch_loss_by_task/T2") == [(7, 0.5)]
    assert points(events, "epoch_samples_by_task/T1") == [(7, 6.0)]


def test_later_batches_share_points(tmp_path: Path) -> None:
    board = MetricsBoard(tmp_path)
    for number in range(SINGLE_POINTS, SINGLE_POINTS + BATCHES_A_POINT + 1):
        board.batch(number, a_batch(number, loss=float(number)))
    board.close()
    first = SINGLE_POINTS + BATCHES_A_POINT - 1
    assert points(read(tmp_path), "loss/all_tasks") == [(first, SINGLE_POINTS + 4.5), (first + 1, first + 1)]


def test_a_resume_hides_what_is_trained_again(tmp_path: Path) -> None:
    for start, loss in ((0, 1.0), (2, 5.0)):
        board = MetricsBoard(tmp_path)
        board.resume_at(start)
        for number in range(start, 4):
            board.batch(number, a_batch(number, loss=loss))
        board.close()
    assert points(read(tmp_path), "loss/all_tasks") == [(0, 1.0), (1, 1.0), (2, 5.0), (3, 5.0)]


def test_curves_of_a_run_get_what_they_lack(tmp_path: Path) -> None:
    """No event file of its own, and no figure under two names; steps of runs count from 1."""
    given: list[tuple[int, dict[str, float]]] = []
    board = MetricsBoard(tmp_path)
    board.share(lambda figures, step: given.append((step, dict(figures))))
    board.batch(0, a_batch(0))
    sums = BatchSums()
    sums.add(a_batch(0))
    board.epoch(0, sums.as_epoch(0, 2.0))
    board.close()
    (step, of_batch), (step_of_epoch, of_epoch) = given
    assert (step, step_of_epoch) == (1, 1)
    of_tasks = {f"{figure}/{task}" for figure in ("loss_by_task", "share_of_samples") for task in ("T1", "T2")}
    assert set(of_batch) == of_tasks | {"batch/samples"}
    assert {"epoch/avg_loss", "epoch_loss_by_task/T1", "epoch_samples_by_task/T2"} <= set(of_epoch)
    assert not list(tmp_path.iterdir())


def test_a_figure_after_the_end_has_a_file_of_its_own(tmp_path: Path) -> None:
    board = MetricsBoard(tmp_path)
    for number in range(2):
        board.batch(number, a_batch(number))
        board.close()
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    assert len(points(read(tmp_path), "loss/all_tasks")) == 2
