"""What is read from the files of a run is what was reported of it, also while they grow."""

import json
from pathlib import Path

import pytest

from tests.unit.reporting.builders import a_progress, a_step, a_validation
from trainauto.core.decisions import PlanChange
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.core.record_json import validation_to_dict
from trainauto.reporting.dashboard.run_history import About, RunHistory
from trainauto.reporting.dashboard.run_page import page_of
from trainauto.reporting.dashboard.run_reader import RunReader, read_run
from trainauto.reporting.jsonl import JsonLines
from trainauto.storage.run_directory import TRAINER_RUNS, RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory.create(tmp_path, "demo")
    directory.write_config({"name": "demo"})
    return directory


def shown(history: RunHistory) -> dict[str, object]:
    return page_of(history, About("demo", "here"), [], 0.0)


def report(run: RunDirectory, first: int, last: int) -> None:
    sink = JsonLines(run, clock=lambda: 5.0)
    for step in range(first, last + 1):
        decisions = [PlanChange(Plan.of(batch_size=5, lq_size=48), "room", early=True)] if step == 4 else []
        sink.step(a_step(step), decisions, a_progress(step))
        if step == 5:
            sink.validation(a_validation(step), (), ())
    sink.close()


def reported() -> RunHistory:
    history = RunHistory()
    for step in range(1, 8):
        if step == 4:
            history.decision(4, PlanChange(Plan.of(batch_size=5, lq_size=48), "room", early=True), 5.0)
        history.step(a_step(step), 5.0)
        if step == 5:
            history.validation({**validation_to_dict(a_validation(5)), "time": 5.0})
    history.status, history.reason = "completed", "done"
    return history


def test_files_tell_what_was_reported(run: RunDirectory) -> None:
    report(run, 1, 7)
    run.log_object.write_text(json.dumps({"status": "completed", "reason": "done"}))
    assert shown(read_run(run)) == shown(reported())


def test_files_that_grow_are_read_on(run: RunDirectory) -> None:
    run.log_object.write_text(json.dumps({"status": "completed", "reason": "done"}))
    reader = RunReader(run)
    assert reader.update()  # the status
    assert not reader.update()
    report(run, 1, 3)
    with run.records.open("ab") as file:
        file.write(b'{"step": 4, "half')
    assert reader.update()
    assert list(reader.history.curves.steps) == [1, 2, 3]
    assert not reader.update()
    run.rewind(3)  # as a resume does, which cuts what was half written
    report(run, 4, 7)
    assert reader.update()
    assert shown(reader.history) == shown(reported())


def test_a_run_that_went_back_is_read_anew(run: RunDirectory) -> None:
    """In the order of a resume: it takes the folder, loads its checkpoint, drops what came after, trains."""
    report(run, 1, 7)
    reader = RunReader(run)
    reader.update()
    (run.path / "owner_2.json").write_text("{}")
    reader.update()  # nothing has been dropped yet
    run.rewind(2)
    reader.update()
    assert list(reader.history.curves.steps) == [1, 2]
    run.log.write_text("2026-01-02 03:04:05,006 resumed     after step 2, 8 samples\n")
    sink = JsonLines(run)
    for step in range(3, 12):  # longer than before, so that no size tells
        sink.step(a_step(step, losses={"l1": 7.0}), (), a_progress(step))
    sink.close()
    assert reader.update()
    assert reader.history.curves.means("loss") == [0.5, 0.25, *[7] * 9]
    (event,) = [event for event in reader.history.events if event.kind == "resume"]
    assert event.step == 2


def test_starts_of_a_trainer_are_one_run_while_they_are_made(tmp_path: Path) -> None:
    outer = RunDirectory(tmp_path)
    first = RunDirectory.create(tmp_path, TRAINER_RUNS)
    first.write_config({"trainer": "MemoryAwareTrainer"})
    report(first, 1, 7)
    reader = RunReader(outer)
    reader.update()
    second = RunDirectory.create(tmp_path, TRAINER_RUNS)
    second.write_config({"trainer": "MemoryAwareTrainer"})
    reader.update()  # it has no steps yet
    assert list(reader.history.curves.steps) == list(range(1, 8))
    assert list(read_run(outer, until=4).curves.steps) == [1, 2, 3, 4]  # as its own page reads it: it resumes after 4
    report(second, 5, 6)
    assert reader.update()
    assert list(reader.history.curves.steps) == [1, 2, 3, 4, 5, 6]
    assert second.whole == outer
    assert second.dashboard == tmp_path / "dashboard.html"


def test_an_experiment_called_memory_has_its_own_page(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, TRAINER_RUNS)
    run.write_config({"name": "memory"})
    assert run.dashboard == run.path / "dashboard.html"


def test_lines_of_another_version_are_refused_in_words(run: RunDirectory) -> None:
    run.records.write_text('{"step": 1, "samples": 3}\n')
    with pytest.raises(InputError, match="entry 1 cannot be read: it lacks 'plan'"):
        read_run(run)
