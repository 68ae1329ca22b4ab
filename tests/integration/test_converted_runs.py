"""Converted files train: one step each, on small images and crops, with their networks made smaller."""

import importlib.util
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.foreign_files import FILES, converted
from tests.integration.commands import command, merged, run_directory, step_records, write_options
from tests.seeded_towers import write_seeded_tower
from trainauto.tasks.sr.towers.tower import DESIGNS

needs_spandrel = pytest.mark.skipif(importlib.util.find_spec("spandrel") is None, reason="spandrel is not installed")
SMALLER: dict[str, dict[str, Any]] = {
    "redux_otf_light": {"feature_channels": 8},
    "redux_x1": {"embed_dim": 12, "depths": [2], "num_heads": [2]},
    "neosr_otf_gan": {"embed_dim": 12, "depths": [2], "num_heads": [2]},
}
CROPS_PX = {"basicsr_esrgan": 32}
"""Of those whose discriminator judges one size."""


def tiny(file: Path, folder: Path) -> dict[str, Any]:
    """Return a converted file that takes one step in well under a second."""
    tree = converted(file).tree
    scale, train = tree["scale"], tree["datasets"]["train"]
    roots = {"dataroot_gt": str(folder / "hr")}
    if "dataroot_lq" in train:
        roots["dataroot_lq"] = str(folder / f"x{scale}")
    unread = ("meta_info", "filename_tmpl", "lookahead", "dataroot_lq")
    kept = {key: value for key, value in train.items() if key not in unread}
    small = {"lq_size": CROPS_PX.get(file.stem, 16), "batch_size_per_gpu": 2, "num_worker_per_gpu": 0}
    tree = {**tree, "datasets": {"train": {**kept, **roots, **small}}, "path": {}}
    tree["train"] = {**tree["train"], "total_iter": 1, "warmup_steps": 0, "scheduler": {"type": "constant"}}
    for loss in tree["train"]["losses"]:
        if loss["type"] == "vggperceptualloss":
            loss["weights"] = str(folder / "vgg19.pth")
    tree["network_g"] = {**tree["network_g"], **SMALLER.get(file.stem, {})}
    aside = {"name": file.stem, "device": "cpu", "num_threads": 1, "use_amp": False, "use_channels_last": False}
    aside |= {"deterministic": False, "val": {"val_enabled": False}, "logger": {"use_tb_logger": False}}
    return merged({key: value for key, value in tree.items() if key not in ("val", "logger")}, aside)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for number in range(2):
        image = cv2.resize(random.integers(0, 256, (24, 24, 3), dtype=np.uint8), (192, 192))
        for name, side in {"hr": 192, "x1": 192, "x2": 96, "x4": 48}.items():
            (folder / name).mkdir(exist_ok=True)
            cv2.imwrite(str(folder / name / f"{number}.png"), cv2.resize(image, (side, side)))
    write_seeded_tower(DESIGNS["vgg19"], folder / "vgg19.pth", 16)
    return folder


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.stem, marks=[needs_spandrel] if file.stem == "redux_otf_pairs" else [])
        for file in FILES
    ],
)
def test_a_converted_file_takes_a_step(file: Path, photos: Path, tmp_path: Path) -> None:
    options = write_options(tmp_path / "run.yml", tiny(file, photos))
    done = command("train", "-opt", "run.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (record,) = step_records(run_directory(options, file.stem))
    assert record["step"] == 1
