"""Samples whose low-quality images are made at random."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.tasks.sr.degradations.settings import SETTINGS
from trainauto.data import SampleKey
from trainauto.tasks.sr.data import GTImageDataset, RealESRGANDataset, RealESRGANPairedDataset
from trainauto.tasks.sr.degradations.image import to_image, to_pixels
from trainauto.tasks.sr.degradations.sharpening import Sharpening, sharpened

SCALE, SIDE = 2, 16
WriteImages = Callable[..., Path]


def dataset(folder: Path, **changes: Any) -> RealESRGANDataset:
    return RealESRGANDataset(str(folder), **{"scale": SCALE, "degradations": SETTINGS, **changes})


def test_targets_are_the_crop_that_a_set_of_files_would_give(write_images: WriteImages) -> None:
    """Where the window covers the image, only flips and the inner crop remain: the target is a part of the image."""
    folder = write_images("gt", 1, (100, 120))
    whole = GTImageDataset(str(folder), scale=SCALE).full_sample(0)["gt"].numpy()
    made = dataset(folder, use_hflip=False, use_rot=False)
    for seed in range(20):
        sample = made[SampleKey(0, SIDE, seed)]
        gt = sample["gt"].numpy()
        assert sample["lq"].shape == (3, SIDE, SIDE)
        windows = np.lib.stride_tricks.sliding_window_view(whole, gt.shape[1:], axis=(1, 2))
        places = np.argwhere((windows[0] == gt[0]).all(axis=(-1, -2)))
        assert any((whole[:, y : y + 2 * SIDE, x : x + 2 * SIDE] == gt).all() for y, x in places)
        assert all(y % SCALE == 0 and x % SCALE == 0 for y, x in places if places.shape[0] == 1)


def test_low_quality_crops_lie_where_their_targets_do(write_images: WriteImages) -> None:
    """With nothing drawn but sizes, the crop is about what shrinking its target gives."""
    stage = replace(
        SETTINGS.first,
        blur_prob=0,
        resize_weights=(0, 0, 1),
        resize_modes={"area": 1},
        noise_range=(0, 0),
        poisson_scale_range=(0, 0),
        compression_prob=0,
    )
    still = replace(SETTINGS, first=stage, second=stage, final_modes={"area": 1}, final_sinc_prob=0)
    made = dataset(write_images("gt", 3, (100, 120)), degradations=still)
    for seed in range(12):
        sample = made[SampleKey(seed % 3, SIDE, seed)]
        gt = sample["gt"].float().reshape(3, SIDE, SCALE, SIDE, SCALE).mean(dim=(2, 4))
        assert (sample["lq"].float() - gt).abs().max() <= 1


@pytest.mark.parametrize(("height", "width"), [(20, 300), (9, 9), (1, 70)])
def test_images_of_any_size(write_images: WriteImages, height: int, width: int) -> None:
    made = dataset(write_images("gt", 1, (max(height, 2), width)))
    sample = made[SampleKey(0, SIDE, 5)]
    assert {name: tuple(tensor.shape) for name, tensor in sample.items()} == {
        "lq": (3, SIDE, SIDE),
        "gt": (3, SIDE * SCALE, SIDE * SCALE),
    }


def test_what_is_sharpened(write_images: WriteImages) -> None:
    folder = write_images("gt", 1, (100, 120))
    key = SampleKey(0, SIDE, 7)
    plain = dataset(folder)[key]
    target = dataset(folder, references=("gt", "gt_usm"))[key]
    assert torch.equal(target["gt"], plain["gt"])
    assert torch.equal(target["lq"], plain["lq"])
    assert not torch.equal(target["gt_usm"], plain["gt"])
    of_basicsr = dataset(folder, references=("gt", "gt_usm"), sharpening=Sharpening(degraded=True))[key]
    assert torch.equal(of_basicsr["gt_usm"], target["gt_usm"])
    assert not torch.equal(of_basicsr["lq"], plain["lq"])
    both = dataset(folder, sharpening=Sharpening(degraded=True, target=True))[key]
    assert torch.equal(both["gt"], target["gt_usm"])
    assert torch.equal(both["lq"], of_basicsr["lq"])
    of_redux, drawn = dataset(folder, sharpening=Sharpening(radii_px=(3, 9))).drawn(key)
    assert drawn[0].step == "sharpening"
    assert 3 <= drawn[0].values["radius"] <= 9  # type: ignore[operator]
    assert np.array_equal(of_redux["gt"], plain["gt"].permute(1, 2, 0).numpy())


def test_whole_images_are_the_same_each_time(write_images: WriteImages) -> None:
    made = dataset(write_images("gt", 2, (61, 75)))
    first, again = made.full_sample(1), made.full_sample(1)
    assert torch.equal(first["lq"], again["lq"])
    assert tuple(first["lq"].shape) == (3, 30, 37)
    assert tuple(first["gt"].shape) == (3, 60, 74)


def test_pairs_come_as_often_as_asked(write_images: WriteImages) -> None:
    gt, lq = write_images("gt", 2, (80, 80)), write_images("lq", 2, (40, 40), shrink=2)
    made = RealESRGANPairedDataset(
        str(gt), str(lq), scale=SCALE, degradations=SETTINGS, dataroot_lq_prob=0.25, references=("gt", "gt_usm")
    )
    kinds = [made.drawn(SampleKey(seed % 2, SIDE, seed * 7919))[1][0].step == "pair of files" for seed in range(400)]
    assert np.mean(kinds) == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 400) ** 0.5)
    sample = made[SampleKey(0, SIDE, kinds.index(True) * 7919)]
    sharp = to_pixels(sharpened(to_image(sample["gt"].permute(1, 2, 0).numpy())))
    assert torch.equal(sample["gt_usm"], torch.from_numpy(sharp.transpose(2, 0, 1).copy()))
