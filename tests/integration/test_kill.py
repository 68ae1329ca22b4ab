"""Killed at any moment, a run goes on exactly where it was."""

import json
import random
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.doors import latest_weights, run_directory, step_records, tiny_options, train, write_options

PLUGIN = Path(__file__).parents[1] / "assets" / "plugins" / "killer.py"
STEPS, SAMPLES = 60, 11
CHANGES = [{"step": 12, "lq_size": 24, "batch_size": 9}, {"step": 33, "lq_size": 8, "batch_size": 2}]


def planned_kills() -> list[tuple[str, int]]:
    """Ten seeded moments: the first before the first checkpoint (step 7), then ever later in the run."""
    generator = random.Random(20261121)
    steps = sorted(generator.sample(range(9, STEPS), 6))
    kills: list[tuple[str, int]] = [("step", generator.randint(1, 5)), *(("step", step) for step in steps)]
    kills.insert(2, ("loss", generator.randint(2, 6)))
    kills.insert(4, ("replace", generator.randint(3, 8)))
    kills.insert(6, ("replace", generator.randint(3, 8)))
    return kills


def options_of(folder: Path, gt: Path, workers: int, kills: list[tuple[str, int]]) -> Path:
    folder.mkdir()
    shutil.copy(PLUGIN, folder / "killer.py")
    (folder / "kills.json").write_text(json.dumps(kills))
    options = tiny_options(
        gt,
        plugins=["killer"],
        datasets={"train": {"num_worker_per_gpu": workers}},
        train={"total_iter": STEPS, "losses": [{"type": "killing_l1"}], "scheduler": {"type": "cosine"}},
        val={"val_freq": 20},
        logger={"save_checkpoint_freq": 7},
        training_automations={"PlanSchedule": {"changes": CHANGES}, "Killer": {}},
    )
    return write_options(folder / "run.yml", options)


def outcome(options: Path) -> tuple[list[Any], dict[str, bytes]]:
    run = run_directory(options)
    kept = ("step", "losses", "lr", "grad_norm", "plan", "drawn", "first_sample", "samples", "pixels")
    return [{key: record[key] for key in kept} for record in step_records(run)], latest_weights(run)


def run_with_kills(options: Path, kills: list[tuple[str, int]]) -> None:
    for kill in kills:
        done = train(options, "--auto_resume")
        assert done.returncode == -signal.SIGKILL, f"{kill}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    done = train(options, "--auto_resume")
    assert done.returncode == 0, done.stderr
    assert len(list((options.parent / "experiments" / "tiny").glob("2*"))) == 1  # it went on in its own directory


@pytest.mark.timeout(600)
def test_killed_ten_times_equals_uninterrupted(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    gt, kills = write_images("gt", SAMPLES, (90, 100)), planned_kills()
    whole = options_of(tmp_path / "whole", gt, 0, [])
    killed = {workers: options_of(tmp_path / f"killed{workers}", gt, workers, kills) for workers in (0, 2)}
    with ThreadPoolExecutor(2) as threads:
        chains = [threads.submit(run_with_kills, options, kills) for options in killed.values()]
        for chain in chains:
            chain.result()
    done = train(whole)
    assert done.returncode == 0, done.stderr
    want_records, want_weights = outcome(whole)
    for workers, options in killed.items():
        records, weights = outcome(options)
        assert records == want_records, f"{workers} workers"
        assert weights == want_weights, f"{workers} workers"

    assert [record["step"] for record in want_records] == list(range(1, STEPS + 1))
    assert {record["plan"]["lq_size"] for record in want_records} == {16, 24, 8}
    assert {record["plan"]["batch_size"] for record in want_records} == {4, 9, 2}
    positions = [r["first_sample"] + i for r in want_records for i in range(r["samples"])]
    assert positions == list(range(len(positions)))  # with the order's own test: every sample once an epoch
    assert set(want_weights) == {"net_g.safetensors", "net_g_ema.safetensors"}
