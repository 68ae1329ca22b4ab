"""Low-quality images that are made while a run trains: seen before it, and the same after a stop."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.integration.commands import (
    command,
    latest_weights,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from trainauto.tasks.sr.data.image_io import read_image


@pytest.fixture
def options(write_images: Callable[..., Path]) -> dict[str, Any]:
    """A small run of BasicSR's ranges, with a sharpened target."""
    made = tiny_options(
        write_images("gt", 5, (90, 100)),
        l1_gt_usm=True,
        queue_size=180,
        train={"total_iter": 7},
        val={"val_enabled": False},
        logger={"save_checkpoint_freq": 4},
    )
    made["datasets"]["train"] |= {"type": "RealESRGANDataset", "blur_kernel_size": 21}
    return made


def test_a_resumed_run_and_a_replay_see_the_same_pixels(options: dict[str, Any], tmp_path: Path) -> None:
    file = write_options(tmp_path / "run.yml", options)
    done = train(file, afresh=False)
    assert done.returncode == 0, done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert "queue_size, blur_kernel_size are read and not used" in said
    run = run_directory(file)
    page = run.joinpath("dashboard.html").read_text(encoding="utf-8")
    assert "First batch, as trained on" in page
    weights, losses = latest_weights(run), [record["losses"] for record in step_records(run)]
    (run / "checkpoints" / "latest.json").unlink()
    shutil.rmtree(run / "checkpoints" / "step_00000007")
    done = train(file, "--auto_resume", "--force_yml", "datasets:train:num_worker_per_gpu=2", afresh=False)
    assert done.returncode == 0, done.stderr
    assert "after step 4" in done.stdout
    assert latest_weights(run) == weights
    assert [record["losses"] for record in step_records(run)] == losses
    done = command("replay", str(run), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "every loss equals the log's" in done.stdout


def test_what_a_run_makes_is_seen_before_it(options: dict[str, Any], tmp_path: Path) -> None:
    file = write_options(tmp_path / "run.yml", options)
    done = command(
        "degrade", "-opt", str(file), "--sheet", "sheet.png", "--count", "3", "--folder", "out", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "sheet.png: the first 3 samples of the run" in done.stdout
    assert "out: 5 pairs in gt and lq" in done.stdout
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert np.asarray(sheet).std() > 10
    for name in ("image_000", "image_004"):
        lq, gt = (read_image(str(tmp_path / "out" / kind / f"{name}.png"), 3) for kind in ("lq", "gt"))
        assert (lq.shape, gt.shape) == ((45, 50, 3), (90, 100, 3))
        assert np.array_equal(gt, read_image(str(tmp_path / "gt" / f"{name}.png"), 3))
    done = command("degrade", "-opt", str(file), "--sheet", "sheet.png", cwd=tmp_path)
    assert done.returncode == 2
    assert "sheet.png" in done.stderr
    still = write_options(tmp_path / "gt.yml", tiny_options(tmp_path / "gt"))
    done = command("degrade", "-opt", str(still), "--sheet", "other.png", "--count", "1", cwd=tmp_path)
    assert "other.png: the first 1 sample of the run" in done.stdout  # shrunk, and nothing drawn
