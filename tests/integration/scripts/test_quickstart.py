import json
import os
import shlex
import sys
from pathlib import Path

import pytest
import quickstart
from environment import Environment

from tests.unit.scripts.test_quickstart import record

TRAIN = """
import pathlib, sys
run = pathlib.Path("experiments/a name/20250101_000000")
if "fail-early" in sys.argv:
    sys.exit(2)
run.mkdir(parents=True)
(run.parent / "tb" / run.name).mkdir(parents=True)
(run.parent / "current").write_text(run.name + "\\n")
(run / "arguments").write_text("\\n".join(sys.argv[1:]))
if pathlib.Path("validation.jsonl").exists():
    pathlib.Path("validation.jsonl").rename(run / "validation.jsonl")
sys.exit(130 if "stopped" in sys.argv else 7 if "fail-late" in sys.argv else 0)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose train.py makes a run directory and nothing else; we stand elsewhere."""
    root = tmp_path / "the project"
    (root / "options" / "train").mkdir(parents=True)
    (root / quickstart.OPTION_FILE).write_text("# first\nname: a name  # of the folder\nscale: 4\n")
    (root / "train.py").write_text(TRAIN)
    monkeypatch.setattr(quickstart, "ROOT", root)
    monkeypatch.setattr(quickstart.experiment_folder, "__defaults__", (root,))
    monkeypatch.setattr(quickstart, "exit_on_sigterm", lambda: None)
    monkeypatch.setattr(
        quickstart, "prepare_or_exit", lambda here: Environment(Path(sys.executable), {**os.environ, "HERE": str(here)})
    )
    monkeypatch.chdir(tmp_path)
    return root


def test_a_run_ends_with_its_place_and_the_command_that_shows_its_curves(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    assert quickstart.main(["--force_yml", "train:total_iter=50", "-x"]) == 0
    run = project / "experiments" / "a name" / "20250101_000000"
    passed = (run / "arguments").read_text().splitlines()
    assert passed == ["-opt", str(quickstart.OPTION_FILE), "--force_yml", "train:total_iter=50", "-x"]
    *_, place, page, curves = capsys.readouterr().out.splitlines()
    assert f"{run.relative_to(project.parent)}/dashboard.html (" in page
    assert place.split("  ")[-1].strip() == str(run.relative_to(project.parent))
    experiments = shlex.quote(str(run.relative_to(project.parent).parents[1]))
    assert curves.endswith(f"-m tensorboard.main --logdir {experiments}")


def test_exit_codes_come_back_with_the_place_of_the_run_if_there_is_one(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    assert quickstart.main(["fail-early"]) == 2
    assert "no run was made (exit code 2)" in capsys.readouterr().out
    assert quickstart.main(["fail-late"]) == 7
    out = capsys.readouterr().out
    assert "exit code 7" in out
    assert "20250101_000000" in out


def test_a_run_that_was_stopped_says_how_to_resume(project: Path, capsys: pytest.CaptureFixture[str]):
    assert quickstart.main(["stopped", "--force_yml", "train:total_iter=50"]) == 130
    out = capsys.readouterr().out
    assert "quickstart.py --auto_resume stopped --force_yml train:total_iter=50\n" in out
    assert (project / "experiments" / "a name" / "20250101_000000").is_dir()


def test_the_run_of_an_earlier_call_is_not_taken_for_this_one(project: Path, capsys: pytest.CaptureFixture[str]):
    quickstart.main([])
    run = project / "experiments" / "a name" / "20250101_000000"
    for path in (run / "arguments", run):
        os.utime(path, (1e9, 1e9))
    capsys.readouterr()
    quickstart.main(["fail-early"])
    assert "no run was made" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "gain", "code", "line"),
    [
        ([], 1.5, 0, "passed"),
        ([], 0.5, 1, "FAILED"),
        (["--auto_resume"], 0.5, 1, "FAILED"),
        (["--force_yml", "train:total_iter=3"], 0.5, 0, None),
        (["fail-late"], 0.5, 7, None),
    ],
)
def test_only_a_run_of_its_own_length_is_judged(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], gain: float, code: int, line: str | None
):
    (project / "validation.jsonl").write_text(json.dumps(record(gain)) + "\n")
    assert quickstart.main(arguments) == code
    *lines, before, place, page, curves = capsys.readouterr().out.splitlines()
    assert "p0" in "".join(lines)
    assert place.startswith("The run is in")
    assert "dashboard.html" in page
    assert curves.startswith("Its curves")
    assert (f"quickstart: {line}" in before) if line else "PSNR-Y" not in before
