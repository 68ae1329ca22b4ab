"""Low-quality images that are made while a run trains: seen before it, and the same after a stop."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.acceptance import ACCEPTANCE
from tests.integration.commands import (
    command,
    latest_weights,
    merged,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from tests.integration.ranks import worker
from tests.integration.test_kill import placed, run_with_kills
from tests.integration.test_ranks import alone
from trainauto.tasks.sr.data.image_io import read_image, read_pixels
from trainauto.tasks.sr.data.pixel_format import PixelFormat

IMAGES, BATCH, STEPS = 11, 4, 16
CHANGES = [{"step": 5, "lq_size": 10, "batch_size": 2}, {"step": 10, "lq_size": 16, "batch_size": 4}]


@pytest.fixture
def options(write_images: Callable[..., Path]) -> dict[str, Any]:
    """A small run of BasicSR's ranges, with a sharpened target."""
    made = tiny_options(
        write_images("gt", IMAGES, (90, 100)),
        l1_gt_usm=True,
        queue_size=180,
        train={"total_iter": STEPS},
        val={"val_enabled": False},
        logger={"save_checkpoint_freq": 1 if ACCEPTANCE else 3},  # each kill gets further than the one before
        training_automations={"PlanSchedule": {"changes": CHANGES}},
    )
    made["datasets"]["train"] |= {"type": "RealESRGANDataset", "blur_kernel_size": 21}
    return made


def facts(run: Path) -> list[dict[str, Any]]:
    kept = ("step", "losses", "grad_norm", "plan", "drawn", "first_sample", "samples")
    return [{key: record[key] for key in kept} for record in step_records(run)]


@pytest.mark.timeout(300)
def test_a_run_killed_inside_an_epoch_and_a_replay_see_the_same_pixels(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan cuts crops in flight; the run that is killed has two workers, the whole one and the replay none."""
    monkeypatch.setattr(os, "replace", os.replace)  # the plugin changes it where the replay loads it
    whole = write_options(tmp_path / "whole" / "run.yml", options)
    done = train(whole)
    assert done.returncode == 0, done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert "queue_size, blur_kernel_size are read and not used" in said
    page = run_directory(whole).joinpath("dashboard.html").read_text(encoding="utf-8")
    assert "First batch, as trained on" in page
    expected = facts(run_directory(whole))
    assert [record["step"] for record in expected] == list(range(1, STEPS + 1))
    assert any(record["plan"]["lq_size"] < record["drawn"]["lq_size"] for record in expected)

    inside = [r["step"] for r in expected[:-1] if (r["first_sample"] + r["samples"]) % IMAGES]
    steps = sorted(random.Random(20261127).sample(inside, 10 if ACCEPTANCE else 1))
    kills = [("step", step) for step in steps]
    killed = placed(tmp_path / "killed", merged(options, {"datasets": {"train": {"num_worker_per_gpu": 2}}}), kills)
    run_with_kills(killed, kills)
    run = run_directory(killed)
    assert facts(run) == expected
    assert latest_weights(run) == latest_weights(run_directory(whole))
    done = command("replay", str(run), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "every loss equals the log's" in done.stdout


def test_two_ranks_see_the_pixels_of_one(options: dict[str, Any], tmp_path: Path) -> None:
    halves = [{**change, "batch_size": change["batch_size"] // 2} for change in CHANGES]
    changes = {
        "name": "two",
        "datasets": {"train": {"batch_size_per_gpu": BATCH // 2, "num_worker_per_gpu": 2}},
        "training_automations": {"PlanSchedule": {"changes": halves}},
    }
    seen = worker(write_options(tmp_path / "two.yml", merged(options, changes)), 2)
    only = alone(write_options(tmp_path / "one.yml", options))
    for first, second, both in zip(*(rank["batches"] for rank in (*seen, only)), strict=True):
        turns = zip(first["crops"], second["crops"], strict=True)
        assert [crop for turn in turns for crop in turn] == both["crops"]


def test_what_a_run_makes_is_seen_before_it(options: dict[str, Any], tmp_path: Path) -> None:
    file = write_options(tmp_path / "run.yml", options)
    done = command(
        "degrade", "-opt", str(file), "--sheet", "sheet.png", "--count", "3", "--folder", "out", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "sheet.png: the first 3 samples of the run" in done.stdout
    assert "out: 11 pairs in gt and lq" in done.stdout
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert np.asarray(sheet).std() > 10
    for name in ("image_000", "image_004"):
        lq, gt = (read_image(str(tmp_path / "out" / kind / f"{name}.png"), 3) for kind in ("lq", "gt"))
        assert (lq.shape, gt.shape) == ((45, 50, 3), (90, 100, 3))
        assert np.array_equal(gt, read_image(str(tmp_path / "gt" / f"{name}.png"), 3))
    done = command("degrade", "-opt", str(file), "--sheet", "sheet.png", cwd=tmp_path)
    assert done.returncode == 2
    assert "sheet.png" in done.stderr
    deep = ("--force_yml", "datasets:train:bit_depth=16", "--sheet", "deep.png", "--folder", "deep", "--count", "3")
    done = command("degrade", "-opt", str(file), *deep, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "sheet.png") as sheet, Image.open(tmp_path / "deep.png") as of_16:
        assert np.abs(np.asarray(sheet, int) - np.asarray(of_16)).max() <= 1
    assert read_pixels(str(tmp_path / "deep/gt/image_000.png"), PixelFormat(3, 16)).dtype == np.uint16
    still = write_options(tmp_path / "gt.yml", tiny_options(tmp_path / "gt"))
    done = command("degrade", "-opt", str(still), "--sheet", "other.png", "--count", "1", cwd=tmp_path)
    assert "other.png: the first 1 sample of the run" in done.stdout  # shrunk, and nothing drawn
