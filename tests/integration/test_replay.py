"""A logged run is repeated to the bit: plan changes, real lacks of memory, resumes under changed options."""

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.doors import (
    environment,
    latest_weights,
    merged,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from trainauto.engine.checkpoint import Checkpoints

Write = Callable[..., Path]
CONTROLLER = {"policy": "step", "min_batch_size": 2, "max_batch_size": 16, "min_lq_size": 8, "max_lq_size": 64}


def replay(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainauto", "replay", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def as_trained(records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("step", "first_sample", "samples", "extent", "plan", "drawn", "losses", "lr", "grad_norm", "pixels")
    return [tuple(record[name] for name in names) for record in records]


def loader_state(run: Path) -> Any:
    pointer = json.loads((run / "checkpoints" / "latest.json").read_text())
    return Checkpoints.read_state(run / "checkpoints" / pointer["folder"])["loader"]


def decided(run: Path) -> list[dict[str, Any]]:
    file = run / "decisions.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [{key: value for key, value in line.items() if key != "time"} for line in lines]


@pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")
def test_plan_changes_and_lacks_of_memory_are_repeated_to_the_bit(tmp_path: Path, write_images: Write) -> None:
    gt = write_images("gt", 4, (200, 200))
    options = tiny_options(
        gt,
        network_g={"type": "compact", "num_feat": 32, "num_conv": 4},
        datasets={"train": {"lq_size": 64, "batch_size_per_gpu": 12}},
        train={"total_iter": 16},
        val={"val_freq": 16},
        memory={"budget": "60MiB", "calibration": False},
        training_automations={"DynamicBatchSizeOptimizer": {**CONTROLLER, "adjustment_frequency": 3}},
    )
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 0, done.stderr
    run = run_directory(file)
    records = step_records(run)
    assert sum(record["ooms"] for record in records) >= 1  # real ones
    assert any(one["micro_batches"] > 1 for record in records for one in record.get("pieces", {}).values())
    assert len({json.dumps(record["plan"]) for record in records}) >= 2

    again = replay(tmp_path, "experiments/tiny")
    assert again.returncode == 0, again.stderr
    copy = run_directory(file, "tiny_replay")
    assert as_trained(step_records(copy)) == as_trained(records)
    assert latest_weights(copy) == latest_weights(run)
    assert sum(record["ooms"] for record in step_records(copy)) == 0
    assert decided(copy) == decided(run)
    assert loader_state(copy) == loader_state(run)
    assert "16 steps, every loss equals the log's" in again.stdout
    assert "differ" not in again.stdout
