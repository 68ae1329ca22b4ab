"""Folders to samples: pairing, preflight, crops, cache."""

import hashlib
import os
import socket
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from trainauto.core.errors import InputError
from trainauto.data import GTImageDataset, PairedImageDataset, SampleKey
from trainauto.tasks.sr.data.geometry import shrunk
from trainauto.tasks.sr.data.image_files import IMAGE_SUFFIXES, list_images
from trainauto.tasks.sr.data.image_io import image_size_px, read_image
from trainauto.tasks.sr.data.large_images import read_picture
from trainauto.tasks.sr.data.pixel_cache import PixelCache
from trainauto.tasks.sr.data.pixel_format import PixelFormat
from trainauto.tasks.sr.data.reading import Reading

Write = Callable[..., Path]


@pytest.fixture
def pair_roots(write_images: Write) -> tuple[Path, Path]:
    gt = write_images("gt", 4)
    lq = gt.parent / "lq"
    lq.mkdir()
    for file in gt.iterdir():
        small = shrunk(read_image(str(file), 3), 2)
        cv2.imwrite(str(lq / file.name), cv2.cvtColor(small, cv2.COLOR_RGB2BGR))
    return gt, lq


def test_gt_only_equals_the_folder_of_shrunk_images(pair_roots: tuple[Path, Path]) -> None:
    gt, lq = pair_roots
    alone = GTImageDataset(str(gt), scale=2)
    paired = PairedImageDataset(str(gt), str(lq), scale=2)
    for seed in range(20):
        key = SampleKey(seed % 4, 16, seed)
        for name in ("lq", "gt"):
            np.testing.assert_array_equal(alone[key][name], paired[key][name])
        assert alone[key]["gt"].shape == (3, 32, 32)
    for name in ("lq", "gt"):
        np.testing.assert_array_equal(alone.full_sample(1)[name], paired.full_sample(1)[name])


def test_pixels_of_pair_show_the_same_place(pair_roots: tuple[Path, Path]) -> None:
    """Shrinking the gt crop gives nearly the lq crop: flips and places agree."""
    gt, lq = pair_roots
    paired = PairedImageDataset(str(gt), str(lq), scale=2)
    for seed in range(16):
        sample = paired[SampleKey(0, 24, seed)]
        again = shrunk(sample["gt"].permute(1, 2, 0).numpy(), 2).astype(int)
        assert np.abs(again[3:-3, 3:-3] - sample["lq"].permute(1, 2, 0).numpy()[3:-3, 3:-3].astype(int)).mean() < 1


def test_images_smaller_than_the_crop_are_mirrored(write_images: Write) -> None:
    dataset = GTImageDataset(str(write_images("tiny", 1, (20, 12))), scale=2)
    sample = dataset[SampleKey(0, 16, 5)]
    assert sample["lq"].shape == (3, 16, 16)
    assert sample["gt"].shape == (3, 32, 32)
    assert dataset.scan().smallest_size == 6


KINDS = (".jpg", ".png", ".webp", ".tif")


def save_turned(file: Path, shown: np.ndarray, orientation: int) -> None:
    """Write an image that is to be seen as ``shown``, stored as a camera would that was held in another way."""
    stored = {2: np.fliplr, 3: lambda a: np.rot90(a, 2), 4: np.flipud, 5: lambda a: a.swapaxes(0, 1)}
    stored |= {6: np.rot90, 7: lambda a: np.rot90(a, 2).swapaxes(0, 1), 8: lambda a: np.rot90(a, -1)}
    picture = Image.fromarray(np.ascontiguousarray(stored.get(orientation, lambda a: a)(shown)))
    exif = picture.getexif()
    exif[0x0112] = orientation
    picture.save(file, exif=exif, **({"lossless": True} if file.suffix == ".webp" else {"quality": 100}))


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize("orientation", range(10))
def test_upright_everywhere(tmp_path: Path, photograph: np.ndarray, suffix: str, orientation: int) -> None:
    """As seen: in sizes, in training, in the cache, and in what ``upscale`` reads (0 and 9 are no orientations)."""
    shown, file = photograph[:40, :60], tmp_path / f"turned{suffix}"
    save_turned(file, shown, orientation)
    assert image_size_px(str(file)) == (40, 60)
    cache = PixelCache(str(tmp_path / "cache"), PixelFormat(3))
    for found in (read_image(str(file), 3), cache.read(str(file)), cache.read(str(file))):
        assert found.shape == shown.shape
        assert np.abs(found.astype(int) - shown).mean() < 3
    assert np.array_equal(read_picture(str(file), 3).pixels, read_image(str(file), 3))
    assert read_image(str(file), 1).shape == (40, 60, 1)


def test_alpha_is_turned_with_its_colours(tmp_path: Path, photograph: np.ndarray) -> None:
    for suffix, orientation in ((".png", 6), (".webp", 5), (".tif", 3)):
        shown = np.dstack([photograph[:40, :60], np.tile(np.arange(60, dtype=np.uint8) + 1, (40, 1))])
        save_turned(tmp_path / f"alpha{suffix}", shown, orientation)
        found = read_picture(str(tmp_path / f"alpha{suffix}"), 3)
        assert np.array_equal(found.pixels, shown[..., :3])
        assert found.alpha is not None
        assert np.array_equal(found.alpha, shown[..., 3])
    save_turned(tmp_path / "alpha.tif", shown, 6)
    with pytest.raises(InputError, match=r"alpha\.tif upright.*\n.*as PNG"):
        read_picture(str(tmp_path / "alpha.tif"), 3)


def test_a_pair_of_which_one_lies_on_its_side_is_refused(tmp_path: Path, photograph: np.ndarray) -> None:
    for side, size, orientation in (("gt", 2, 6), ("lq", 1, 1)):
        (tmp_path / side).mkdir()
        shown = photograph[: 40 * size, : 60 * size]
        save_turned(tmp_path / side / "a.png", shown if side == "gt" else shown.swapaxes(0, 1), orientation)
    dataset = PairedImageDataset(str(tmp_path / "gt"), str(tmp_path / "lq"), scale=2)
    with pytest.raises(InputError, match=r"120x80.*\n  One of the two lies on its side.*EXIF"):
        dataset.scan()


def test_files_of_a_cache_of_before_are_not_taken(tmp_path: Path, photograph: np.ndarray) -> None:
    save_turned(tmp_path / "a.png", photograph[:40, :60], 6)
    cache = PixelCache(str(tmp_path / "cache"), PixelFormat(3))
    cache.read(str(tmp_path / "a.png"))
    ((now,), stat) = list(cache.folder.iterdir()), (tmp_path / "a.png").stat()
    identity = f"{(tmp_path / 'a.png').resolve()}|{stat.st_size}|{stat.st_mtime_ns}|3"
    before = cache.folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.npy"
    np.save(before, np.zeros((60, 40, 3), np.uint8))
    now.unlink()
    assert cache.read(str(tmp_path / "a.png")).shape == (40, 60, 3)
    assert list(cache.folder.iterdir()) == [now], "what nobody reads any more takes no room"


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_formats(write_images: Write, suffix: str) -> None:
    dataset = GTImageDataset(str(write_images("formats", 2, suffix=suffix)), scale=2)
    assert dataset.scan().samples == 2
    assert dataset.full_sample(0)["gt"].shape == (3, 64, 80)


@pytest.mark.parametrize("suffix", sorted(IMAGE_SUFFIXES - {".pgm"}))
def test_all_kinds_that_are_read_are_read_alike(tmp_path: Path, photograph: np.ndarray, suffix: str) -> None:
    shown, kind = photograph[:40, :60], {".jfif": "JPEG", ".jpe": "JPEG", ".pnm": "PPM"}
    Image.fromarray(shown).save(tmp_path / f"a{suffix}", kind.get(suffix), quality=95)
    dataset = GTImageDataset(str(tmp_path), scale=2, channels=3)
    assert (dataset.scan().samples, dataset.scan().smallest_size) == (1, 20)
    found = dataset.full_sample(0)["gt"].numpy().transpose(1, 2, 0)
    assert np.abs(found.astype(int) - shown).mean() < 3
    assert GTImageDataset(str(tmp_path), scale=2, channels=1).full_sample(0)["gt"].shape == (1, 40, 60)
    with_alpha = read_picture(str(tmp_path / f"a{suffix}"), 3)
    assert np.array_equal(with_alpha.pixels, read_image(str(tmp_path / f"a{suffix}"), 3))


@pytest.mark.skipif(".avif" not in IMAGE_SUFFIXES, reason="this Pillow reads no AVIF")
def test_an_avif_is_turned_upright_once(tmp_path: Path, photograph: np.ndarray) -> None:
    tag = Image.Exif()
    tag[0x112] = 6
    Image.fromarray(np.rot90(photograph[:40, :60])).save(tmp_path / "a.avif", exif=tag, quality=95)
    assert image_size_px(str(tmp_path / "a.avif")) == (40, 60)
    assert np.abs(read_image(str(tmp_path / "a.avif"), 3).astype(int) - photograph[:40, :60]).mean() < 3


def test_grey_from_colour_and_colour_from_grey(tmp_path: Path, write_images: Write) -> None:
    colour = write_images("colour", 1)
    grey = tmp_path / "grey"
    grey.mkdir()
    cv2.imwrite(str(grey / "a.png"), np.full((40, 40), 77, np.uint8))
    assert GTImageDataset(str(colour), scale=2, channels=1)[SampleKey(0, 8, 0)]["lq"].shape == (1, 8, 8)
    assert GTImageDataset(str(grey), scale=2, channels=3)[SampleKey(0, 8, 0)]["gt"].unique().tolist() == [77]


def test_alpha_sixteen_bits_and_odd_names(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "16.png"), np.full((10, 10, 3), 257 * 200, np.uint16))
    cv2.imwrite(str(tmp_path / "alpha.png"), np.full((10, 10, 4), 200, np.uint8))
    (tmp_path / "alpha.png").rename(tmp_path / "ätherisch 日本.png")
    for file in tmp_path.iterdir():
        image = read_image(str(file), 3)
        assert image.shape == (10, 10, 3)
        assert image.dtype == np.uint8
        assert abs(int(image[0, 0, 0]) - 200) <= 1


def test_several_roots_single_files_and_packages(write_images: Write) -> None:
    one, two = write_images("one", 2), write_images("two/deeper", 3)
    roots = [str(one), str(two.parent), str(one / "image_000.png"), "package:skimage/data/coffee.png"]
    keys = [file.key for file in list_images(roots, set_name="x")]
    assert keys[:3] == ["image_000", "image_001", "deeper/image_000"]
    assert len(keys) == 7


def test_equal_keys_of_several_roots_get_names_of_their_own(write_images: Write, tmp_path: Path) -> None:
    """Pictures and scores are kept by these names: equal ones would overwrite each other."""
    roots = [write_images(folder, 1) for folder in ("r1", "r2", "other/r1")]
    write_images("r1", 1, suffix=".jpg")
    cv2.imwrite(str(roots[1] / "alone.png"), np.zeros((40, 40, 3), np.uint8))
    write_images("other/r1/r2", 1)  # below its root, what the second root's image is to be called
    lone = str(write_images("lone", 1) / "image_000.png")
    dataset = GTImageDataset([*map(str, roots), lone], scale=2)
    by_name = {dataset.sample_key(index): dataset.sample_name(index) for index in range(len(dataset))}
    assert {name: str(Path(file).relative_to(tmp_path).as_posix()) for name, file in by_name.items()} == {
        "r1/image_000": "r1/image_000.jpg",
        "r1_2/image_000": "r1/image_000.png",
        "alone": "r2/alone.png",
        "r2_2/image_000": "r2/image_000.png",
        "r1_3/image_000": "other/r1/image_000.png",
        "r2/image_000": "other/r1/r2/image_000.png",
        "lone/image_000": "lone/image_000.png",
    }


def test_the_root_here_has_the_name_of_its_folder(write_images: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_images("here", 1))
    dataset = GTImageDataset([".", str(write_images("there", 1))], scale=2)
    assert [dataset.sample_key(index) for index in range(2)] == ["here/image_000", "there/image_000"]


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("{tmp}/missing", ["dataset 'photos'", "there is no", "Did you mean 'missings'"]),
        ("{tmp}/empty", ["dataset 'photos'", "no images"]),
        ("package:notthere/data", ["'notthere' is not installed"]),
        ("package:skimage/data/cofee.png", ["coffee.png"]),
    ],
)
def test_roots_that_cannot_be_used(tmp_path: Path, root: str, words: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "missings").mkdir()
    with pytest.raises(InputError) as caught:
        GTImageDataset(root.format(tmp=tmp_path), scale=2, name="photos")
    for word in words:
        assert word in str(caught.value)


def test_pair_counts_name_the_set_and_the_files(pair_roots: tuple[Path, Path]) -> None:
    gt, lq = pair_roots
    (lq / "image_001.png").rename(lq / "imag_001.png")
    with pytest.raises(InputError) as caught:
        PairedImageDataset(str(gt), str(lq), scale=2, name="pairs")
    text = str(caught.value)
    assert "dataset 'pairs': 4 gt and 4 lq images, of which 3 make pairs" in text
    assert "1 gt image without a partner" in text
    assert "image_001.png (nearest: imag_001)" in text
    assert "1 lq image without a partner" in text


def test_scale_suffix_pairs(pair_roots: tuple[Path, Path]) -> None:
    gt, lq = pair_roots
    for file in list(lq.iterdir()):
        file.rename(lq / f"{file.stem}x2.png")
    assert len(PairedImageDataset(str(gt), str(lq), scale=2)) == 4


def test_two_images_of_one_name_are_refused(pair_roots: tuple[Path, Path]) -> None:
    gt, lq = pair_roots
    cv2.imwrite(str(gt / "image_000.jpg"), np.zeros((64, 80, 3), np.uint8))
    with pytest.raises(InputError, match="two gt images are called 'image_000'"):
        PairedImageDataset(str(gt), str(lq), scale=2)


def test_preflight_finds_scale_mismatch(pair_roots: tuple[Path, Path]) -> None:
    gt, lq = pair_roots
    with pytest.raises(InputError) as caught:
        PairedImageDataset(str(gt), str(lq), scale=4, name="pairs").scan()
    assert "dataset 'pairs'" in str(caught.value)
    assert "They are for `scale: 2`" in str(caught.value)
    assert "image_000.png is 80x64" in str(caught.value)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_preflight_finds_damage_without_decoding(write_images: Write, suffix: str) -> None:
    folder = write_images("damaged", 3, suffix=suffix)
    whole = (folder / f"image_001{suffix}").read_bytes()
    (folder / f"image_001{suffix}").write_bytes(whole[: len(whole) * 2 // 3])
    (folder / f"image_002{suffix}").write_bytes(b"this is text")
    with pytest.raises(InputError) as caught:
        GTImageDataset(str(folder), scale=2, name="photos").scan()
    problems = caught.value.problems
    assert len(problems) == 2
    # Pillow itself refuses a WebP that is cut short.
    assert "ends too early" in problems[0].message or suffix == ".webp"
    assert f"image_001{suffix}" in problems[0].message
    assert f"image_002{suffix}" in problems[1].message
    assert all("photos" in problem.message for problem in problems)


def test_name_of_another_kind_changes_nothing(tmp_path: Path, photograph: np.ndarray) -> None:
    shown = photograph[:40, :60]
    for suffix, name in ((".jpg", "a.tif"), (".tif", "b.png")):
        save_turned(tmp_path / f"turned{suffix}", shown, 6)
        file = str((tmp_path / f"turned{suffix}").rename(tmp_path / name))
        assert image_size_px(file) == (40, 60)
        assert np.abs(read_image(file, 3).astype(int) - shown).mean() < 3


def test_sixteen_bits_are_counted_once_a_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for folder, name, depth in (("a", "1.png", 16), ("a", "2.tif", 16), ("a", "3.png", 8), ("b", "4.png", 16)):
        (tmp_path / folder).mkdir(exist_ok=True)
        cv2.imwrite(str(tmp_path / folder / name), np.zeros((8, 8, 3), np.uint16 if depth == 16 else np.uint8))
    GTImageDataset(str(tmp_path), scale=2, name="hr").scan()
    a, b = (message for message in caplog.messages if "16 bits" in message)
    assert a.startswith(f"dataset 'hr': 16 bits are reduced to 8: 2 of the images in {tmp_path / 'a'} (1.png, ...).")
    assert "1 of the images in" in b
    caplog.clear()
    GTImageDataset(str(tmp_path), scale=2, reading=Reading(bits=16)).scan()
    assert not caplog.messages


def test_floating_point_is_refused_before_the_run(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "hdr.tif"), np.zeros((8, 8), np.float32))
    with pytest.raises(InputError, match=r"hdr\.tif"):
        GTImageDataset(str(tmp_path), scale=2).scan()


def test_preflight_names_the_smallest(write_images: Write, tmp_path: Path) -> None:
    folder = write_images("sizes", 2)
    cv2.imwrite(str(folder / "zz_small.png"), np.zeros((30, 50, 3), np.uint8))
    scan = GTImageDataset(str(folder), scale=2).scan()
    assert (scan.samples, scan.smallest_size) == (3, 15)
    assert scan.smallest_name.endswith("zz_small.png")
    assert scan.bytes == (2 * 64 * 80 + 30 * 50) * 3
    cv2.imwrite(str(folder / "dot.png"), np.zeros((1, 1, 3), np.uint8))
    with pytest.raises(InputError, match="less than one pixel"):
        GTImageDataset(str(folder), scale=2).scan()


def test_size_agrees_with_decoding(write_images: Write) -> None:
    for file in write_images("any", 2, suffix=".jpg").iterdir():
        assert image_size_px(str(file)) == read_image(str(file), 3).shape[:2]


def test_cache_gives_the_same_pixels_and_notices_edits(write_images: Write, tmp_path: Path) -> None:
    folder = write_images("cached", 2)
    plain = GTImageDataset(str(folder), scale=2)
    cached = GTImageDataset(str(folder), scale=2, reading=Reading(cache_dir=str(tmp_path / "cache")))
    for seed in range(6):
        key = SampleKey(seed % 2, 16, seed)
        np.testing.assert_array_equal(plain[key]["lq"], cached[key]["lq"])
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2
    cv2.imwrite(str(folder / "image_000.png"), np.full((64, 80, 3), 9, np.uint8))
    assert cached.full_sample(0)["gt"].unique().tolist() == [9]


def test_damaged_cache_file_is_decoded_again(write_images: Write, tmp_path: Path) -> None:
    file = str(write_images("cached", 1) / "image_000.png")
    cache = PixelCache(str(tmp_path / "cache"), PixelFormat(3))
    want = np.array(cache.read(file))
    [stored] = (tmp_path / "cache").glob("*.npy")
    stored.write_bytes(stored.read_bytes()[:100])
    np.testing.assert_array_equal(cache.read(file), want)


def test_cache_larger_than_the_disk_is_refused_before_training(tmp_path: Path, write_images: Write) -> None:
    file = str(write_images("one", 1) / "image_000.png")
    with pytest.raises(InputError, match="pixel cache needs"):
        PixelCache(str(tmp_path / "cache"), PixelFormat(3)).check_room([(file, 10**7, 10**7)], set_name="photos")


def test_a_link_that_leads_nowhere_is_named(write_images: Write, caplog: pytest.LogCaptureFixture) -> None:
    """To a folder on a drive that is not there, as a rule: a part of the set is missing."""
    folder = write_images("gt", 1)
    (folder / "more").symlink_to("unplugged")
    dataset = GTImageDataset(str(folder), scale=2)
    assert "more in " in caplog.text
    assert "leads nowhere, and is left out" in caplog.text
    assert dict(dataset.not_read) == {"broken link": 1}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="FIFOs are Unix's")
@pytest.mark.timeout(20)
def test_what_is_no_file_is_never_opened(write_images: Write, caplog: pytest.LogCaptureFixture) -> None:
    """Opening a FIFO blocks until another process writes to it."""
    folder = write_images("gt", 2)
    os.mkfifo(folder / "pipe.png")
    (folder / "zero.jpg").symlink_to(os.devnull)
    with socket.socket(socket.AF_UNIX) as listening, chdir(folder):
        listening.bind("socket.webp")
        dataset = GTImageDataset(str(folder), scale=2)
        assert dataset.scan().samples == 2
    for name in ("pipe.png", "zero.jpg", "socket.webp"):
        assert f"{folder / name} is a FIFO, a socket or a device, and is left out" in caplog.text
    assert dict(dataset.not_read) == {"a FIFO, a socket or a device": 3}
    for read in (image_size_px, lambda path: read_image(path, 3), lambda path: read_picture(path, 3)):
        with pytest.raises(InputError, match=r"pipe\.png(?s:.*)it is a FIFO, a socket or a device"):
            read(str(folder / "pipe.png"))
    with pytest.raises(InputError, match=r"pipe\.png is a FIFO, a socket or a device") as caught:
        GTImageDataset(str(folder / "pipe.png"), scale=2)
    assert caught.value.problems[0].argument == "dataroot_gt"
