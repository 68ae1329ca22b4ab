"""Budgets that are too small for something: known before the first step, and told in words."""

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import pytest

from tests.integration.commands import run_directory, step_records, tiny_options, train, write_options

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")

Write = Callable[..., Path]


def options(gt: Path, budget: str, **changes: Any) -> dict[str, Any]:
    return tiny_options(
        gt,
        network_g={"type": "compact", "num_feat": 16, "num_conv": 2},
        datasets={"train": {"lq_size": 8, "batch_size_per_gpu": 1}},
        train={"total_iter": 3, "ema_decay": 0.0},
        memory={"budget": budget, "calibration": False},
        **changes,
    )


def test_validation_that_will_not_fit_is_known_before_the_first_step(tmp_path: Path, write_images: Write) -> None:
    """No tile sees less than 900 px, with 16 channels 52 MB each; steps of one crop of 8 px need next to nothing."""
    gt = write_images("gt", 1)
    picture = str(gt / "image_000.png")
    assert cv2.imwrite(picture, cv2.resize(cv2.imread(picture), (2400, 2400)))
    loaded = options(gt, "24MiB", val={"val_freq": 3, "tile_overlap": 300})
    file = write_options(tmp_path / "run.yml", loaded)
    done = train(file)
    said = " ".join(done.stdout.replace("error: ", "").split())
    assert done.returncode == 1, done.stdout
    assert said.index("validation of val will run out of memory: ") < said.index("1/3 ")
    assert "failed training finished and is saved; only validation failed: it ran out of memory" in said
    before, command = done.stdout.split("to resume:\n")  # which is one line, to be copied whole
    assert max(map(len, before.splitlines())) <= 80
    assert "--auto_resume" in command.splitlines()[0]
    assert "TrainautoError" not in done.stdout + done.stderr
    run = run_directory(file)
    assert len(step_records(run)) == 3
    assert (run / "checkpoints" / "step_00000003").is_dir()


def test_an_enlarged_picture_counts_against_no_budget(tmp_path: Path, write_images: Write) -> None:
    """As float32 it would be 35 MiB; of 8 bits it is 8.3 MiB, which lie in a file."""
    val = write_images("val", 1)
    picture = str(val / "image_000.png")
    assert cv2.imwrite(picture, cv2.resize(cv2.imread(picture), (1704, 1704)))
    val_set = {"dataroot_gt": str(val)}
    loaded = options(write_images("gt", 1), "24MiB", val={"val_freq": 3, "save_img": False})
    loaded["datasets"]["val"] |= val_set
    done = train(write_options(tmp_path / "run.yml", loaded))
    assert done.returncode == 0, done.stdout
    assert "will run out of memory" not in done.stdout
    assert "failed" not in done.stdout
    run = run_directory(tmp_path / "run.yml")
    assert len((run / "validation.jsonl").read_text().splitlines()) == 1
    assert [file.name for file in (run / "validation").iterdir()] == []


def test_what_a_budget_counts_and_how_exact_it_is(tmp_path: Path, write_images: Write) -> None:
    gt = write_images("gt", 1, (96, 96))
    for budget, is_warned in (("10MiB", True), ("24MiB", False)):
        done = train(write_options(tmp_path / "run.yml", options(gt, budget, val={"val_enabled": False})))
        said = " ".join(done.stdout.split())
        assert done.returncode == 0, done.stderr
        assert f"memory budget of {budget[:2]} MiB, enforced: for what steps add to the " in said
        assert ("a budget below 16 MiB cannot be enforced exactly" in said) is is_warned
        assert "will run out of memory" not in said


def test_a_network_that_cannot_fit_is_told_without_the_allocators_own_words(
    tmp_path: Path, write_images: Write
) -> None:
    loaded = options(write_images("gt", 1, (400, 400)), "12MiB", val={"val_enabled": False})
    loaded["network_g"] = {"type": "rrdbnet", "num_feat": 64, "num_block": 4}
    loaded["datasets"]["train"]["lq_size"] = 128
    controller = {"adjustment_frequency": 4, "min_lq_size": 120, "max_lq_size": 128}
    loaded["training_automations"] = {"DynamicBatchSizeOptimizer": controller}
    done = train(write_options(tmp_path / "run.yml", loaded))
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 1, said
    assert "one sample of 120 px does not fit: " in said
    assert "enforce fail" not in said
    assert "bad_alloc" not in said
    assert "NothingFitsError" not in said
    assert "which does not fit either" in said
    assert "Gradient checkpointing would not save enough memory." in said
    assert "would continue with gradient checkpointing" not in said
