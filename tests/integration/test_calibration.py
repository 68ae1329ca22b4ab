"""What a run learned is where the next one of its kind starts."""

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
LATER_RUNS = 2


def options(gt: Path, steps: int, **memory: Any) -> dict[str, Any]:
    bounds = {"min_batch_size": 2, "max_batch_size": 64, "min_lq_size": 8, "max_lq_size": 40}
    return tiny_options(
        gt,
        network_g={"type": "compact", "num_feat": 32, "num_conv": 4},
        datasets={"train": {"lq_size": 24, "batch_size_per_gpu": 2, "lookahead": 1, "num_worker_per_gpu": 0}},
        train={"total_iter": steps},
        val={"val_enabled": False, "metrics": {}},
        memory={"budget": "90MiB", **memory},
        training_automations={"DynamicBatchSizeOptimizer": {"adjustment_frequency": 4, **bounds}},
    )


def trained(file: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    done = train(file)
    assert done.returncode == 0, done.stderr
    run = run_directory(file)
    decisions = run / "decisions.jsonl"
    lines = decisions.read_text().splitlines() if decisions.exists() else []
    return step_records(run), [json.loads(line) for line in lines], (run / "training.log").read_text()


@only_in_acceptance
def test_later_runs_start_where_the_first_one_settled(tmp_path: Path, write_images: Write) -> None:
    """Nine of ten such runs change nothing (scripts/bench/calibration.py counts them); of two, one at least."""
    gt = write_images("gt", 4, (200, 200))
    file = write_options(tmp_path / "run.yml", options(gt, 24))
    records, decisions, log = trained(file)
    assert decisions
    assert "traced 6 plans" in log
    foresight = json.loads((run_directory(file) / "foresight.json").read_text())
    assert foresight["limit_bytes"] == 90 * 2**20
    settled = records[-1]["plan"]
    assert settled["lq_size"] == 40
    unchanged = 0
    file = write_options(tmp_path / "run.yml", options(gt, 8))
    for _ in range(LATER_RUNS):
        records, decisions, log = trained(file)
        assert records[0]["plan"]["lq_size"] == 40
        assert records[0]["plan"]["batch_size"] > 2
        assert "an earlier run of this kind settled at" in log
        assert "traced" not in log
        assert sum(record["ooms"] for record in records) == 0
        unchanged += not decisions
    assert unchanged >= LATER_RUNS - 1

    # Another budget is another place to settle, but what was measured still holds.
    file = write_options(tmp_path / "run.yml", options(gt, 16, budget="60MiB"))
    records, decisions, log = trained(file)
    assert records[0]["plan"]["batch_size"] == 2
    assert "traced" not in log
    assert 2 < records[-1]["plan"]["batch_size"] < settled["batch_size"]
    assert sum(record["ooms"] for record in records) == 0
