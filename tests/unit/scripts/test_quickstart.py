from pathlib import Path
from typing import Any

import pytest
import quickstart


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
    verdict, words = quickstart.judgement(validation)
    assert verdict is passed
    assert word in words
    assert ("FAILED" in words) is not passed
    assert "\n" not in words
