"""Every reader of a run's files refuses a replaced or damaged file in one line."""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.builders import a_progress, a_step, a_validation
from trainauto.commands.replay import _run as replay
from trainauto.core.errors import InputError
from trainauto.core.json_text import count_of, from_json, read_lines, read_object, step_of_line
from trainauto.core.record_json import step_from_dict, step_to_dict
from trainauto.reporting.dashboard.live_page import LivePage
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.runs.figures import figures_of
from trainauto.reporting.runs.listing import list_runs
from trainauto.reporting.runs.memory_report import memory_report
from trainauto.storage.log_gaps import damaged_ends, last_step
from trainauto.storage.run_directory import RunDirectory, length_until

DEEP = '{"step": ' + "[" * 100_000 + "]" * 100_000 + "}"
LOGS = ("training_log.jsonl", "decisions.jsonl", "validation.jsonl")
FILES = (*LOGS, "training_log.json", "config.json", "origin.json", "given.yml", "foresight.json", "accuracy.json")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory.create(tmp_path, "demo")
    directory.write_config({"name": "demo"})
    sink = JsonLines(directory)
    for step in (1, 2):
        sink.step(a_step(step), (), a_progress(step))
    sink.validation(a_validation(2), (), ())
    sink.close()
    return directory


def replayed(run: RunDirectory) -> None:
    replay(argparse.Namespace(run=run.path, until=None, force_yml=[]))


READERS: tuple[Callable[[RunDirectory], object], ...] = (
    memory_report,
    figures_of,
    lambda run: LivePage([run]).page(),
    lambda run: LivePage([run, run]).page(),
    lambda run: list_runs([run.path.parent]),
    replayed,
)


def refusals(run: RunDirectory) -> list[str]:
    """Return what readers say; anything but a refusal in words fails."""
    said = []
    for read in READERS:
        try:
            read(run)
        except InputError as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none(run: RunDirectory, name: str) -> None:
    file = run.path / name
    for make in (os.mkfifo, os.mkdir):
        file.unlink(missing_ok=True)
        make(file)
        said = refusals(run)
        assert name not in LOGS or any(f"{file} is no file" in words for words in said)


@pytest.mark.parametrize("name", FILES)
def test_json_that_is_deep(run: RunDirectory, name: str) -> None:
    file = run.path / name
    for text in (DEEP, '{"a": ' * 500 + "1" + "}" * 500, "[]", '"text"', "1e999"):
        file.write_text(text + "\n")
        refusals(run)
    with pytest.raises(ValueError, match="nested too deeply"):
        from_json(DEEP)
    assert from_json(json.dumps([[{}]] * 200)) == [[{}]] * 200


@pytest.mark.parametrize(
    "change",
    [
        *({"step": value} for value in (1e300, 10**400, "2", None, True, -1, 1.5, [], float("nan"))),
        *({"samples": value} for value in (1e300, "x", 0)),
        *({"step_s": value} for value in ("x", 1e300, "NaN", [])),
        *({"peak": value} for value in ({"allocated": "x"}, {"allocated": 1e300}, {"others": 1}, "x")),
        *({"plan": value} for value in ({"lq_size": 1e300}, {"lq_size": "x"}, [])),
        {"losses": {"l1loss": 10**400}},
        {"units": 10**400},
        {"ooms": "x"},
    ],
)
def test_a_step_that_is_none(run: RunDirectory, change: dict[str, Any]) -> None:
    line = {**step_to_dict(a_step(3)), **change}
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError, OverflowError)):
        step_from_dict(line)
    for name in LOGS:
        before = (run.path / name).read_text() if (run.path / name).exists() else ""
        (run.path / name).write_text(before + json.dumps(line) + "\n")
        said = refusals(run)
        assert name != LOGS[0] or any("cannot be read" in words for words in said)
        (run.path / name).write_text(before)


def test_ends_of_logs(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "pipe").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "pipe")
    for reading in (last_step, lambda path: length_until(path, 1), lambda path: list(read_lines(path))):
        for path in (tmp_path, tmp_path / "pipe"):
            with pytest.raises(InputError, match="is no file"):
                reading(path)
    assert read_object(tmp_path / "pipe") == {}
    assert damaged_ends(run) == []
    assert step_of_line(b'{"step": 1e300}') is None
    assert step_of_line(b'{"step": 7}') == count_of(7.0) == 7
