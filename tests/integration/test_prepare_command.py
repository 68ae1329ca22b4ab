"""Folders of images prepared for training: killed at any moment, changed in between, with files of every odd kind."""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.acceptance import ACCEPTANCE
from tests.conftest import PHOTOGRAPHS
from tests.integration.commands import command, environment, tiny_options, train, write_options
from tests.integration.ready_processes import begin
from trainauto.core.errors import InputError
from trainauto.tasks.sr.data.geometry import shrunk
from trainauto.tasks.sr.data.image_io import read_image
from trainauto.tasks.sr.degradations.image import to_image, to_pixels
from trainauto.tasks.sr.degradations.sharpening import sharpened
from trainauto.tasks.sr.preparation.journal import JOURNAL, REPORT
from trainauto.tasks.sr.preparation.low_quality import matlab_bicubic
from trainauto.tasks.sr.preparation.processes import in_processes
from trainauto.tasks.sr.preparation.tiles import Grid, cut, tile_name

COUNT, SIZE_PX = (200, (1356, 2040)) if ACCEPTANCE else (24, (300, 400))
TILE_PX, OVERLAP_PX = (480, 0) if ACCEPTANCE else (180, 20)
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9) if ACCEPTANCE else (0.4,)
"""Of the images: when it is killed while it writes."""
NAMES = ("astronaut.png", "coffee.png", "chelsea.png", "camera.png", "rocket.jpg", "motorcycle_left.png")
SETTINGS = ("--tile", f"{TILE_PX}", "--overlap", f"{OVERLAP_PX}", "--scale", "4", "--lq", "matlab", "--write")


def photographs(folder: Path, count: int, size_px: tuple[int, int]) -> Path:
    """Write cuts of photographs with noise, in two folders, and a copy that is a JPEG."""
    rng = np.random.default_rng(5)
    whole = [cv2.imread(str(PHOTOGRAPHS / name)) for name in NAMES]
    for number in range(count):
        image = whole[number % len(whole)]
        side = [int(rng.integers(100, length - 60)) for length in image.shape[:2]]
        top, left = (int(rng.integers(0, length - part)) for length, part in zip(image.shape, side, strict=False))
        pixels = cv2.resize(image[top : top + side[0], left : left + side[1]], size_px[::-1])
        noise = cv2.resize(rng.normal(0, 5, (size_px[0] // 2, size_px[1] // 2, 3)), size_px[::-1])
        file = folder / ("sub" if number % 3 else ".") / f"photo_{number:03d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(file), np.clip(pixels + noise, 0, 255).astype(np.uint8))
    cv2.imwrite(str(folder / "copy.jpg"), cv2.imread(str(folder / "photo_000.png")), [cv2.IMWRITE_JPEG_QUALITY, 90])
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def entries(folder: Path) -> dict[str, Any]:
    return {image["name"]: image for image in json.loads((folder / REPORT).read_text())["images"]}


def noted(folder: Path) -> dict[str, Any]:
    """What a command that was killed knew of images."""
    found: dict[str, Any] = {}
    for line in (folder / JOURNAL).read_bytes().splitlines():
        with suppress(ValueError):  # the last
            said = json.loads(line)
            found |= {image["name"]: image for image in said.get("images", [said])}
    return found


def killed_when(happened: Callable[[], bool], arguments: tuple[str, ...], cwd: Path) -> None:
    process = begin(["-m", "trainauto", *arguments], cwd=cwd, env=environment(), is_merged=False)
    deadline = time.monotonic() + 600
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.communicate(60)
    assert process.returncode == -signal.SIGKILL, "it had ended before"


def lines_in(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.is_file() else 0


def inodes(folder: Path, names: list[str]) -> dict[str, int]:
    return {name: (folder / "gt" / name).stat().st_ino for name in names}


@pytest.mark.timeout(1800)
def test_killed_again_and_again_equals_uninterrupted(tmp_path: Path) -> None:
    photographs(tmp_path / "photos", COUNT, SIZE_PX)
    again = ("prepare", "photos", "killed", *SETTINGS, "--workers", "3")
    killed, journal = tmp_path / "killed", tmp_path / "killed" / JOURNAL
    killed_when(lambda: lines_in(journal) >= COUNT // 4, again, tmp_path)
    for share in SHARES:
        killed_when(lambda share=share: len(list(killed.glob("gt/**/*_s001.png"))) > share * COUNT, again, tmp_path)  # type: ignore[misc]
    written = {name: image["written"] for name, image in noted(killed).items() if image["is_written"]}
    done = inodes(killed, [tile_name(name, number) for name, numbers in written.items() for number in numbers])
    ended = command(*again, cwd=tmp_path, own_process=True, timeout_s=1200)
    assert ended.returncode == 0, ended.stderr
    assert f"{COUNT + 1} images, {COUNT + 1} were looked at before" in ended.stdout
    assert f"\n{len(done)} tiles of them there already\n" in ended.stdout
    assert len(done) > 0.1 * COUNT
    assert inodes(killed, list(done)) == done, "what was whole is kept"
    begun_at = time.monotonic()
    whole = command("prepare", "photos", "whole", *SETTINGS, cwd=tmp_path, own_process=True, timeout_s=1200)
    seconds = time.monotonic() - begun_at
    assert whole.returncode == 0, whole.stderr
    assert contents(killed) == contents(tmp_path / "whole")
    print(
        f"{COUNT} images, {len(contents(killed))} files: {seconds:.1f} s without a kill\n{whole.stdout}\n{ended.stdout}"
    )
    check_pairs(tmp_path / "photos", killed)


def check_pairs(photos: Path, out: Path) -> None:
    """Every tile is the cut it says it is, and the list names all of them."""
    listed = []
    found = entries(out)
    assert found["copy"]["like"] == "photo_000"
    for name, image in found.items():
        pixels = read_image(image["source"], 3)
        boxes = Grid(TILE_PX, OVERLAP_PX, 4).boxes(*pixels.shape[:2])
        assert len(boxes) == len(image["tiles"])
        for number in image["kept"]:
            file, box = tile_name(name, number), boxes[number - 1]
            listed.append(f"{file} ({box[2]},{box[3]},3)")
            np.testing.assert_array_equal(read_image(str(out / "gt" / file), 3), cut(pixels, box))
        if image["kept"]:
            small = matlab_bicubic(pixels[: pixels.shape[0] // 4 * 4, : pixels.shape[1] // 4 * 4], 4)
            low = read_image(str(out / "lq" / file), 3)
            np.testing.assert_array_equal(low, cut(small, box, 4))
    assert (out / "meta_info.txt").read_text().splitlines() == sorted(listed)
    assert len(listed) > COUNT


def test_a_dry_run_writes_a_report_and_says_why(tmp_path: Path) -> None:
    photos = photographs(tmp_path / "photos", 6, (200, 260))
    flat = np.tile(np.linspace(60, 90, 260), (200, 1)).astype(np.uint8)
    cv2.imwrite(str(photos / "sky.png"), flat)
    blocky = cv2.imread(str(PHOTOGRAPHS / "chelsea.png"))
    cv2.imwrite(str(photos / "blocky.jpg"), blocky, [cv2.IMWRITE_JPEG_QUALITY, 10])
    before = contents(photos)
    arguments = ("prepare", "photos", "out", "--tile", "240", "--workers", "1")
    ended = command(*arguments, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert max(map(len, ended.stdout.splitlines())) <= 80
    for line in (
        "  near-duplicate  1 image: copy (as photo_000)",
        "  low detail      2 tiles below 0.5: sky_s001, sky_s002",
        "  blocky          4 tiles above 1.4: blocky_s001, blocky_s002, blocky_s003, ...",
        "Nothing is written without --write but out/report.json.",
    ):
        assert line in ended.stdout.splitlines()
    assert list(contents(tmp_path / "out")) == [REPORT]
    found = entries(tmp_path / "out")
    assert found["sky"]["dropped"] == {"low_detail": [1, 2]}
    off = ("--duplicates", "off", "--detail", "off", "--blockiness", "off")
    ended = command(*arguments, *off, "--write", cwd=tmp_path)
    assert "9 images, 9 were looked at before" in ended.stdout
    assert {"gt/sky_s001.png", "gt/copy_s001.png", "gt/blocky_s004.png"} < contents(tmp_path / "out").keys()
    assert contents(photos) == before
    nothing = command("prepare", "photos/sky.png", "none", "--write", "--workers", "1", cwd=tmp_path)
    assert nothing.returncode == 2, "no tile is left"


def test_changes_are_noticed_and_the_result_is_that_of_a_new_folder(tmp_path: Path) -> None:
    photos = photographs(tmp_path / "photos", 5, (120, 140))
    same = ("--tile", "80", "--workers", "1", "--write")
    first = command("prepare", "photos", "out", *same, "--detail", "off", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    kept = inodes(tmp_path / "out", ["photo_003_s001.png"])
    refused = command("prepare", "photos", "out", *same, "--overlap", "8", cwd=tmp_path)
    assert refused.returncode == 2
    assert "the tiles in out were made with --overlap none, this is --overlap 8" in refused.stderr
    lq = ("--scale", "2", "--lq", "matlab")
    assert command("prepare", "photos", "out", *same, *lq, cwd=tmp_path).returncode == 2
    (photos / "photo_000.png").unlink()  # its copy takes its place
    (photos / "sub" / "photo_002.png").write_bytes((photos / "sub" / "photo_001.png").read_bytes()[:9000])
    cv2.imwrite(str(photos / "sub" / "photo_001.png"), np.zeros((60, 90), np.uint8))
    (tmp_path / "out" / "gt" / "sub" / "photo_004_s002.png").unlink()
    dry = command("prepare", "photos", "out", *same[:-1], "--detail", "0.4", cwd=tmp_path)
    assert ", 2 changed since" in dry.stdout
    again = command("prepare", "photos", "out", *same, "--detail", "0.4", cwd=tmp_path)
    new = command("prepare", "photos", "new", *same, "--detail", "0.4", cwd=tmp_path)
    assert (dry.returncode, again.returncode, new.returncode) == (2, 2, 2), "one is damaged"
    assert "photo_002.png ends too early" in " ".join(again.stdout.split())
    assert contents(tmp_path / "out") == contents(tmp_path / "new")
    assert inodes(tmp_path / "out", list(kept)) == kept
    assert {"gt/copy_s001.png", "gt/sub/photo_004_s002.png"} < contents(tmp_path / "out").keys()
    assert not any("photo_001" in name for name in contents(tmp_path / "out") if name != REPORT)


def odd_files(folder: Path, photograph: NDArray[Any]) -> Path:
    """Write an image of each odd kind, each another cut of a photograph."""
    folder.mkdir()
    corners = product((0, 140, 270), (0, 150, 300, 440))
    cuts = (Image.fromarray(photograph[top : top + 120, left : left + 150]) for top, left in corners)
    tag = Image.Exif()
    tag[0x0112] = 6
    next(cuts).save(folder / "turned.jpg", exif=tag, quality=95)
    next(cuts).convert("CMYK").save(folder / "cmyk.jpg", quality=95)
    for name, mode in (("grey", "L"), ("palette", "P"), ("grey_alpha", "LA")):
        next(cuts).convert(mode).save(folder / f"{name}.png")
    alpha = next(cuts)
    alpha.putalpha(100)
    alpha.save(folder / "alpha.png")
    for name in ("deep.png", "deep_tiff.tif"):
        deep = np.asarray(next(cuts)).astype(np.uint16) * 257 + np.arange(150, dtype=np.uint16)[:, None] % 200
        cv2.imwrite(str(folder / name), deep[:, :, ::-1])
    next(cuts).save(folder / "whole.png")
    data = (folder / "whole.png").read_bytes()
    (folder / "truncated.png").write_bytes(data[: len(data) // 2])
    (folder / "hole.png").write_bytes(data[:9000] + bytes(500) + data[9500:])
    data = (folder / "cmyk.jpg").read_bytes()
    (folder / "hole.jpg").write_bytes(data[:9000] + bytes(900) + data[9900:])
    (folder / "empty.webp").write_bytes(b"")
    Image.fromarray(np.full((120, 150), 0.5, np.float32)).save(folder / "float.tif")
    next(cuts).resize((3, 90)).save(folder / "thin.png")
    (folder / f"{'long' * 62}.png").write_bytes((folder / "whole.png").read_bytes())
    (folder / "link.png").symlink_to("gone.png")
    return folder


def test_odd_files_are_prepared_or_named(tmp_path: Path, photograph: NDArray[Any]) -> None:
    odd = odd_files(tmp_path / "odd", photograph)
    arguments = ("prepare", "odd", "out", "--tile", "96", "--scale", "4", "--write", "--workers", "1")
    ended = command(*arguments, "--lq", "antialiased", "--duplicates", "off", cwd=tmp_path)
    assert ended.returncode == 2
    damaged = {name for name, image in entries(tmp_path / "out").items() if image["damage"]}
    assert damaged == {"truncated", "odd/hole", "odd_2/hole", "empty", "float", "thin", "link", "long" * 62}
    words = " ".join(ended.stdout.split())
    for name in (
        "too long a name",
        "gone.png: No such file",
        "truncated.png",
        "hole.png",
        "hole.jpg",
        "empty.webp",
        "float.tif",
        "thin.png",
    ):
        assert name in words
    assert "16 bits, kept 2, CMYK 1, alpha channel dropped 2, grey 2, palette 1, turned by EXIF 1" in words
    for name, image in entries(tmp_path / "out").items():
        if image["damage"]:
            continue
        tile, small = (cv2.imread(str(tmp_path / "out" / kind / f"{name}_s001.png"), -1) for kind in ("gt", "lq"))
        assert tile.shape == (96, 96, 3)
        assert small.shape == (24, 24, 3)
        source = cv2.imread(image["source"], cv2.IMREAD_COLOR | (cv2.IMREAD_ANYDEPTH if "deep" in name else 0))
        assert tile.dtype == small.dtype == source.dtype
        np.testing.assert_array_equal(tile, source[:96, :96])
        if "deep" not in name:
            height, width = (side // 4 * 4 for side in source.shape[:2])
            np.testing.assert_array_equal(small, shrunk(source[:height, :width], 4)[:24, :24])
    assert len(list((tmp_path / "out" / "gt").glob("turned_*.png"))) == 4, "120 px wide, 150 high"
    assert odd.is_dir()


def test_degraded_tiles_are_the_same_each_time_and_train_at_once(
    tmp_path: Path, write_images: Callable[..., Path]
) -> None:
    gt = write_images("photos", 3, (100, 120))
    options = tiny_options(gt, gt_usm=True, train={"total_iter": 2}, val={"val_enabled": False})
    options["datasets"]["train"] |= {"type": "RealESRGANDataset"}
    write_options(tmp_path / "degraded.yml", options)
    for out, workers in (("one", "1"), ("two", "2")):
        arguments = ("prepare", "photos", out, "--tile", "64", "--lq", "degraded.yml", "--duplicates", "off", "--write")
        ended = command(*arguments, "--workers", workers, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    names = [line.split(" ")[0] for line in (tmp_path / "one" / "meta_info.txt").read_text().splitlines()]
    tile = read_image(str(tmp_path / "one" / "gt" / "image_002_s004.png"), 3)
    sharp = to_pixels(sharpened(to_image(read_image(str(gt / "image_002.png"), 3)[36:100, 56:120])))
    np.testing.assert_array_equal(tile, sharp)
    assert (tile != read_image(str(gt / "image_002.png"), 3)[36:100, 56:120]).any()
    assert {read_image(str(tmp_path / "one" / "lq" / name), 3).shape for name in names} == {(32, 32, 3)}
    roots = {"dataroot_gt": "one/gt", "dataroot_lq": "one/lq"}
    options["datasets"]["train"] |= {"type": "PairedImageDataset", **roots}
    del options["gt_usm"]
    ended = train(write_options(tmp_path / "run.yml", options))
    assert ended.returncode == 0, ended.stderr
    other = write_options(tmp_path / "degraded.yml", {**tiny_options(gt)})
    refused = command("prepare", "photos", "three", "--lq", other.name, cwd=tmp_path)
    assert "this file's training set makes no low-quality images" in refused.stderr


MISTAKES = {
    ("photos", "photos/out"): "OUT photos/out lies in SOURCE photos",
    ("photos", "."): "SOURCE has images in OUT, e.g. photos/image_000.png",
    ("photos", "full"): "full is not empty, and holds nothing that prepare made",
    ("photos", "full/file/out"): "is a file",
    ("nothing", "out"): "no images in nothing",
    ("phots", "out"): "Did you mean 'photos'?",
    ("photos", "out", "--scale", "4"): "--scale is given without --lq",
    ("photos", "out", "--lq", "matlab"): "--lq matlab needs a scale",
    ("photos", "out", "--lq", "matlb", "--scale", "2"): "Did you mean 'matlab'?",
    ("photos", "out", "--overlap", "480"): "--overlap 480 is not less than --tile 480",
    ("photos", "out", "--tile", "90", "--lq", "matlab", "--scale", "4"): "Write --tile 88.",
    ("photos", "out", "--overlap", "2", "--lq", "matlab", "--scale", "4"): "Write --overlap 0.",
    ("photos", "out", "--workers", "0"): "--workers 0: at least 1",
    ("photos", "out", "--duplicates", "33"): "'33' is not 'off' or a whole number of 0 to 32",
    ("photos", "out", "--detail", "nan"): "'nan' is not 'off' or a number of 0 and more",
    ("photos",): "the following arguments are required: OUT",
}


def test_mistakes_are_refused_in_words_and_nothing_is_made(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    write_images("photos", 1)
    for folder in ("full", "nothing"):
        (tmp_path / folder).mkdir()
    (tmp_path / "full" / "file").touch()
    before = contents(tmp_path)
    for arguments, said in MISTAKES.items():
        ended = command("prepare", *arguments, cwd=tmp_path)
        assert ended.returncode == 2, arguments
        assert said in ended.stderr, (arguments, ended.stderr)
    assert contents(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "nothing", "photos"]


def test_a_report_of_another_kind_is_refused(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    write_images("photos", 1)
    (tmp_path / "out").mkdir()
    for text in ("", "{}", '{"settings": {}, "images": [{"name": "a"}]}', "[]"):
        (tmp_path / "out" / REPORT).write_text(text)
        ended = command("prepare", "photos", "out", cwd=tmp_path)
        assert ended.returncode == 2
        assert "out/report.json is not as prepare wrote it" in ended.stderr


def killed(number: int) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_killed_worker_is_said() -> None:
    assert sorted(in_processes(abs, [(-1,), (-2,), (3,)], 2)) == [1, 2, 3]
    with pytest.raises(InputError, match="fewer --workers"):
        list(in_processes(killed, [(1,), (2,), (3,)], 2))


def test_too_little_room_is_said_before(
    tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images("photos", 1)
    usage = os.statvfs_result((4096, 4096, 9, 1, 1, 1, 1, 1, 0, 255))
    monkeypatch.setattr("os.statvfs", lambda path: usage)
    ended = command("prepare", "photos", "out", "--write", "--workers", "1", cwd=tmp_path)
    assert ended.returncode == 2
    assert "tiles take about 0.0 MiB, and the disk of out has 0.0 MiB left" in ended.stderr
    assert not (tmp_path / "out" / "gt").exists()
