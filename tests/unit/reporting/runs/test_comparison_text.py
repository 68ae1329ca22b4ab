"""A comparison of runs as people and machines read it."""

import json
import math
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from trainauto.reporting.runs.comparison import compare
from trainauto.reporting.runs.comparison_text import as_json, as_text
from trainauto.reporting.runs.figures import RunFigures
from trainauto.reporting.runs.validation_totals import Metric, Value

MIB = 2**20
SMALL = RunFigures(
    "/experiments/small/20260101_101010",
    {"name": "small", "train.lr": 0.001, "datasets.val.dataroot_gt": "a"},
    status="completed",
    reason="training finished",
    steps=100,
    total=100,
    samples=400,
    seconds=75.0,
    learning_rates={"g": 1e-3},
    training_loss=0.02345678,
    memory_bytes=50 * MIB,
    metrics=[Metric("val", "psnr", True, Value(28.0, 100), Value(29.5, 80))],
)
LARGE = RunFigures(
    "/experiments/large/20260102_101010",
    {"name": "large", "train.lr": 0.002, "train.decay": 0.1, "datasets.val.dataroot_gt": "a"},
    status="killed",
    reason="its process ended without writing why; last step 2026-01-02 11:00:00",
    steps=90,
    total=1000,
    unit="samples",
    samples=720,
    seconds=7500.0,
    learning_rates={"g": 2e-3},
    ooms=2,
    memory_bytes=90 * MIB,
    limit_bytes=100 * MIB,
    metrics=[Metric("val", "psnr", True, Value(29.0, 90), Value(29.0, 90))],
)


def words_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_two_runs() -> None:
    assert as_text(compare([SMALL, LARGE])).splitlines() == [
        "2 runs compared; - stands where a run has none",
        "  small  /experiments/small/20260101_101010",
        "  large  /experiments/large/20260102_101010",
        "",
        "options that differ",
        "                                  small      large",
        "  train.lr                        0.001      0.002",
        "  train.decay                         -        0.1",
        "",
        "how they went",
        "                                  small      large",
        "  status                      completed     killed",
        "  of its length                    100%        72%",
        "  steps                             100         90",
        "  samples trained                   400        720",
        "  time trained                    1m15s      2h05m",
        "  learning rate                   0.001      0.002",
        "  training loss                 0.02346          -",
        "  out of memory                       0          2",
        "  memory peak                  50.0 MiB   90.0 MiB",
        "  of its limit                        -        90%",
        "large: its process ended without writing why; last step 2026-01-02 11:00:00",
        "",
        "validation: the last value of each metric, and the best; * the best run",
        "                                  small      large",
        "  val psnr, higher is better    28.0000  * 29.0000",
        "  val psnr, best              * 29.5000    29.0000",
        "  val psnr, best after step          80         90",
    ]


def test_runs_with_the_same_options_and_no_validation() -> None:
    alike = RunFigures("/experiments/alike/20260103_101010", {**SMALL.options, "name": "alike"})
    blocks = as_text(compare([RunFigures(SMALL.path, SMALL.options), alike])).split("\n\n")
    assert blocks[1] == "no option differs"
    assert blocks[3] == "no run was validated yet"


def test_figures_that_only_some_runs_have_get_a_line_where_one_has_them() -> None:
    gan = RunFigures(
        "/experiments/gan/20260103_101010",
        {"datasets.val.dataroot_gt": "b"},
        learning_rates={"g": 1e-4, "d": 2e-4},
        validation_ooms=3,
        metrics=[
            Metric("val", "psnr", True, Value(27.0, 90), Value(27.0, 90)),
            Metric("val", "own", None, Value(12345.678, 90)),
            Metric("val", "lpips", False, Value(0.0001234), None),
        ],
    )
    text = as_text(compare([SMALL, gan]))
    words = words_of(text)
    assert ["learning", "rate", "of", "g", "0.001", "0.0001"] in words
    assert ["learning", "rate", "of", "d", "-", "0.0002"] in words
    assert ["out", "of", "memory,", "validation", "0", "3"] in words
    assert ["val", "own", "-", "1.235e+04"] in words  # nobody knows what is better
    assert ["val", "lpips,", "lower", "is", "better", "-", "0.0001234"] in words
    assert "options of val or of its metrics differ, see above" in text


@pytest.mark.parametrize("runs", range(2, 9))
def test_no_line_above_80_columns(runs: int, tmp_path: Path) -> None:
    compared = []
    for number in range(runs):
        path = tmp_path / "experiments" / f"an_experiment_of_a_long_name_{number}" / "20260101_101010"
        options: dict[str, Any] = {
            "datasets.train.dataroot_gt": [f"/data/{'photographs/' * 9}{number}", "more"],
            f"training_automations.DynamicBatchSizeOptimizer.{'max_' * 12}{number}": 4,
            "path.text": f"two\nlines {number}",
        }
        name = "a_metric_of_a_rather_long_name"
        metric = Metric("Urban100_validation", name, True, Value(-1234.56789 - number, 10**6), Value(number / 1e9, 1))
        long = {"status": "interrupted", "reason": "words " * 30, "samples": 10**9, "training_loss": math.nan}
        compared.append(RunFigures(str(path), options, learning_rates={"g": 1.23456e-7}, metrics=[metric], **long))
    with chdir(tmp_path):
        lines = as_text(compare(compared)).splitlines()
    assert all(len(line) <= 80 for line in lines), [line for line in lines if len(line) > 80]
    (tmp_path / "elsewhere").mkdir()
    with chdir(tmp_path / "elsewhere"):
        lines = as_text(compare(compared)).splitlines()
    assert {run.path for run in compared} <= {line.strip() for line in lines}  # paths stay whole, to be copied
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line)


def test_json_says_the_same_with_whole_values() -> None:
    found = json.loads(as_json(compare([SMALL, LARGE])))
    assert [(run["name"], run["path"]) for run in found["runs"]] == [("small", SMALL.path), ("large", LARGE.path)]
    assert [run["status"] for run in found["runs"]] == ["completed", "killed"]
    assert (found["runs"][0]["training_loss"], found["runs"][1]["training_loss"]) == (0.02345678, None)
    assert found["runs"][1]["limit_bytes"] == 100 * MIB
    assert "options" not in found["runs"][0]
    assert found["options"] == {"train.lr": [0.001, 0.002], "train.decay": [None, 0.1]}
    (metric,) = found["metrics"]
    assert metric["last"] == [
        {"value": 28.0, "step": 100, "baseline": None},
        {"value": 29.0, "step": 90, "baseline": None},
    ]
    assert (metric["best_last"], metric["best_best"], metric["better_is_higher"]) == (["large"], ["small"], True)
