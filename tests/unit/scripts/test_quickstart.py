import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import quickstart
from environment import Environment

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
    *_, place, curves = capsys.readouterr().out.splitlines()
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
    ("arguments", "here", "rest"),
    [
        ([], False, []),
        (["--here"], True, []),
        (
            ["--force_yml", "a=1", "b:c=2", "--here", "--auto_resume"],
            True,
            ["--force_yml", "a=1", "b:c=2", "--auto_resume"],
        ),
        (["--her"], False, ["--her"]),
    ],
)
def test_arguments_that_are_not_ours_pass_through_in_order(arguments: list[str], here: bool, rest: list[str]):
    assert quickstart.split_arguments(arguments) == (here, rest)


@pytest.mark.parametrize(
    ("text", "rest", "folder"),
    [
        ("name: quick\n", [], "experiments/quick"),
        ("name: 'two words'  # why\n", [], "experiments/two words"),
        ("name: quick\n", ["--force_yml", "name=other"], "experiments/other"),
        ("name: quick\n", ["--force_yml", "path:experiments_root=runs"], "runs/quick"),
        ("a:\n  name: inner\nname: outer\n", [], "experiments/outer"),
        ("", [], "experiments/quickstart"),
    ],
)
def test_the_folder_of_the_experiment(tmp_path: Path, text: str, rest: list[str], folder: str):
    (tmp_path / "options" / "train").mkdir(parents=True)
    (tmp_path / quickstart.OPTION_FILE).write_text(text)
    assert quickstart.experiment_folder(rest, tmp_path) == tmp_path / folder


@pytest.mark.parametrize("kind", ["link", "text"])
def test_current_is_followed_as_a_link_and_as_a_text_file(tmp_path: Path, kind: str):
    (tmp_path / "20250101_000000").mkdir()
    if kind == "text":
        (tmp_path / "current").write_text("20250101_000000\n")
    else:
        try:
            (tmp_path / "current").symlink_to("20250101_000000", target_is_directory=True)
        except OSError:
            pytest.skip("links need privileges here")
    assert quickstart.latest_run(tmp_path) == (tmp_path / "20250101_000000").resolve()


def test_without_a_run_there_is_no_place_to_tell(tmp_path: Path):
    assert quickstart.latest_run(tmp_path) is None
    (tmp_path / "current").write_text("gone")
    assert quickstart.latest_run(tmp_path) is None


def record(*gains_db: float | str, mean: float | str | None = None) -> dict[str, Any]:
    """A validation in which bicubic has 30 dB everywhere; the mean is that of the gains unless given."""

    def scored(gain: float | str) -> dict[str, Any]:
        value = gain if isinstance(gain, str) else 30.0 + gain
        return {"metrics": {"psnr_y": value}, "bicubic": {"psnr_y": 30.0}}

    whole = mean if mean is not None else sum(gain for gain in gains_db if isinstance(gain, float)) / len(gains_db)
    return {**scored(whole), "step": 9, "scores": [{"name": f"p{i}", **scored(g)} for i, g in enumerate(gains_db)]}


@pytest.mark.parametrize(
    ("validation", "passed", "word"),
    [
        (record(2.0, 1.0, 0.5), True, "+1.17 dB"),
        (record(2.0, 0.0, 1.0), True, "+1.00 dB"),
        (record(0.9, 0.9, 0.9), False, "mean +0.90 dB"),
        (record(4.0, -0.25, 2.0), False, "p1 -0.25 dB"),
        (record(0.5, -0.5), False, "mean +0.00 dB, p1 -0.50 dB"),
        (record(2.0, "NaN", mean=2.0), False, "p1 +nan dB"),
        (record(2.0, mean="NaN"), False, "mean +nan dB"),
        ({**record(2.0), "scores": []}, False, "no photographs"),
        ({"step": 9}, False, "left no psnr_y"),
        (None, False, "left no psnr_y"),
    ],
)
def test_the_network_is_judged_by_bicubic(validation: dict[str, Any] | None, passed: bool, word: str):
    found, words = quickstart.judgement(validation)
    assert found is passed
    assert word in words
    assert ("FAILED" in words) is not passed
    assert "\n" not in words


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
    *lines, before, place, curves = capsys.readouterr().out.splitlines()
    assert "p0" in "".join(lines)
    assert place.startswith("The run is in")
    assert curves.startswith("Its curves")
    assert (f"quickstart: {line}" in before) if line else "PSNR-Y" not in before
