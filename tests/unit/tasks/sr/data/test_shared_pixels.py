"""Decoded pixels that the run and its workers share."""

import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader
from trainauto.tasks.sr.data import GTImageDataset, PairedImageDataset
from trainauto.tasks.sr.data import image_dataset as module
from trainauto.tasks.sr.data.image_io import read_image
from trainauto.tasks.sr.data.pixel_format import PixelFormat
from trainauto.tasks.sr.data.shared_pixels import SharedPixels, bytes_of

WriteImages = Callable[..., Path]


def scanned(folder: Path) -> GTImageDataset:
    dataset = GTImageDataset(str(folder), scale=2)
    dataset.keeps_decoded = True
    dataset.scan()
    return dataset


def batches(dataset: GTImageDataset, workers: int) -> list[torch.Tensor]:
    plan = Plan.of(batch_size=3, lq_size=16)
    with DynamicDataLoader(dataset, plan, seed=1, num_workers=workers, lookahead=4) as loader:
        return [batch.tensors["lq"].clone() for _, batch in zip(range(6), loader, strict=False)]


@pytest.mark.parametrize("workers", [0, 2])
def test_images_are_decoded_once_whoever_reads_them(write_images: WriteImages, workers: int) -> None:
    """18 samples of 5 images; what workers have decoded the run has, too."""
    folder = write_images("gt", 5, (61, 75))
    kept = scanned(folder)
    assert isinstance(kept._cache, SharedPixels)
    made = batches(kept, workers)
    assert kept._cache.kept == 5
    plain = GTImageDataset(str(folder), scale=2)
    plain.scan()
    assert plain._cache is None
    assert all(map(torch.equal, made, batches(plain, 0)))
    view = kept._cache.read(str(folder / "image_003.png"))
    assert np.array_equal(view, read_image(str(folder / "image_003.png"), 3))
    assert not view.flags.writeable


def test_pairs_are_kept_too(write_images: WriteImages) -> None:
    gt, lq = write_images("gt", 2, (40, 60)), write_images("lq", 2, (20, 30), shrink=2)
    dataset = PairedImageDataset(str(gt), str(lq), scale=2)
    dataset.keeps_decoded = True
    dataset.scan()
    assert isinstance(dataset._cache, SharedPixels)
    assert bytes_of(dataset._sizes_px, PixelFormat(3)) == 2 * 3 * (40 * 60 + 20 * 30)
    dataset.full_sample(1)
    assert dataset._cache.kept == 2


def test_a_set_that_is_too_large_is_read_from_its_files_and_said(
    write_images: WriteImages, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "room_bytes", lambda: 5 * 60 * 70 * 3 - 1)
    with caplog.at_level(logging.INFO):
        assert scanned(write_images("gt", 5, (60, 70)))._cache is None
    assert "`cache_dir: FOLDER` in this set keeps decoded pixels on disk" in caplog.text


def test_a_process_that_shares_nothing_reads_the_files(write_images: WriteImages) -> None:
    folder = write_images("gt", 1)
    pixels = SharedPixels({str(folder / "image_000.png"): (64, 80)}, PixelFormat(3))
    pixels.read(str(folder / "image_000.png"))
    alone = pickle.loads(pickle.dumps(pixels))
    assert pixels.kept == 1
    assert np.array_equal(alone.read(str(folder / "image_000.png")), pixels.read(str(folder / "image_000.png")))
    assert alone.kept == 0


def test_an_image_of_another_size_than_before_is_not_kept(write_images: WriteImages) -> None:
    file = write_images("gt", 1) / "image_000.png"
    pixels = SharedPixels({str(file): (64, 80)}, PixelFormat(3))
    cv2.imwrite(str(file), np.zeros((32, 40, 3), np.uint8))
    assert pixels.read(str(file)).shape == (32, 40, 3)
    assert pixels.kept == 0
