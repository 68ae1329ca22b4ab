"""What whole runs say about time and quality is read from their logs; here the logs are made up."""

import json
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "scripts" / "bench"))

from time_to_quality import VARIANTS, Cell, cells, options_of  # noqa: E402
from time_to_quality_table import curve_of, figures_of, gain_at, grouped, of_scaling, page, reached, spread  # noqa: E402

CURVE = [[10.0, 100, -1.0], [20.0, 200, 0.5], [30.0, 300, 0.3], [40.0, 400, 1.3]]
FACTS = {"command": "c", "date": "d", "machine": "m", "python": "3", "torch": "2", "samples": 400, "note": ""}
MIB = 2**20


def step(number: int, samples: int = 4, peak_mib: int = 10) -> dict[str, Any]:
    return {
        "step": number,
        "samples": samples,
        "units": samples * 64**2,
        "plan": {"batch_size": samples, "lq_size": 32, "micro_batches": 1},
        "data_s": 0.5,
        "step_s": 1.5,
        "peak": {"allocated": peak_mib * MIB, "limit": 64 * MIB},
        "ooms": 0,
    }


def validation(number: int, gain_db: float) -> dict[str, Any]:
    metrics = {"psnr_y": 30.0 + gain_db, "ssim_y": 0.9}
    return {"step": number, "metrics": metrics, "bicubic": {"psnr_y": 30.0, "ssim_y": 0.8}, "seconds": 7.0}


def run(
    variant: str, scaling: str = "none", seed: int = 1, factor: float = 1.0, more_db: float = 0.0
) -> dict[str, Any]:
    """Return a result whose curve takes ``factor`` times as long and ends higher."""
    curve = [[seconds * factor, samples, gain + more_db] for seconds, samples, gain in CURVE]
    return {
        "variant": variant,
        "scaling": scaling,
        "seed": seed,
        "samples": 400,
        "trained_samples": 400,
        "seconds": 40.0 * factor,
        "steps": 100,
        "steps_per_s": 2.5 / factor,
        "mpixels_per_s": 0.3,
        "plan": "4x32",
        "held_steps": 100,
        "peak_share": 0.2,
        "ooms": 0,
        "validation_s": 5.0,
        "wall_s": 60.0,
        "load": 1.0,
        "gain_db": curve[-1][2],
        "curve": curve,
    }


def test_validation_takes_no_time_on_the_axis() -> None:
    steps = [step(1), step(2), step(3, samples=12), step(4, samples=12, peak_mib=48)]
    curve = curve_of(steps, [validation(2, -0.5), validation(4, 0.25)])
    assert curve == [[4.0, 8, -0.5], [8.0, 32, 0.25]]


def test_figures_of_a_run() -> None:
    steps = [step(1), step(2), step(3, samples=12), step(4, samples=12, peak_mib=48), step(5, samples=12)]
    config = {"train": {"total_samples": 44, "lr_scaling": "sqrt"}}
    figures = figures_of(steps, [validation(5, 0.25)], config)
    assert (figures["plan"], figures["held_steps"], figures["trained_samples"], figures["seconds"]) == (
        "12x32",
        3,
        44,
        10.0,
    )
    assert figures["peak_share"] == 0.75
    assert figures["mpixels_per_s"] == pytest.approx(44 * 64**2 / 10 / 1e6)
    assert figures["configured"] == {"total_samples": 44, "lr_scaling": "sqrt"}
    assert json.loads(json.dumps(figures)) == figures


@pytest.mark.parametrize(
    ("level_db", "seconds", "samples"),
    [(-1.5, 10.0, 100), (-1.0, 10.0, 100), (-0.25, 15.0, 150), (0.5, 20.0, 200), (0.8, 35.0, 350), (1.4, inf, inf)],
)
def test_a_level_counts_when_it_is_first_reached(level_db: float, seconds: float, samples: float) -> None:
    assert reached(CURVE, level_db) == pytest.approx((seconds, samples))


@pytest.mark.parametrize(("seconds", "gain_db"), [(0.0, -1.0), (15.0, -0.25), (30.0, 0.3), (35.0, 0.8), (99.0, 1.3)])
def test_a_run_that_ended_keeps_its_result(seconds: float, gain_db: float) -> None:
    assert gain_at(CURVE, seconds) == pytest.approx(gain_db)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0], "1.0"),
        ([3.0, 1.0, 2.0], "2.0 (1.0..3.0)"),
        ([1.0, inf, 2.0], "2.0 (1.0..never)"),
        ([1.0, inf], "never (1.0..never)"),
        ([inf, inf], "never"),
    ],
)
def test_a_run_that_never_came_there_is_no_number(values: Sequence[float], text: str) -> None:
    assert spread(values) == text


def test_the_table_has_a_row_a_variant_and_a_column_a_level() -> None:
    text = page([run("memory", "sqrt"), run("start"), run("memory", seed=2), run("memory")], [0.0, 1.2, 2.0], FACTS)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    main = [row for row in rows if len(row) == len(rows[0])]
    assert [row[0] for row in main] == ["| variant", "| memory", "| memory, sqrt", "| start"]
    assert [row[main[0].index("s to +1.2 dB")] for row in main[1:]] == ["39", "39", "39"]
    assert {row[main[0].index("s to +2 dB")] for row in main[1:]} == {"never"}
    assert "not measured on a GPU" not in text
    assert "Nothing here was measured on a GPU" in text


@pytest.mark.parametrize(
    ("factor", "more_db", "answer"),
    [(2.0, 0.0, "no"), (0.5, 0.0, "yes"), (2.0, 0.5, "no clear answer"), (1.0, 0.0, "no clear answer")],
)
def test_the_answer_follows_from_the_figures(factor: float, more_db: float, answer: str) -> None:
    pairs = [(run("start", seed=seed), run("memory", "none", seed, factor, more_db)) for seed in (1, 2, 3)]
    both = [result for pair in pairs for result in pair]
    text = page(both, [0.4, 1.2], FACTS)
    assert f"Does `memory` train better per second than `start`? Here: {answer}. " in text
    if answer != "no clear answer":
        first, second = ("start", "memory") if answer == "no" else ("memory", "start")
        assert f"- +0.4 dB: first `{first}`" in text
        assert f"then `{second}`" in text
        assert "the first is ahead in 3 of 3 seeds" in text


def test_a_level_that_one_variant_never_reached_is_said() -> None:
    text = page([run("start"), run("memory", more_db=-1.0)], [0.8], FACTS)
    assert "- +0.8 dB: first `start`, after 35 s. Fewest samples: `start`. Never, in the median: `memory`." in text
    assert "- +9 dB: no variant came there." in page([run("start")], [9.0], FACTS)


@pytest.mark.parametrize(
    ("more_db", "sentence"),
    [
        ((0.1, 0.2), "`lr_scaling: sqrt` helped with `memory`: +0.15 (+0.10..+0.20) dB"),
        ((-0.1, -0.2), "`lr_scaling: sqrt` did not help with `memory`"),
        ((0.1, -0.2), "`lr_scaling: sqrt` made no clear difference with `memory`"),
        ((0.1,), "`lr_scaling: sqrt` was tried with one seed, which decides nothing,"),
    ],
)
def test_scaling_is_judged_seed_by_seed(more_db: Sequence[float], sentence: str) -> None:
    pairs = [(run("memory", seed=seed), run("memory", "sqrt", seed, 1.0, more)) for seed, more in enumerate(more_db, 1)]
    groups = grouped([result for pair in pairs for result in pair])
    assert next(of_scaling(groups, [0.0])).startswith(sentence)


def test_a_plan_that_is_too_new_is_said() -> None:
    text = page([{**run("throughput"), "held_steps": 3}], [0.0], FACTS)
    assert "- The last plan had held for less than 25 steps: `throughput` seed 1." in text


def test_runs_differ_in_what_is_compared_only(tmp_path: Path) -> None:
    made = {cell.key: options_of(cell, tmp_path) for cell in cells([variant.name for variant in VARIANTS], 2, 3000)}
    assert len(made) == 14
    assert len({(options["memory"]["cpu_budget"], options["memory"]["calibration"]) for options in made.values()}) == 1
    start, longer = made["start", "none", 1, 3000], made["start, same pixels", "none", 1, 3000]
    assert "training_automations" not in start
    assert (start["train"]["total_samples"], longer["train"]["total_samples"]) == (3000, 6750)
    target = made["target16", "none", 2, 3000]["training_automations"]["DynamicBatchSizeOptimizer"]
    assert (target["target_batch_size"], target["max_lq_size"]) == (16, 48)
    assert [seed for _, _, seed, _ in made] == [1] * 7 + [2] * 7  # seeds outside, variants inside


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: str(variant.name))
def test_the_option_files_are_valid(variant: Any, tmp_path: Path) -> None:
    from trainauto.options.load import load_options

    file = tmp_path / "run.yml"
    file.write_text(yaml.safe_dump(options_of(Cell(variant, variant.scalings[-1], 1, 3000), tmp_path)))
    assert load_options(file).options.train.lr_scaling == variant.scalings[-1]
