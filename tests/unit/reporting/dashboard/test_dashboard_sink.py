"""The page of a run is written as often as may cost 0.15 % of its time, and survives resumes."""

import errno
import itertools
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.reporting.builders import a_picture, a_progress, a_step, a_summary, a_validation
from trainauto.core.decisions import Stop
from trainauto.core.records import Progress
from trainauto.core.run_events import ImageArray, RunEnd
from trainauto.reporting.dashboard import dashboard_sink, pictures
from trainauto.reporting.dashboard.dashboard_sink import Dashboard
from trainauto.reporting.dashboard.page_file import page_in
from trainauto.reporting.default_sinks import default_sinks
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.reporter import Reporter
from trainauto.storage.run_directory import RunDirectory


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory.create(tmp_path, "demo")
    directory.write_config({"name": "demo", "scale": 2})
    return directory


@pytest.mark.parametrize(("cost_s", "pause_s"), [(0.15, 100.0), (0.001, 2.0)])
def test_the_page_waits_as_long_as_its_cost_asks(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, cost_s: float, pause_s: float
) -> None:
    clock, written_s = Clock(), []
    write = dashboard_sink.write_page

    def slow(*arguments: object) -> None:
        write(*arguments)
        written_s.append(clock.now_s)
        clock.now_s += cost_s

    monkeypatch.setattr(dashboard_sink, "write_page", slow)
    sink = Dashboard(run, clock=clock)
    sink.start(a_summary())
    for step in range(1, 2001):
        clock.now_s += 0.2
        sink.step(a_step(step), (), a_progress(step))
    pauses = [after - before - cost_s for before, after in itertools.pairwise(written_s)]
    assert min(pauses) >= pause_s - 1e-6
    assert max(pauses) <= pause_s + 0.2 + 1e-6
    assert cost_s * len(written_s) / (clock.now_s - 100) <= 0.003


def test_a_resumed_run_keeps_its_curves_and_pictures(run: RunDirectory) -> None:
    def train(first: int, last: int) -> None:
        with Reporter([JsonLines(run), Dashboard(run)]) as reporter:
            reporter.start(a_summary(progress=Progress(steps=first - 1)))
            for step in range(first, last + 1):
                reporter.step(a_step(step), (), a_progress(step))
                reporter.validation(a_validation(step), [a_picture()])
            reporter.end(RunEnd("interrupted", "Ctrl-C", a_progress(last)))

    train(1, 6)
    run.rewind(4)
    train(5, 8)
    page = page_in(run.dashboard)
    assert page["grid"] == list(range(1, 9))
    (pictures,) = [one for section in page["sections"] for one in section["blocks"] if one["type"] == "pictures"]
    assert pictures["sets"][0]["steps"] == list(range(1, 9))
    assert page["status"]["word"] == "interrupted"


def test_pictures_are_made_small_for_the_page_alone(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validations in quick succession cost what the page shows of them, and keep it from nothing."""
    clock, made, written = Clock(), [], []
    small, write = pictures.address_of, dashboard_sink.write_page

    def slow(image: ImageArray) -> str:
        made.append(1)
        clock.now_s += 0.02
        return small(image)

    monkeypatch.setattr(pictures, "address_of", slow)
    monkeypatch.setattr(dashboard_sink, "write_page", lambda *page: (written.append(clock.now_s), write(*page)))
    sink = Dashboard(run, clock=clock)
    sink.start(a_summary())
    for step in range(1, 2001):
        clock.now_s += 0.2
        sink.step(a_step(step), (), a_progress(step))
        if step % 10 == 0:
            sink.validation(a_validation(step), [a_picture()], ())
    assert len(written) > 5
    assert 0.02 * len(made) <= 0.003 * (clock.now_s - 100)


def test_a_full_disk_is_not_asked_at_every_step(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tried = Clock(), []
    sink = Dashboard(run, clock=clock)
    sink.start(a_summary())

    def full(*_: object) -> None:
        tried.append(clock.now_s)
        clock.now_s += 0.02
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(dashboard_sink, "write_page", full)
    for step in range(1, 101):
        clock.now_s += 0.2
        with suppress(OSError):  # the reporter catches it, and keeps the sink
            sink.step(a_step(step), (), a_progress(step))
    assert 1 <= len(tried) <= 3


def test_odd_names_of_pictures_end_no_page(run: RunDirectory) -> None:
    sink = Dashboard(run)
    sink.start(a_summary())
    names = ["../../up", "a\udce9b", "x" * 400, "\x1b[31m", "plain"]
    validated = a_validation(10, metrics={"psn\udce9r": 1.0}, baseline={})
    for name in ("plain", "\x1b[31m"):
        file = run.validation / "val" / name / "00000010.png"
        file.parent.mkdir(parents=True)
        file.touch()
    sink.validation(validated, [replace(a_picture(), name=name) for name in names], ())
    sink.step(a_step(11), (), a_progress(11))
    sink.end(RunEnd("completed", "done", a_progress(11)))
    (block,) = pictures.pictures_of(page_in(run.dashboard))
    assert [shown["files"] for shown in block["sets"]] == [[""]] * 4  # four sets at most: the plain one is the fifth


def test_a_log_that_cannot_be_read_leaves_a_page(run: RunDirectory) -> None:
    run.records.write_text('{"step": 2, "samples": 3}\n')
    sink = Dashboard(run)
    sink.start(a_summary(progress=a_progress(4)))
    sink.step(a_step(5), (), a_progress(5))
    sink.end(RunEnd("completed", "done", a_progress(5)))
    page = page_in(run.dashboard)
    assert page["grid"] == [5]
    assert "cannot be shown" in json.dumps(page)


def test_secrets_do_not_leave_with_the_page(run: RunDirectory) -> None:
    run.write_config(
        {"name": "demo", "logger": {"mlflow": {"tracking_uri": "http://me:p@ss1@host/x"}}, "api_key": "k3y"}
    )
    run.origin.write_text(json.dumps({"changed": [["api_key", "k3y", ""], ["scale", "2", "4"]]}))
    environment = {"command": "train.py --token t0k3n"}
    run.log_object.write_text(json.dumps({"about": {"environment": environment}}))
    sink = Dashboard(run)
    sink.start(a_summary())
    text = run.dashboard.read_text()
    assert not [secret for secret in ("ss1", "k3y", "t0k3n") if secret in text]
    assert "train.py --token" in text


def test_damaged_files_are_left_out(run: RunDirectory) -> None:
    run.log_object.write_text('{"about": [], "total": "many", "started": 5}')
    run.origin.write_text('{"changed": {"a": 1}}')
    sink = Dashboard(run)
    sink.start(a_summary())
    assert page_in(run.dashboard)["title"] == "demo"


def test_the_end_is_on_the_page(run: RunDirectory) -> None:
    sink = Dashboard(run)
    sink.start(a_summary())
    assert page_in(run.dashboard)["status"]["word"] == "running"
    sink.step(a_step(1), [Stop("enough")], a_progress(1))
    sink.end(RunEnd("stopped", "enough", a_progress(1)))
    page = page_in(run.dashboard)
    assert page["status"] == {"word": "stopped", "tone": "good", "text": "enough"}
    assert page["grid"] == [1]


def test_a_page_that_cannot_be_written_ends_no_run(run: RunDirectory, caplog: pytest.LogCaptureFixture) -> None:
    run.dashboard.mkdir()
    with Reporter(default_sinks(run, 10, tensorboard=False, console=False)) as reporter:
        reporter.start(a_summary())
        reporter.step(a_step(1), (), a_progress(1))
        reporter.end(RunEnd("completed", "done", a_progress(1)))
    assert len(run.records.read_text().splitlines()) == 1
    assert "Dashboard cannot write: Is a directory" in run.log.read_text()
