"""Killed at any moment, a run goes on exactly where it was."""

import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import ACCEPTANCE
from tests.integration.commands import (
    latest_weights,
    merged,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from trainauto.storage.run_directory import RunDirectory

PLUGIN = Path(__file__).parents[1] / "assets" / "plugins" / "killer.py"
STEPS, SAMPLES, SAVED_EVERY = 60, 11, 7
CHANGES = [{"step": 12, "lq_size": 24, "batch_size": 9}, {"step": 33, "lq_size": 8, "batch_size": 2}]

Kills = list[tuple[str, int]]
Records = list[dict[str, Any]]


def planned_kills() -> Kills:
    """Ten seeded moments, each in reach of the checkpoint that the one before it leaves."""
    pick = random.Random(20261121).randint
    return [
        ("step", pick(1, 5)),  # before the first checkpoint: from nothing again
        ("step", pick(8, 13)),
        ("log", 1),  # while the records after step 7 are dropped
        ("checkpoint", 1),  # 14 is written but not in place: from 7 again
        ("loss", pick(2, 6)),
        ("pointer", pick(1, 2)),  # 14, or 20 of the first validation: in place, and nothing points at it
        ("step", pick(22, 27)),
        ("checkpoint", pick(1, 2)),  # 28 or 35
        ("log", 1),
        ("step", pick(50, 55)),
    ]


def kills_in_half_precision() -> Kills:
    pick = random.Random(20261122).randint
    return [("step", pick(1, 3)), ("pointer", pick(1, 2)), ("loss", pick(7, 9))]


def mixed(gt: Path, workers: int) -> dict[str, Any]:
    return tiny_options(
        gt,
        datasets={"train": {"num_worker_per_gpu": workers}},
        train={"total_iter": STEPS, "losses": [{"type": "killing_l1"}], "scheduler": {"type": "cosine"}},
        val={"val_freq": 20},
        logger={"save_checkpoint_freq": SAVED_EVERY},
        training_automations={"PlanSchedule": {"changes": CHANGES}},
    )


def in_half_precision(gt: Path) -> dict[str, Any]:
    """Counted in samples, with a loss so large that the first steps overflow and loss scaling has something to keep."""
    second = {"type": "GTImageDataset", "name": "second", "dataroot_gt": str(gt / "image_001.png")}
    options = tiny_options(
        gt,
        use_amp=True,
        amp_bf16=False,
        datasets={"val_2": second},
        train={
            "total_samples": 64,
            "losses": [{"type": "killing_l1", "loss_weight": 1000.0}],
            "scheduler": {"type": "linear"},
            "warmup_ratio": 0.3,
        },
        val={"val_freq": 6},
        logger={"save_checkpoint_freq": 4, "use_tb_logger": True},
    )
    del options["train"]["total_iter"]
    return options


def placed(folder: Path, options: dict[str, Any], kills: Kills) -> Path:
    """Write an option file and the plugin that carries out ``kills`` into a folder of their own."""
    folder.mkdir()
    shutil.copy(PLUGIN, folder / "killer.py")
    (folder / "kills.json").write_text(json.dumps(kills))
    killing = {"plugins": ["killer"], "training_automations": {"Killer": {}}}
    return write_options(folder / "run.yml", merged(options, killing))


def run_with_kills(options: Path, kills: Kills) -> None:
    for kill in kills:
        done = train(options, "--auto_resume", own_process=True)
        assert done.returncode == -signal.SIGKILL, f"{kill}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    done = train(options, "--auto_resume", own_process=bool(kills))
    assert done.returncode == 0, done.stderr
    assert len(list((options.parent / "experiments" / "tiny").glob("2*"))) == 1  # it went on in its own directory


def outcome(options: Path) -> tuple[Records, Records, dict[str, bytes]]:
    """Return what the steps were, what the validations measured, and the last weights."""
    run = run_directory(options)
    kept = ("step", "losses", "lr", "grad_norm", "skipped", "plan", "drawn", "first_sample", "samples", "units")
    steps = [{key: record[key] for key in kept} for record in step_records(run)]
    lines = [json.loads(line) for line in (run / "validation.jsonl").read_text().splitlines()]
    scores = [{key: line[key] for key in ("step", "dataset", "metrics", "bicubic", "scores")} for line in lines]
    return steps, scores, latest_weights(run)


@pytest.mark.timeout(600)
def test_killed_again_and_again_equals_uninterrupted(
    tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "replace", os.replace)  # the plugin changes it, in runs of this process, too
    gt, kills, few = write_images("gt", SAMPLES, (90, 100)), planned_kills(), kills_in_half_precision()
    assert len(kills) == 10
    # From nothing, and without workers, the run in half precision is killed.
    kills = kills if ACCEPTANCE else kills[1:6]
    assert {kind for kind, _ in kills} == {"step", "loss", "checkpoint", "pointer", "log"}
    whole = placed(tmp_path / "whole", mixed(gt, 0), [])
    helped = placed(tmp_path / "killed2", mixed(gt, 2), kills)
    half_whole = placed(tmp_path / "half_whole", in_half_precision(gt), [])
    half_killed = placed(tmp_path / "half_killed", in_half_precision(gt), few)
    plans = {helped: kills, half_killed: few}
    if ACCEPTANCE:
        plans[placed(tmp_path / "killed0", mixed(gt, 0), kills[:4])] = kills[:4]
    with ThreadPoolExecutor(2) as threads:
        for chain in [threads.submit(run_with_kills, options, planned) for options, planned in plans.items()]:
            chain.result()
    for options in (whole, half_whole):
        run_with_kills(options, [])

    steps, scores, weights = outcome(whole)
    for killed in plans.keys() - {half_killed}:
        killed_steps, killed_scores, killed_weights = outcome(killed)
        assert killed_steps == steps, killed
        assert killed_scores == scores, killed
        assert killed_weights == weights, killed
    assert [record["step"] for record in steps] == list(range(1, STEPS + 1))
    assert {record["plan"]["lq_size"] for record in steps} == {16, 24, 8}
    assert {record["plan"]["batch_size"] for record in steps} == {4, 9, 2}
    positions = [r["first_sample"] + i for r in steps for i in range(r["samples"])]
    assert positions == list(range(len(positions)))  # with the order's own test: every sample once an epoch
    assert set(weights) == {"net_g.safetensors", "net_g_ema.safetensors"}

    steps, scores, weights = outcome(half_whole)
    assert outcome(half_killed) == (steps, scores, weights)
    assert [(score["step"], score["dataset"]) for score in scores] == [
        (step, name) for step in (6, 12, 16) for name in ("val", "second")
    ]
    assert steps[0]["skipped"]  # the scale of the loss was changed before the first checkpoint ...
    assert not steps[-1]["skipped"]  # ... to one that fits
    rates = [record["lr"]["g"] for record in steps]
    assert rates.index(max(rates)) not in (0, len(rates) - 1)  # up while it warms up, then down
    assert list(RunDirectory(run_directory(half_killed)).tensorboard.iterdir())
