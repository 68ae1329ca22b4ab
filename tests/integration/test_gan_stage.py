"""The second stage of a published recipe, as options/train/gan_stage.yml and docs/losses.md have it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.documents import ROOT, block
from tests.integration.commands import (
    latest_optimizers,
    latest_weights,
    merged,
    run_directory,
    step_records,
    train,
    write_options,
)
from tests.seeded_towers import write_seeded_tower
from trainauto.tasks.sr.towers.tower import VGG19

SHIPPED = yaml.safe_load((ROOT / "options" / "train" / "gan_stage.yml").read_text(encoding="utf-8"))
TERMS = {
    "l_g_charbonnierloss",
    "l_g_mssimloss",
    "l_g_perceptualloss",
    "l_g_hsluvloss_hue",
    "l_g_hsluvloss_saturation",
    "l_g_hsluvloss_lightness",
    "l_g_gan",
    "l_d_real",
    "l_d_fake",
}


@pytest.fixture
def options(tmp_path: Path, write_images: Callable[..., Path]) -> dict[str, Any]:
    """The shipped file for a few small steps from nothing, with the seeded tower it asks for."""
    tower = tmp_path / "vgg19.pth"
    write_seeded_tower(VGG19, tower, divisor=8)
    losses = [loss | ({"weights": str(tower)} if "weights" in loss else {}) for loss in SHIPPED["train"]["losses"]]
    images = str(write_images("gt", 4, (60, 70)))
    changes = {
        "device": "cpu",
        "num_threads": 1,
        "datasets": {
            "train": {"dataroot_gt": images, "lq_size": 16, "batch_size_per_gpu": 3, "cache_dir": None},
            "val": {"dataroot_gt": images, "cache_dir": None},
        },
        "network_g": {"num_feat": 8, "num_conv": 1},
        "network_d": {"num_feat": 4},
        "path": {"pretrain_network_g": None},
        "train": {"total_iter": 4, "losses": losses},
        "val": {"val_freq": 4},
        "memory": {"budget": "2GiB"},  # its first step is on one pixel
        "logger": {"print_freq": 1, "save_checkpoint_freq": 2},
    }
    return merged(SHIPPED, changes)


def test_the_recipe_resumes_exactly_and_keeps_no_tower(options: dict[str, Any], tmp_path: Path) -> None:
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 0, done.stderr
    assert "loss_weight 0 are left out, and load nothing: distsloss, ldlloss" in done.stderr + done.stdout
    assert "8 times fewer channels than the published ones" in " ".join((done.stderr + done.stdout).split())
    run = run_directory(file, "gan_stage")
    whole, remembered = latest_weights(run), latest_optimizers(run)
    steps = [record["losses"] for record in step_records(run)]
    assert set(steps[0]) == TERMS
    assert set(whole) == {"net_d.safetensors", "net_g.safetensors", "net_g_ema.safetensors"}

    (run / "checkpoints" / "latest.json").unlink()
    shutil.rmtree(run / "checkpoints" / "step_00000004")
    done = train(file, "--auto_resume")
    assert done.returncode == 0, done.stderr
    assert latest_weights(run) == whole  # spectral norm's vectors among them
    after = latest_optimizers(run)
    assert {name.split()[0] for name in after} == {"g", "d"}
    assert {name.split()[2] for name in after} == {"step", "exp_avg", "exp_avg_sq"}
    assert after.keys() == remembered.keys()
    assert all(torch.equal(value, remembered[name]) for name, value in after.items())
    assert [record["losses"] for record in step_records(run)] == steps


def test_a_batch_in_pieces_has_the_losses_of_the_whole(options: dict[str, Any], tmp_path: Path) -> None:
    first = {}
    for name, batch in (("whole", {"batch_size_per_gpu": 4}), ("pieces", {"batch_size_per_gpu": 2, "accum_iter": 2})):
        changes = {
            "name": name,
            "datasets": {"train": batch},
            "train": {"total_iter": 1},
            "val": {"val_enabled": False},
        }
        file = write_options(tmp_path / f"{name}.yml", merged(options, changes))
        done = train(file)
        assert done.returncode == 0, done.stderr
        first[name] = step_records(run_directory(file, name))[0]["losses"]
    compared = {term for term in TERMS if term.startswith("l_g") and term != "l_g_gan"}
    for term in compared:
        assert first["pieces"][term] == pytest.approx(first["whole"][term], rel=1e-5), term


def test_the_page_shows_the_losses_of_the_file() -> None:
    page = yaml.safe_load(block("docs/losses.md", "yaml").text)
    shipped = [
        {key: value for key, value in loss.items() if key != "weights"}
        for loss in SHIPPED["train"]["losses"]
        if loss["loss_weight"]
    ]
    assert page["train"]["losses"] == shipped
