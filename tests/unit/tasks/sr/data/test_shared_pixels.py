"""Decoded pixels that the run and its workers share."""

import logging
import os
import pickle
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from tests.unit.tasks.sr.degradations.settings import SETTINGS
from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader
from trainauto.tasks.sr.data import GTImageDataset, PairedImageDataset, RealESRGANDataset
from trainauto.tasks.sr.data import image_dataset as module
from trainauto.tasks.sr.data.image_io import read_image
from trainauto.tasks.sr.data.pixel_format import PixelFormat
from trainauto.tasks.sr.data.shared_pixels import SharedPixels, bytes_of, room_bytes

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


def held_bytes() -> int:
    """Return what this process and its workers hold; pages that they share count once."""
    here = os.getpid()
    processes = [here, *Path(f"/proc/{here}/task/{here}/children").read_text().split()]
    rollups = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in processes]
    found = [re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE) for rollup in rollups]
    return sum(int(pss[1]) * 1024 for pss in found if pss)


def most_grown_bytes(folder: Path) -> int:
    """Return by how much memory grows at most while two workers read a degraded set."""
    dataset = RealESRGANDataset(str(folder), scale=2, degradations=SETTINGS)
    dataset.keeps_decoded = True
    dataset.scan()
    before = held_bytes()
    plan = Plan.of(batch_size=4, lq_size=16)
    with DynamicDataLoader(dataset, plan, seed=1, num_workers=2, lookahead=4) as loader:
        return max(held_bytes() - before for _ in zip(range(len(dataset) // 4), loader, strict=False))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what processes hold")
def test_a_set_larger_than_its_share_takes_no_more_memory_while_it_is_read(
    tmp_path: Path, photograph: np.ndarray, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The room is made small by many ranks, who share the free memory; where the set fits, it is seen to be kept."""
    first = tmp_path / "gt" / "image_000.jpg"
    first.parent.mkdir()
    assert cv2.imwrite(str(first), cv2.resize(photograph, (2040, 1356)))
    for number in range(1, 24):
        shutil.copy(first, first.with_name(f"image_{number:03d}.jpg"))
    set_bytes = 24 * 2040 * 1356 * 3
    kept = most_grown_bytes(first.parent)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(room_bytes() // (set_bytes // 4)))
    with caplog.at_level(logging.INFO):
        read = most_grown_bytes(first.parent)
    assert "decoded pixels take 189.9 MiB, more than " in caplog.text
    assert kept > set_bytes
    assert kept - read > 0.9 * set_bytes, "beside the pixels both grow by what two workers need"
    assert read < 0.75 * set_bytes


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
