"""Runs through the door under a real budget: a neighbour that comes and goes, and bounds far above what fits."""

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import only_in_acceptance
from tests.integration.commands import run_directory, step_records, tiny_options, train, write_options

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")

Write = Callable[..., Path]
Records = list[dict[str, Any]]

MIB = 2**20
PLUGINS = Path(__file__).parents[1] / "assets" / "plugins"
NAME = "DynamicBatchSizeOptimizer"


def trained(file: Path, options: dict[str, Any]) -> tuple[Records, Records, str]:
    """Run an option file; return its records, its decisions and its log."""
    done = train(write_options(file, options), afresh=True)  # a neighbour leaves just too little
    assert done.returncode == 0, done.stderr
    run = run_directory(file)
    decisions = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    return step_records(run), decisions, (run / "training.log").read_text()


def samples_of(records: Records) -> list[int]:
    return [record["first_sample"] + i for record in records for i in range(record["samples"])]


def plan_of(record: dict[str, Any]) -> tuple[int, int]:
    return record["plan"]["lq_size"], record["plan"]["batch_size"]


def work_of(record: dict[str, Any]) -> int:
    crop, batch = plan_of(record)
    return crop * crop * batch


def test_a_neighbour_of_three_steps_shrinks_once_and_the_plan_comes_back(tmp_path: Path, write_images: Write) -> None:
    period, first_beside = 6, 14
    gt = write_images("gt", 4, (100, 100))
    (tmp_path / "neighbour.py").write_text((PLUGINS / "neighbour.py").read_text())
    bounds = {"min_batch_size": 2, "max_batch_size": 8, "min_lq_size": 8, "max_lq_size": 40}
    options = tiny_options(
        gt,
        plugins=["neighbour"],
        network_g={"type": "compact", "num_feat": 16, "num_conv": 4},
        datasets={"train": {"lq_size": 40, "batch_size_per_gpu": 8, "lookahead": 2}},
        train={"total_iter": 54},
        val={"val_freq": 54},
        memory={"budget": "60MiB"},
        training_automations={
            NAME: {
                "policy": "step",
                "target_vram_usage": 0.8,
                "safety_margin": 0.1,
                "adjustment_frequency": period,
                **bounds,
            },
            "Neighbour": {"first_step": first_beside, "steps": 3, "up_to": 0.92},
        },
    )
    records, decisions, _ = trained(tmp_path / "run.yml", options)
    assert samples_of(records) == list(range(len(samples_of(records))))
    beside = records[first_beside - 1 : first_beside + 2]
    assert all(record["peak"]["allocated"] > 0.8 * record["peak"]["limit"] for record in beside)
    # It shrinks once, after the period that saw the neighbour, and comes back after one that did not.
    shrunk, back = decisions
    assert "is above the target" in shrunk["reason"]
    assert shrunk["plan"]["batch_size"] < 8
    assert back["plan"] == records[0]["plan"]
    assert (plan_of(records[first_beside + 8]), plan_of(records[-1])) == ((40, shrunk["plan"]["batch_size"]), (40, 8))


@only_in_acceptance
def test_bounds_far_above_what_fits_settle_below_the_target(tmp_path: Path, write_images: Write) -> None:
    period, steps = 3, 105
    gt = write_images("gt", 4, (390, 390))
    bounds = {"min_batch_size": 2, "max_batch_size": 4096, "min_lq_size": 8, "max_lq_size": 2048}
    options = tiny_options(
        gt,
        network_g={"type": "compact", "num_feat": 16, "num_conv": 2},
        datasets={"train": {"lq_size": 16, "batch_size_per_gpu": 2, "lookahead": 1}},
        train={"total_iter": steps},
        val={"val_freq": steps},
        memory={"budget": "40MiB"},
        training_automations={
            NAME: {
                "policy": "step",
                "target_vram_usage": 0.85,
                "safety_margin": 0.05,
                "adjustment_frequency": period,
                **bounds,
            }
        },
    )
    records, decisions, log = trained(tmp_path / "run.yml", options)
    assert samples_of(records) == list(range(len(samples_of(records))))
    works = [work_of(record) for record in records]
    assert works == sorted(works)  # it only ever grew: no swinging
    assert works[-1] > 20 * works[0]
    assert decisions[-1]["step"] < steps - 2 * period
    settled = max(record["peak"]["allocated"] / record["peak"]["limit"] for record in records[-2 * period :])
    assert settled <= 0.85
    assert settled >= 0.80 or "is expected to peak at" in log
