"""Which runs there are below a folder, and how a listing of them reads."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.builders import a_progress, a_step, a_summary, a_validation
from trainauto.cli import main
from trainauto.core.errors import InputError
from trainauto.core.run_events import RunEnd
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.runs.listing import is_folder_of_runs, list_runs
from trainauto.reporting.runs.listing_text import as_json, as_text
from trainauto.reporting.summary_json import SummaryJson
from trainauto.storage.run_directory import RunDirectory

DONE = RunEnd("completed", "all steps", a_progress(4))
NETWORK = {"network_g": {"type": "compact"}}


def a_run(path: Path, started: float, end: RunEnd | None = DONE, steps: int = 4, **config: Any) -> RunDirectory:
    path.mkdir(parents=True)
    run = RunDirectory(path)
    run.write_config({"name": path.parent.name, **config})
    sinks = [JsonLines(run), SummaryJson(run.log_object, 2, clock=lambda: started)]
    for sink in sinks:
        sink.start(a_summary(total=4))
        for step in range(1, steps + 1):
            sink.step(a_step(step, ooms=int(step == 3)), (), a_progress(step))
        if end is not None:
            sink.end(end)
    for step in (2, 4):
        sinks[0].validation(a_validation(step, metrics={"psnr": 30.0 - step}, baseline={}), (), ())
    for sink in sinks:
        sink.close()
    return run


@pytest.fixture
def experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six runs of four experiments, in the order of their start, and folders that are none."""
    root = tmp_path / "experiments"
    a_run(root / "old" / "20250101_000000", 1.6e9, **NETWORK)
    a_run(root / "old" / "20250301_000000", 1.9e9, end=None, steps=3, **NETWORK)
    a_run(root / "tasks" / "20250102_000000" / "memory" / "20250102_000001", 1.7e9)
    tasks = RunDirectory(root / "tasks" / "20250102_000000")
    tasks.write_config({"task": "multitask", "model": {"type": "Digits"}})
    (tasks.path / "accuracy.json").write_text('{"val": {"T1": 0.5}}')
    a_run(root / "trainer" / "memory" / "20250103_000000", 1.8e9)
    a_run(root / "loop" / "renamed", 1.5e9, end=RunEnd("failed", "disk full", a_progress(4)))
    half = root / "old" / "20250101_000001"
    (half / "validation").mkdir(parents=True)
    (root / "old" / "tb" / "20250101_000000").mkdir(parents=True)
    (root / "loop" / "model").mkdir()
    (root / "loop" / "model" / "config.json").write_text('{"model_type": "gpt2"}')
    monkeypatch.chdir(tmp_path)
    return Path("experiments")


def test_runs_of_every_kind_are_found_the_newest_first(experiments: Path) -> None:
    runs = list_runs([experiments])
    assert [str(run.path.relative_to(experiments)) for run in runs] == [
        "old/20250301_000000",
        "trainer/memory/20250103_000000",
        "tasks/20250102_000000",
        "old/20250101_000001",
        "old/20250101_000000",
        "loop/renamed",
    ]
    by_name = {run.path.name: run for run in runs}
    assert by_name["20250101_000000"].trains == "compact"
    assert by_name["20250102_000000"].trains == "multitask, Digits"
    figures = by_name["20250102_000000"].figures
    assert figures is not None
    assert [(metric.name, metric.last.value) for metric in figures.metrics] == [("psnr", 26.0), ("accuracy T1", 0.5)]
    assert by_name["20250101_000001"].problem.startswith("nothing is written yet")


def test_experiments_may_be_called_like_folders_of_a_run(experiments: Path) -> None:
    names = ["checkpoints", "model", "tb", "training_metrics", "validation"]
    for number, name in enumerate(names):
        a_run(experiments / name / f"20260101_00000{number}", 3e9)
        a_run(experiments / "group" / name / f"20260102_00000{number}", 2e9)
    found = {run.path.parent.relative_to(experiments).as_posix() for run in list_runs([experiments])}
    assert {*names, *(f"group/{name}" for name in names)} <= found


def test_what_lies_beside_runs_is_none(experiments: Path) -> None:
    output = experiments / "trainer"
    (experiments / "old" / "validation" / "20250101_000000").mkdir(parents=True)
    (output / "memory" / "tb" / "20250103_000000").mkdir(parents=True)
    (experiments / "old" / "20250101_000000" / "tb" / "20250101_000000").mkdir(parents=True)
    (experiments / "gone" / "tb" / "20250101_000000").mkdir(parents=True)
    (experiments / "gone" / "current").symlink_to("20250101_000000")  # its runs were deleted
    assert len(list_runs([experiments])) == 6
    with pytest.raises(InputError, match="has no runs below it"):
        list_runs([experiments / "old" / "20250101_000000"])


def test_a_listing_fits_80_columns_and_says_how_to_go_on(experiments: Path) -> None:
    text = as_text(list_runs([experiments]))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("6 runs of 4 experiments, the newest first; ")
    assert lines[-1] == "    python -m trainauto report experiments/old/20250301_000000"
    (old,) = [number for number, line in enumerate(lines) if line == "experiments/old  (compact)"]
    assert [line.split() for line in lines[old + 1 : old + 4] if "nothing" not in line] == [
        ["20250301_000000", "no", "end", "3", "75%", "psnr", "28", "@2", "25%", "1", "0.6s"],
        ["20250101_000000", "completed", "4", "100%", "psnr", "28", "@2", "25%", "1", "0.8s"],
    ]
    assert any(line.startswith("  20250101_000001") and "nothing is written yet" in line for line in lines)


def test_a_listing_as_json(experiments: Path) -> None:
    runs = json.loads(as_json(list_runs([experiments])))["runs"]
    (failed,) = [run for run in runs if run["path"] == "experiments/loop/renamed"]
    assert (failed["status"], failed["reason"], failed["samples"], failed["ooms"]) == ("failed", "disk full", 16, 1)
    assert failed["metrics"][0]["best"] == {"value": 28.0, "step": 2, "baseline": None}
    assert "problem" not in failed
    assert sum("problem" in run for run in runs) == 1


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("training_log.json", '{"step": 4, "totals": [1, 2], "total": "many", "losses": 5, "started": 7}'),
        ("training_log.json", '{"status": "\\u001b[31m", "total": "Infinity"}'),
        ("training_log.jsonl", '{"step": "x"}\n'),
        ("training_log.jsonl", "\0\0\0"),
        ("validation.jsonl", '{"dataset": "val", "step": "x", "metrics": {"psnr": "high"}}\n'),
        ("validation.jsonl", '{"dataset": "val", "metrics": [1]}\n'),
        ("config.json", "[" * 5000),
        ("config.json", "{"),
        ("accuracy.json", '{"val": {"T1": "all"}}'),
    ],
)
def test_a_damaged_run_is_a_row(experiments: Path, file: str, content: str) -> None:
    damaged = experiments / "old" / "20250301_000000"
    (damaged / file).write_text(content)
    if file == "training_log.jsonl":
        (damaged / "training_log.json").unlink()
    runs = list_runs([experiments])
    assert len(runs) == 6
    text = as_text(runs)
    assert "  20250301_000000" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    json.loads(as_json(runs))


@pytest.mark.skipif(sys.platform == "win32" or not hasattr(os, "geteuid"), reason="permissions of POSIX")
def test_a_folder_that_is_closed_is_passed_over(experiments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def closed(path: Path) -> Any:
        if Path(path).name == "loop":
            raise PermissionError(13, "closed", str(path))
        return scan(path)

    monkeypatch.setattr("trainauto.reporting.runs.listing.os.scandir", closed)  # root may read everything
    assert len(list_runs([experiments])) == 5


def test_names_that_would_act_on_a_terminal_are_shown(experiments: Path) -> None:
    a_run(experiments / "\x1b[31mred\n\u202e" / "20250401_000000", 2.0e9)
    a_run(experiments / ("long" * 60) / ("long" * 60), 2.1e9, model={"type": "\x1b]0;title\x07"})
    lines = as_text(list_runs([experiments])).splitlines()
    assert r"experiments/\x1b[31mred\n\u202e" in lines
    assert max(map(len, lines[:-1])) <= 80
    assert "\x1b" not in "".join(lines)


def test_a_terminal_without_the_letters_of_a_name_gets_their_numbers(
    experiments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(experiments / "\N{ROCKET}" / "20250401_000000", 2.0e9)
    printed = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(printed, encoding="ascii"))
    assert main(["report", str(experiments)]) == 0
    assert rb"experiments/\U0001f680" in printed.getvalue()


def test_what_is_a_folder_of_runs(experiments: Path) -> None:
    assert is_folder_of_runs(experiments)
    assert is_folder_of_runs(experiments / "old")  # nothing there leads to the newest
    assert not is_folder_of_runs(experiments / "old" / "20250301_000000")
    assert not is_folder_of_runs(experiments / "loop" / "model")
    assert not is_folder_of_runs(experiments / "lost")
    (experiments / "old" / "current").symlink_to("20250301_000000")
    assert not is_folder_of_runs(experiments / "old")
    for path, words in (
        (experiments / "lost", "is no folder"),
        (experiments / "loop" / "model", "has no runs below it"),
    ):
        with pytest.raises(InputError, match=words):
            list_runs([path])


def test_the_command_lists_and_says_that_there_are_more(experiments: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (experiments / "old" / "current").symlink_to("20250301_000000")
    assert main(["report", str(experiments)]) == 0
    assert capsys.readouterr().out.startswith("6 runs of 4 experiments")
    assert main(["report", str(experiments / "old")]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == (
        "the newest of 3 runs; all of them: python -m trainauto report experiments/old --list"
    )
    assert main(["report", str(experiments / "old"), "--list"]) == 0
    assert capsys.readouterr().out.startswith("3 runs, the newest first")
    assert main(["report", str(experiments / "old"), str(experiments / "loop"), "--list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 4
    assert main(["report", str(experiments), "--list", "--html"]) == 2
    assert "--list prints a table" in capsys.readouterr().err
