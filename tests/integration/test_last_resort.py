"""Gradient checkpointing when nothing else fits, under a real budget."""

import math
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.doors import run_directory, step_records, tiny_options, train, write_options

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")

BUDGET = "60MiB"
"""One crop of 96 px keeps some 80 MiB for the backward pass: 35 layers of 2.25 MiB; with checkpoints a third of it."""


def options(gt: Path, **memory: Any) -> dict[str, Any]:
    bounds = {"min_batch_size": 1, "max_batch_size": 4, "min_lq_size": 96, "max_lq_size": 96}
    return tiny_options(
        gt,
        network_g={"type": "compact", "num_feat": 64, "num_conv": 16},
        datasets={"train": {"lq_size": 96, "batch_size_per_gpu": 1}},
        train={"total_iter": 8},
        val={"val_enabled": False, "metrics": {}},
        memory={"budget": BUDGET, **memory},
        training_automations={"DynamicBatchSizeOptimizer": {"policy": "step", "adjustment_frequency": 4, **bounds}},
    )


def test_proposed_or_switched_on(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    gt = write_images("gt", 2, (200, 200))
    file = write_options(tmp_path / "run.yml", options(gt))
    refused = train(file)
    assert refused.returncode == 1, refused.stdout
    assert "does not fit" in refused.stderr
    assert "`memory: allow_gradient_checkpointing: true` would go on" in refused.stderr
    assert "6 segments of a chain of 35 layers" in refused.stderr
    assert "about a third longer" in refused.stderr

    file = write_options(tmp_path / "run.yml", options(gt, allow_gradient_checkpointing=True))
    done = train(file)
    assert done.returncode == 0, done.stderr
    run = run_directory(file)
    records = step_records(run)
    assert [record["first_sample"] for record in records] == list(range(8))
    assert records[0]["ooms"] >= 1
    assert sum(record["ooms"] for record in records[1:]) == 0
    assert all(math.isfinite(loss) for record in records for loss in record["losses"].values())
    log = (run / "training.log").read_text()
    assert "gradient checkpointing is on from now on (net_g: 6 segments of a chain of 35 layers)" in log
    assert "with gradient checkpointing a step takes" in log
