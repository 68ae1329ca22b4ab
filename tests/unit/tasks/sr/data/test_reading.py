"""Which images a set reads and how: at 16 bits, as luma, from a list, roots by weight."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader, SampleKey
from trainauto.tasks.sr.data import GTImageDataset, PairedImageDataset, RealESRGANDataset
from trainauto.tasks.sr.data.augmentations import Augmentations
from trainauto.tasks.sr.data.geometry import in_8_bits
from trainauto.tasks.sr.data.image_io import read_image, read_pixels
from trainauto.tasks.sr.data.pixel_format import PixelFormat
from trainauto.tasks.sr.data.reading import Reading
from trainauto.tasks.sr.data.shared_pixels import SharedPixels

Write = Callable[..., Path]
DEEP = Reading(bits=16)


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """Two photographs of 16 bits, one of them a TIFF, one of 8, and a grey one."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "deep"
    folder.mkdir()
    noise = rng.integers(0, 1 << 16, (40, 48, 3), dtype=np.uint16)
    smooth = cv2.GaussianBlur(noise, (0, 0), 2)
    for name in ("a.png", "b.tif"):
        cv2.imwrite(str(folder / name), smooth)
    cv2.imwrite(str(folder / "c.png"), (smooth >> 8).astype(np.uint8))
    cv2.imwrite(str(folder / "d.png"), smooth[:, :, 0])
    return folder


@pytest.mark.parametrize("name", ["a.png", "b.tif"])
def test_sixteen_bits_are_read_as_they_are(deep: Path, name: str) -> None:
    stored = cv2.imread(str(deep / name), cv2.IMREAD_UNCHANGED)[:, :, ::-1]
    pixels = read_pixels(str(deep / name), PixelFormat(3, 16))
    assert pixels.dtype == np.uint16
    assert np.array_equal(pixels, stored)
    assert len(np.unique(pixels)) > 256


def test_other_images_come_at_the_same_depth_and_brightness(deep: Path) -> None:
    of_8 = read_image(str(deep / "c.png"), 3)
    assert np.array_equal(read_pixels(str(deep / "c.png"), PixelFormat(3, 16)), of_8.astype(np.uint16) * 257)
    grey = read_pixels(str(deep / "d.png"), PixelFormat(3, 16))
    assert np.array_equal(grey[:, :, 0], cv2.imread(str(deep / "d.png"), cv2.IMREAD_UNCHANGED))
    Image.fromarray(of_8).save(deep / "e.gif")
    assert read_pixels(str(deep / "e.gif"), PixelFormat(1, 16)).dtype == np.uint16


@pytest.mark.parametrize("kept", ["files", "memory", "disk"])
def test_crops_are_of_sixteen_bits_wherever_pixels_are_kept(deep: Path, tmp_path: Path, kept: str) -> None:
    reading = Reading(bits=16, cache_dir=str(tmp_path / "cache") if kept == "disk" else None)
    dataset = GTImageDataset(str(deep), scale=2, reading=reading, use_hflip=False, use_rot=False)
    dataset.keeps_decoded = kept == "memory"
    scan = dataset.scan()
    assert scan.bytes == 4 * 40 * 48 * 3 * 2
    assert isinstance(dataset._cache, SharedPixels) == (kept == "memory")
    whole = dataset.full_sample(0)["gt"].numpy()
    for seed in (1, 2):
        sample = dataset[SampleKey(0, 8, seed)]
        assert (sample["lq"].dtype, sample["gt"].dtype) == (torch.uint16, torch.uint16)
        crop = sample["gt"].numpy()
        windows = np.lib.stride_tricks.sliding_window_view(whole, crop.shape[1:], axis=(1, 2))
        assert (windows == crop[:, None, None]).all(axis=(0, 3, 4)).any()
        # As the float image shrunk, to half a level of 65,535.
        gt = torch.from_numpy(whole.astype(np.float64))[None]
        small = torch.nn.functional.interpolate(gt, (20, 24), mode="bicubic", antialias=True)[0].numpy()
        assert np.abs(dataset.full_sample(0)["lq"].numpy() - small).max() < 0.52
    dummy = dataset.workload.dummy(1, 8)
    assert {name: tensor.dtype for name, tensor in dummy.items()} == dict.fromkeys(sample, torch.uint16)


def test_degraded_and_augmented_crops_have_one_depth_and_a_loader_takes_them(deep: Path) -> None:
    dataset = RealESRGANDataset(str(deep), scale=2, reading=DEEP, references=("gt", "gt_usm"))
    dataset.augmentations = Augmentations(["mixup", "cutmix", "up"], [1, 1, 1])
    plan = Plan.of(batch_size=2, lq_size=8)
    with DynamicDataLoader(dataset, plan, seed=1, num_workers=1, lookahead=2) as loader:
        batch = next(iter(loader))
    assert {tensor.dtype for tensor in batch.tensors.values()} == {torch.uint16}
    assert batch.tensors["lq"].shape == (2, 3, 8, 8)
    unmixed = RealESRGANDataset(str(deep), scale=2, reading=DEEP)[SampleKey(0, 8, 3)]
    assert (unmixed["lq"].int() % 257 == 0).all()  # rounded to 8 bits, as the steps leave it
    assert not (unmixed["gt"].int() % 257 == 0).all()
    (shown, _) = dataset.workload.shown(batch.tensors, 2)  # type: ignore[attr-defined]
    assert shown["gt"].dtype == np.uint8
    assert np.array_equal(shown["gt"], in_8_bits(batch.tensors["gt"])[0].permute(1, 2, 0).numpy())


def test_luma_is_that_of_matlab(write_images: Write) -> None:
    """Y of rgb2ycbcr for known colours: white 235, black 16, red 81.481, green 144.553, blue 40.966."""
    folder = write_images("gt", 1, (8, 8))
    colours = np.array([[[255, 255, 255], [0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255]]], np.uint8)
    cv2.imwrite(str(folder / "colours.png"), colours[:, :, ::-1])
    expected = np.array([235, 16, 81.481, 144.553, 40.966])
    form = PixelFormat(1, is_luma=True)
    y = read_pixels(str(folder / "colours.png"), form)
    assert y.shape == (1, 5, 1)
    assert np.array_equal(y[0, :, 0], np.rint(expected))
    deep = read_pixels(str(folder / "colours.png"), PixelFormat(1, 16, is_luma=True))
    # 8 bits become luma first, so that both depths hold the same picture.
    assert np.abs(deep[0, :, 0] - 257 * expected).max() <= 257 / 2
    Image.fromarray(colours).save(folder / "colours.gif")
    assert np.array_equal(read_pixels(str(folder / "colours.gif"), form), y)
    dataset = GTImageDataset(str(folder / "image_000.png"), scale=2, channels=1, reading=Reading(is_luma=True))
    assert dataset.full_sample(0)["gt"].shape == (1, 8, 8)


def test_a_list_says_which_images_are_read(write_images: Write, tmp_path: Path) -> None:
    gt, lq = write_images("gt", 4, (40, 40)), write_images("lq", 4, (20, 20), shrink=2)
    file = tmp_path / "meta_info.txt"
    file.write_text("image_003.png (40,40,3)\n\nimage_001.png (40, 40, 3) 1\n", encoding="utf-8")
    reading = Reading(meta_info=str(file))
    for dataset in (
        GTImageDataset(str(gt), scale=2, reading=reading),
        PairedImageDataset(str(gt), str(lq), scale=2, reading=reading),
    ):
        assert [Path(dataset.sample_name(index)).name for index in range(len(dataset))] == [
            "image_001.png",
            "image_003.png",
        ]
        assert dataset.scan().samples == 2
    file.write_text("image_003.png\nimage_03.png (1,1,3)\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"names 1 of 2 images that are not there: image_03\.png") as refused:
        GTImageDataset(str(gt), scale=2, reading=reading)
    assert "image_003.png" in str(refused.value)
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(InputError, match="names no images"):
        GTImageDataset(str(gt), scale=2, reading=reading)
    with pytest.raises(InputError, match="cannot read"):
        GTImageDataset(str(gt), scale=2, reading=Reading(meta_info=str(tmp_path / "none.txt")))


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1, 1], {"many": 9, "few": 9}),
        ([3, 1], {"many": 9, "few": 3}),
        ([1, 3], {"many": 9, "few": 27}),
        ([9, 2], {"many": 14, "few": 3}),  # 13.5: the few come once, so that the many come again
    ],
)
def test_roots_are_drawn_by_their_weights(write_images: Write, weights: list[float], expected: dict[str, int]) -> None:
    many, few = write_images("many", 9, (16, 16)), write_images("few", 3, (16, 16))
    dataset: Any = GTImageDataset([str(many), str(few)], scale=2, reading=Reading(root_weights=weights))
    counts = Counter(Path(dataset.sample_name(index)).parent.name for index in range(len(dataset)))
    assert counts == expected
    images = Counter(dataset.sample_name(index) for index in range(len(dataset)))
    assert len(images) == 12
    for folder in ("many", "few"):
        of_folder = [count for name, count in images.items() if Path(name).parent.name == folder]
        assert max(of_folder) - min(of_folder) <= 1
    assert dataset.scan().samples == len(dataset)
    last = len(dataset) - 1
    assert torch.equal(dataset.full_sample(last)["gt"], dataset.full_sample(dataset.place_of(last))["gt"])


def test_other_weights_are_other_samples(write_images: Write) -> None:
    roots = [str(write_images(name, 3, (16, 16))) for name in ("a", "b")]
    plain, even, first, second = (
        GTImageDataset(roots, scale=2, reading=Reading(root_weights=weights))
        for weights in (None, [1, 1], [2, 1], [1, 2])
    )
    assert plain.identity() == even.identity()
    assert len(first) == len(second) == 9
    assert len({plain.identity(), first.identity(), second.identity()}) == 3


def test_there_is_one_weight_for_each_root(write_images: Write) -> None:
    folder = write_images("gt", 1)
    with pytest.raises(InputError, match="1 root and 2 weights"):
        GTImageDataset(str(folder), scale=2, reading=Reading(root_weights=[1, 2]))


def test_lists_of_other_systems_are_understood(write_images: Write, tmp_path: Path) -> None:
    gt = write_images("gt", 1, (16, 16))
    (gt / "sub").mkdir()
    for name in ("sub/x (1).png", "übung.png"):
        cv2.imwrite(str(gt / name), np.zeros((16, 16, 3), np.uint8))
    file = tmp_path / "list.txt"
    decomposed = "u\N{COMBINING DIAERESIS}bung.png"
    file.write_text(f"\ufeffsub\\x (1).png (16,16,3)\r\n{decomposed}\r\n", encoding="utf-8")
    reading = Reading(meta_info=str(file))
    assert len(GTImageDataset(str(gt), scale=2, reading=reading)) == 2
    file.write_text("image_000.png, lq/image_000.png\n", encoding="utf-8")
    with pytest.raises(InputError, match="Name one file on each line"):
        GTImageDataset(str(gt), scale=2, reading=reading)


def test_a_list_leaves_pairs_of_other_images_as_they_are(write_images: Write, tmp_path: Path) -> None:
    """Roots stay beside each other, and names that end in a scale keep their partners."""
    file = tmp_path / "list.txt"
    roots: dict[str, list[str]] = {"gt": [], "lq": []}
    for root, names in (("a", ("1", "2")), ("b", ("2", "3"))):
        for side, px in (("gt", 32), ("lq", 16)):
            folder = tmp_path / f"{side}_{root}"
            folder.mkdir()
            roots[side].append(str(folder))
            for name in names:
                cv2.imwrite(str(folder / f"{name}.png"), np.zeros((px, px, 3), np.uint8))
    file.write_text("1.png\n", encoding="utf-8")
    pairs = PairedImageDataset(roots["gt"], roots["lq"], scale=2, reading=Reading(meta_info=str(file)))
    assert [Path(pairs.sample_name(0)).name, len(pairs)] == ["1.png", 1]
    for name in ("a", "ax2", "b"):
        cv2.imwrite(f"{roots['gt'][0]}/{name}.png", np.zeros((32, 32, 3), np.uint8))
        cv2.imwrite(f"{roots['lq'][0]}/{name}x2.png", np.zeros((16, 16, 3), np.uint8))
    file.write_text("a.png\nax2.png\n", encoding="utf-8")
    pairs = PairedImageDataset(roots["gt"][0], roots["lq"][0], scale=2, reading=Reading(meta_info=str(file)))
    assert [Path(file.path).name for file in pairs._lq] == ["ax2.png", "ax2x2.png"]


def test_partners_are_other_images_where_images_are_repeated(write_images: Write) -> None:
    roots = [str(write_images(name, 2, (16, 16))) for name in ("a", "b")]
    dataset = GTImageDataset(roots, scale=2, reading=Reading(root_weights=[3, 1]))
    for sample in range(len(dataset)):
        for seed in range(30):
            partner = dataset._partner_of(SampleKey(sample, 8, seed)).sample
            assert dataset.place_of(partner) != dataset.place_of(sample)
