"""Networks of luma in use, and sets of plugins: nothing that an option file asks for is passed over."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import command, merged, tiny_options, train, write_options

Write = Callable[..., Path]

PLUGIN = """
import torch
from trainauto.core.plan import Plan
from trainauto.data import DATASETS, DatasetScan, DynamicDataset
from trainauto.tasks.sr.data.image_crops import ImageCrops


@DATASETS.register("Ramps")
class Ramps(DynamicDataset):
    def __init__(self, dataroot_gt, *, scale, channels=3, name="train"):
        self.scale, self.name, self.workload = scale, name, ImageCrops(channels, scale)

    def __len__(self):
        return 8

    def sample_name(self, index):
        return f"ramp {index}"

    sample_key = sample_name

    def scan(self):
        return DatasetScan(8, 64, "ramp 0", 8 * 3 * 64 * 64)

    def __getitem__(self, key):
        def ramp(side):
            return torch.arange(side).expand(3, side, side).to(torch.uint8)

        return {"lq": ramp(key.size), "gt": ramp(key.size * self.scale), "label": torch.tensor(1.0)}

    def full_sample(self, index):
        raise NotImplementedError
"""


@pytest.mark.parametrize("where", ["top", "sets"])
def test_a_network_of_luma_is_measured_on_luma_and_upscales_nothing(
    write_images: Write, tmp_path: Path, where: str
) -> None:
    gt = str(write_images("gt", 3, (40, 48)))
    metrics = {"psnr": {"type": "calculate_psnr"}}
    options = tiny_options(Path(gt), train={"total_iter": 2}, val={"metrics": metrics})
    options["datasets"]["val"]["dataroot_gt"] = gt
    options["network_g"] |= {"num_in_ch": 1, "num_out_ch": 1}
    if where == "top":
        options |= {"input_pixel_format": "y", "output_pixel_format": "y"}
    else:
        for one in options["datasets"].values():
            one["color"] = "y"
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 0, done.stderr
    run = str(tmp_path / "experiments" / options["name"])
    test = {
        "name": "measured",
        "datasets": {"val": {"type": "GTImageDataset", "dataroot_gt": gt}},
        "val": {"save_img": False, "metrics": metrics},
    }
    named = write_options(tmp_path / "test.yml", test)
    figures = set()
    for more in ([], ["-opt", str(named)], [gt]):
        done = command("test", run, *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        figures.update(re.findall(r"\b\d+\.\d{4}\b", done.stdout)[:2])
    assert len(figures) == 2, figures  # the network's and bicubic's; grey of 0 to 255 has more contrast, and others
    done = command("upscale", run, gt, str(tmp_path / "out"), cwd=tmp_path)
    assert done.returncode == 2
    assert "was trained on luma" in done.stderr


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"train": {"use_moa": True}}, "use_moa"),
        ({"datasets": {"train": {"augmentation": ["mixup"], "aug_prob": [1]}}}, "augmentation"),
        ({"datasets": {"train": {"bit_depth": 16}}}, "bit_depth"),
        ({}, ""),
    ],
)
def test_a_set_of_a_plugin_refuses_what_it_would_ignore(
    write_images: Write, tmp_path: Path, keys: dict[str, Any], named: str
) -> None:
    (tmp_path / "ramps.py").write_text(PLUGIN, encoding="utf-8")
    options = tiny_options(
        write_images("gt", 1), train={"total_iter": 1}, plugins=["ramps"], val={"val_enabled": False}
    )
    options["datasets"]["train"] |= {"type": "Ramps", "num_worker_per_gpu": 0}
    done = train(write_options(tmp_path / "run.yml", merged(options, keys)))
    if named:
        assert done.returncode == 2
        assert f"takes no {named}" in " ".join(done.stderr.split()) or f"no argument '{named}'" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
