"""Which images belong together, and one sentence for each that cannot be used."""

import os
import struct
import sys
import unicodedata
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from trainauto.core.errors import InputError
from trainauto.data import GTImageDataset, PairedImageDataset
from trainauto.tasks.sr.data.image_files import ImageFile, list_images
from trainauto.tasks.sr.data.image_io import read_header
from trainauto.tasks.sr.data.pairing import pair_images

Write = Callable[..., Path]


def files(folder: str, *keys: str) -> list[ImageFile]:
    return [ImageFile(f"{folder}/{key}.png", key, folder) for key in keys]


def words_of(problem: pytest.ExceptionInfo[InputError]) -> str:
    return str(problem.value)


@pytest.mark.parametrize("template", ["{}x4", "small_{}", "{}", None])
def test_a_template_names_partners_as_in_basicsr(template: str | None) -> None:
    given = {} if template is None else {"filename_tmpl": template}
    lq = files("lq", *((template or "{}x4").replace("{}", name) for name in ("0001", "0002")))
    pairs = pair_images(files("gt", "0001", "0002"), lq, set_name="train", **given)
    assert [(gt.key, partner.path) for gt, partner in pairs] == [("0001", lq[0].path), ("0002", lq[1].path)]


def test_a_template_is_of_the_file_not_of_its_folder() -> None:
    pairs = pair_images(files("gt", "a/01"), files("lq", "a/01x4"), set_name="train", filename_tmpl="{}x4")
    assert len(pairs) == 1
    with pytest.raises(InputError, match="has no place for the name"):
        pair_images(files("gt", "01"), files("lq", "01"), set_name="train", filename_tmpl="x4")


def test_with_a_template_other_names_are_no_partners() -> None:
    with pytest.raises(InputError) as caught:
        pair_images(files("gt", "01"), files("lq", "01x2"), set_name="train", filename_tmpl="{}x4")
    assert "lq image ax4.png (filename_tmpl)" in words_of(caught)
    assert "01.png (nearest: 01x2)" in words_of(caught)


def test_five_near_names_and_a_count() -> None:
    gt = files("gt", *(f"photo_{number:04d}" for number in range(5000)))
    lq = files("lq", *(f"photo-{number:04d}" for number in range(5000)))
    with pytest.raises(InputError) as caught:
        pair_images(gt, lq, set_name="train")
    text = words_of(caught)
    assert "5000 gt and 5000 lq images, of which 0 make pairs" in text
    assert "5000 gt images without a partner" in text
    assert "gt/photo_0003.png (nearest: photo-0003)" in text
    assert text.count("nearest: ") == 10
    assert text.count("... and 4995 more") == 2
    assert "do dataroot_gt and dataroot_lq name folders of the same images?" in text
    assert len(text.splitlines()) < 20


def test_a_partner_that_is_no_image_here_is_named(write_images: Write) -> None:
    gt, lq = write_images("gt", 2), write_images("lq", 2)
    (lq / "image_001.png").rename(lq / "image_001.heic")
    with pytest.raises(InputError) as caught:
        PairedImageDataset(str(gt), str(lq), scale=1)
    assert f"{lq / 'image_001.heic'} is not read: save it as PNG" in words_of(caught)


def forms(folder: Path) -> tuple[Path, Path]:
    """Return the same name with its accent as part of the letter, and as a sign of its own."""
    whole, apart = (unicodedata.normalize(form, "caf\u00e9.png") for form in ("NFC", "NFD"))
    return folder / whole, folder / apart


def test_the_same_name_in_another_unicode_form_is_a_partner(write_images: Write) -> None:
    gt, lq = write_images("gt", 1), write_images("lq", 1)
    (gt / "image_000.png").rename(forms(gt)[0])
    (lq / "image_000.png").rename(forms(lq)[1])
    assert len(PairedImageDataset(str(gt), str(lq), scale=1)) == 1


@pytest.mark.skipif(sys.platform == "darwin", reason="both forms are one file there")
def test_twins_of_one_name_are_refused(write_images: Write) -> None:
    gt, lq = write_images("gt", 2), write_images("lq", 2)
    for file, twin in zip(sorted(gt.iterdir()), forms(gt), strict=True):
        file.rename(twin)
    with pytest.raises(InputError) as caught:
        PairedImageDataset(str(gt), str(lq), scale=1)
    assert "in two Unicode forms (NFC and NFD)" in words_of(caught)
    assert str(forms(gt)[1]) in words_of(caught)
    alone = GTImageDataset(str(gt), scale=1)
    assert len({alone.sample_key(index) for index in range(2)}) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="other systems allow no such name")
def test_a_name_that_is_not_utf8(write_images: Write) -> None:
    folder = write_images("gt", 1)
    (folder / "image_000.png").rename(folder / os.fsdecode(b"caf\xe9.png"))
    with pytest.raises(InputError) as caught:
        list_images(str(folder), set_name="train")
    text = words_of(caught)
    text.encode()  # it can be printed
    assert "caf\\xe9.png is not UTF-8" in text
    assert "Rename" in text


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    with pytest.raises(InputError, match=r"dataset 'train': image .*a\.png is empty: 0 bytes"):
        GTImageDataset(str(tmp_path), scale=2).scan()


def test_a_decompression_bomb(tmp_path: Path) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"\0")), chunk(b"IEND", b"")
    file = tmp_path / "bomb.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    with pytest.raises(InputError, match=r"bomb\.png says it has 3,600,000,000 pixels, more than are decoded"):
        read_header(str(file))


def test_a_suffix_is_no_reason_to_take_a_partner_twice() -> None:
    def paired(gt: list[str], lq: list[str]) -> list[tuple[str, str]]:
        pairs = pair_images(files("gt", *gt), files("lq", *lq), set_name="train")
        return [(high.key, low.key) for high, low in pairs]

    assert paired(["a", "ax4"], ["ax4", "ax4x4"]) == [("a", "ax4"), ("ax4", "ax4x4")]
    assert paired(["a", "ax4"], ["a", "ax4"]) == [("a", "a"), ("ax4", "ax4")]
    assert paired(["a", "b"], ["a", "bx4"]) == [("a", "a"), ("b", "bx4")]
    with pytest.raises(InputError, match=r"2 gt and 1 lq images, of which 1 make pairs") as caught:
        paired(["a", "ax4"], ["ax4"])
    (problem,) = caught.value.problems  # one cause, one block
    assert "1 gt image without a partner:\n    gt/a" in problem.advice


def test_roots_with_images_of_the_same_name_are_paired_in_their_order(write_images: Write) -> None:
    gt = [str(write_images(name, 2)) for name in ("hr_1", "hr_2")]
    lq = [str(write_images(name, 2)) for name in ("lr_1", "lr_2")]
    pairs = PairedImageDataset(gt, lq, scale=1)
    found = [
        (Path(pairs.sample_name(index)).parent.name, Path(pairs._lq[index].path).parent.name) for index in range(4)
    ]
    assert found == [("hr_1", "lr_1")] * 2 + [("hr_2", "lr_2")] * 2
    assert len({pairs.sample_key(index) for index in range(4)}) == 4
    with pytest.raises(InputError, match="there are 2 of gt and 1 of lq"):
        PairedImageDataset(gt, lq[:1], scale=1)


def test_pairs_through_links_have_the_path_as_it_is_written(write_images: Write, tmp_path: Path) -> None:
    high, low = write_images("high", 2), write_images("low", 2)
    for name, target in (("gt", high), ("lq", low)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").symlink_to(target)
    pairs = PairedImageDataset(str(tmp_path / "gt"), str(tmp_path / "lq"), scale=1)
    assert [pairs.sample_key(index) for index in range(2)] == ["part/image_000", "part/image_001"]


def test_an_image_that_two_links_lead_to_counts_once(write_images: Write) -> None:
    gt, lq = write_images("gt", 2), write_images("lq", 2)
    (gt / "twin.png").symlink_to(gt / "image_000.png")
    assert len(GTImageDataset(str(gt), scale=1)) == 2
    (lq / "twin.png").symlink_to(lq / "image_001.png")
    assert len(PairedImageDataset(str(gt), str(lq), scale=1)) == 3  # another pair, of the same files


def test_kinds_that_are_not_read_are_named_with_a_count(write_images: Write, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_images("gt", 1)
    for name in ("a.heic", "b.HEIC", "c.jxl", "notes.txt"):
        (folder / name).write_bytes(b"x")
    assert GTImageDataset(str(folder), scale=1).not_read == {".heic": 2, ".jxl": 1, ".txt": 1}
    assert "of kinds that are not read, and left out: 2 .heic, 1 .jxl (a.heic, ...)" in caplog.text
