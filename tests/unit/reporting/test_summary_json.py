import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.builders import a_progress, a_step, a_summary
from trainauto.core.run_events import RunEnd
from trainauto.reporting import summary_json
from trainauto.reporting.summary_json import SummaryJson


class Clock:
    now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


def train(sink: SummaryJson, clock: Clock, first: int, last: int, step_s: float = 2.0) -> None:
    for step in range(first, last + 1):
        clock.now_s += step_s
        sink.step(a_step(step, losses={"l1": 0.25, "gan": 0.5}), (), a_progress(step))


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_it_holds_an_entry_a_logging_step(tmp_path: Path) -> None:
    path, clock = tmp_path / "training_log.json", Clock()
    sink = SummaryJson(path, print_freq=100, clock=clock)
    sink.start(a_summary())
    assert read(path)["losses"] == []
    train(sink, clock, 1, 250)
    log = read(path)
    assert [entry["step"] for entry in log["losses"]] == [100, 200]
    assert log["losses"][0] == {"epoch": 0.5, "step": 100, "loss": 0.75, "lr": 0.0002, "time": 1_700_000_200.0}
    assert (log["name"], log["started"], log["status"]) == ("demo", "2023-11-14T22:13:20+00:00", "running")
    sink.end(RunEnd("completed", "all steps", a_progress(250)))
    assert (read(path)["status"], read(path)["step"]) == ("completed", 250)
    assert [entry["step"] for entry in read(path)["losses"]] == [100, 200, 250]


def test_a_run_shorter_than_a_logging_step_has_an_entry(tmp_path: Path) -> None:
    path, clock = tmp_path / "training_log.json", Clock()
    sink = SummaryJson(path, print_freq=10, clock=clock)
    sink.start(a_summary())
    train(sink, clock, 1, 3)
    sink.end(RunEnd("completed", "all steps", a_progress(3)))
    (entry,) = read(path)["losses"]
    assert (entry["step"], entry["loss"]) == (3, 0.75)


def test_it_is_written_at_most_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[Path] = []
    monkeypatch.setattr(summary_json, "write_text_atomically", lambda path, _: writes.append(path))
    clock = Clock()
    sink = SummaryJson(tmp_path / "training_log.json", print_freq=1, clock=clock)
    sink.start(a_summary())
    train(sink, clock, 1, 40, step_s=0.25)
    assert len(writes) == 1 + 10


def test_its_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary_json, "MOST_ENTRIES", 8)
    path, clock = tmp_path / "training_log.json", Clock()
    sink = SummaryJson(path, print_freq=1, clock=clock)
    sink.start(a_summary())
    train(sink, clock, 1, 30)
    log = read(path)
    assert [entry["step"] for entry in log["losses"]] == [4, 8, 12, 16, 20, 24, 28]
    assert log["stride"] == 4


def test_a_resumed_run_goes_on_where_the_checkpoint_was(tmp_path: Path) -> None:
    path, clock = tmp_path / "training_log.json", Clock()
    sink = SummaryJson(path, print_freq=10, clock=clock)
    sink.start(a_summary())
    train(sink, clock, 1, 40)
    started = read(path)["started"]
    resumed = SummaryJson(path, print_freq=10, clock=clock)
    resumed.start(a_summary(progress=a_progress(25)))
    train(resumed, clock, 26, 30)
    assert [entry["step"] for entry in read(path)["losses"]] == [10, 20, 30]
    assert read(path)["started"] == started


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_resumed_run_does_without_the_old_file(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "training_log.json"
    if content is not None:
        path.write_text(content)
    sink = SummaryJson(path, print_freq=10)
    sink.start(a_summary(progress=a_progress(25)))
    assert read(path)["step"] == 25


def test_epochs_are_unknown_without_a_training_set(tmp_path: Path) -> None:
    path, clock = tmp_path / "training_log.json", Clock()
    sink = SummaryJson(path, print_freq=1, clock=clock)
    sink.start(a_summary(samples={}, train_set=""))
    train(sink, clock, 1, 1)
    assert read(path)["losses"][0]["epoch"] is None
