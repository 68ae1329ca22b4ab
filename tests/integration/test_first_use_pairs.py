"""Folders of images that people have, and what ``train`` says of them before a run is made: one sentence a mistake."""

import os
import platform
import re
import shutil
import struct
import unicodedata
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from PIL import Image

from tests.integration.commands import merged, run_directory, step_records, tiny_options, train, write_options

Write = Callable[..., Path]


@pytest.fixture
def pairs(tmp_path: Path, photograph: np.ndarray) -> Path:
    """An option file for three pairs of x2: hr/p0.png to hr/p2.png, and the same names in lr."""
    for number in range(3):
        gt = photograph[9 * number : 9 * number + 64, :80]
        for side, pixels in (("hr", gt), ("lr", gt[::2, ::2])):
            (tmp_path / side).mkdir(exist_ok=True)
            assert cv2.imwrite(str(tmp_path / side / f"p{number}.png"), cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
    options = tiny_options(tmp_path / "hr", train={"total_iter": 2}, val={"val_freq": 2})
    roots = {"type": "PairedImageDataset", "dataroot_gt": "hr", "dataroot_lq": "lr"}
    options["datasets"] = {"train": {**options["datasets"]["train"], **roots}, "val": roots}
    return write_options(tmp_path / "run.yml", options)


def refused(options: Path, *arguments: str) -> str:
    """Train, which must end with exit code 2 before anything is written; return what is said, on one line."""
    done = train(options, *arguments)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert not (options.parent / "experiments").exists()
    return " ".join(done.stderr.split())


@pytest.mark.skipif(platform.system() != "Linux", reason="elsewhere file systems take no such names")
def test_a_name_that_is_not_utf8(pairs: Path) -> None:
    folder = os.fsencode(pairs.parent / "hr")
    os.rename(os.path.join(folder, b"p1.png"), os.path.join(folder, b"caf\xe9.png"))  # noqa: PTH104, PTH118
    said = refused(pairs)
    assert r"caf\xe9.png is not UTF-8" in said
    assert "Rename the file, or the folder it is in." in said


@pytest.mark.skipif(platform.system() != "Linux", reason="elsewhere both forms are one name")
def test_one_name_in_two_forms_of_unicode(pairs: Path) -> None:
    hr = pairs.parent / "hr"
    for form in ("NFC", "NFD"):
        shutil.copy(hr / "p1.png", hr / f"{unicodedata.normalize(form, 'café')}.png")
    said = refused(pairs)
    assert f"two gt images are called '{unicodedata.normalize('NFC', 'café')}'" in said
    assert "the same letters in two Unicode forms (NFC and NFD): rename or delete one of them." in said
    # Where each folder has its own form, as after a copy from a Mac, they are partners.
    (hr / f"{unicodedata.normalize('NFD', 'café')}.png").unlink()
    lr = pairs.parent / "lr"
    shutil.copy(lr / "p1.png", lr / f"{unicodedata.normalize('NFD', 'café')}.png")
    done = train(pairs)
    assert done.returncode == 0, done.stderr
    assert "train 4 " in done.stdout


def test_a_partner_of_a_kind_that_is_not_read(pairs: Path) -> None:
    lr = pairs.parent / "lr"
    with Image.open(lr / "p1.png") as image:
        image.save(lr / "p1.ico")
    (lr / "p1.png").unlink()
    said = refused(pairs)
    assert "3 gt and 2 lq images, of which 2 make pairs" in said
    assert "1 gt image without a partner" in said
    assert "p1.ico is not read: save it as PNG)" in said
    assert "nearest" not in said


@pytest.mark.parametrize("side", ["hr", "lr"])
def test_a_file_without_bytes(pairs: Path, side: str) -> None:
    (pairs.parent / side / "p1.png").write_bytes(b"")
    said = refused(pairs)
    # Said of the training set and of the validation set, which have it both.
    assert said.count(f"image {side}/p1.png is empty: 0 bytes") == said.count("dataset '") >= 1
    assert "Copy or download it again." in said


def claim_size(png: Path, width_px: int, height_px: int) -> None:
    """Have a PNG say that it has this size."""
    whole = png.read_bytes()
    header = b"IHDR" + struct.pack(">II", width_px, height_px) + whole[24:29]
    png.write_bytes(whole[:12] + header + struct.pack(">I", zlib.crc32(header)) + whole[33:])


def test_a_decompression_bomb(pairs: Path) -> None:
    claim_size(pairs.parent / "hr" / "p1.png", 30_000, 30_000)
    said = refused(pairs)
    assert "image hr/p1.png says it has 900,000,000 pixels, more than are decoded" in said
    assert "It is damaged or made to fill memory: remove it." in said


@pytest.mark.parametrize(("wrong", "most"), [("train_hr_12", 1), ("quite_another", 5)])
def test_a_wrong_root_names_few_that_are_near(pairs: Path, wrong: str, most: int) -> None:
    for number in range(300):
        (pairs.parent / f"train_hr_{number:03d}").mkdir()
    said = refused(pairs, "--force_yml", f"datasets:train:dataroot_gt={wrong}")
    assert f"there is no {wrong}" in said
    advice = said.partition("Looked for ")[2]
    assert 1 <= len(re.findall(r"train_hr_\d{3}|\b[hl]r\b", advice)) <= most, said
    assert ("Did you mean 'train_hr_" in advice) == (most == 1)
    assert "run.yml" not in advice, "it is no folder of images"
    assert len(said) < 1000


def test_names_of_div2k(pairs: Path) -> None:
    """DIV2K calls the partner of ``0001.png`` ``0001x4.png``; what the template says holds for both sets."""
    options = yaml.safe_load(pairs.read_text())
    lr = pairs.parent / "lr"
    for file in list(lr.iterdir()):
        with Image.open(file) as image:
            image.resize((20, 16)).save(lr / f"{file.stem}x4.png")
        file.unlink()
    as_told = {"filename_tmpl": "{}x4"}
    options = merged(options, {"scale": 4, "datasets": {"train": as_told}})
    options["datasets"]["val"] |= as_told
    write_options(pairs, merged(options, {"datasets": {"train": {"filename_tmpl": "{}x3"}}}))
    said = refused(pairs)
    assert "3 gt and 3 lq images, of which 0 make pairs" in said
    assert "A gt image a.png has the lq image ax3.png (filename_tmpl)." in said
    write_options(pairs, options)
    done = train(pairs)
    assert done.returncode == 0, done.stderr
    assert len(step_records(run_directory(pairs))) == 2
