"""Pictures are read upright with their alpha, and written whole or not at all."""

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageCms

from trainauto.core.errors import InputError
from trainauto.tasks.sr.data.large_images import ImageWriter, read_picture
from trainauto.tasks.sr.data.png_chunks import mark_in


def test_what_is_put_is_what_is_read(tmp_path: Path, photograph: np.ndarray) -> None:
    cut = photograph[:60, :90]
    with ImageWriter(tmp_path, 60, 90, 3) as canvas:
        for top in (0, 30):
            for left in (0, 45):
                canvas.put(top, left, cut[top : top + 30, left : left + 45])
                canvas.release()
        canvas.save(tmp_path / "cut.png")
    assert [file.name for file in tmp_path.iterdir()] == ["cut.png"]
    assert np.array_equal(np.asarray(Image.open(tmp_path / "cut.png")), cut)
    assert np.array_equal(read_picture(str(tmp_path / "cut.png"), 3).pixels, cut)
    assert read_picture(str(tmp_path / "cut.png"), 1).pixels.shape == (60, 90, 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_alpha_is_kept_beside_the_colours(tmp_path: Path, photograph: np.ndarray, channels: int) -> None:
    alpha = np.tile(np.arange(90, dtype=np.uint8), (60, 1))
    file = tmp_path / "in.png"
    Image.fromarray(np.dstack([photograph[:60, :90], alpha])).save(file)
    found = read_picture(str(file), channels)
    assert found.alpha is not None
    assert np.array_equal(found.alpha, alpha)
    with ImageWriter(tmp_path, 60, 90, channels, has_alpha=True) as canvas:
        canvas.put(0, 0, found.pixels)
        canvas.put_alpha(0, 0, found.alpha)
        canvas.save(tmp_path / "out.png")
    written = np.asarray(Image.open(tmp_path / "out.png"))
    assert np.array_equal(written[..., 3], alpha)
    assert np.array_equal(written[..., :3], np.broadcast_to(found.pixels, (60, 90, 3)))


def test_photographs_are_turned_upright(tmp_path: Path, photograph: np.ndarray) -> None:
    file = tmp_path / "turned.jpg"
    picture = Image.fromarray(photograph[:60, :90])
    exif = picture.getexif()
    exif[0x0112] = 6  # a quarter turn to the right
    picture.save(file, exif=exif)
    assert read_picture(str(file), 3).pixels.shape == (90, 60, 3)


@pytest.mark.parametrize("content", [b"no image", b"\x89PNG\r\n\x1a\n"])
def test_what_cannot_be_decoded_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.png").write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.png"):
        read_picture(str(tmp_path / "bad.png"), 3)


def test_a_picture_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half_written(path: str, pixels: np.ndarray) -> bool:
        del pixels
        Path(path).write_bytes(b"\x89PNG and no end of it")
        return True

    monkeypatch.setattr(cv2, "imwrite", half_written)
    with ImageWriter(tmp_path, 8, 8, 3) as canvas, pytest.raises(InputError, match="could not be written"):
        canvas.save(tmp_path / "cut.png")
    assert not list(tmp_path.iterdir())


def png_of_16_bits(file: Path, pixels: np.ndarray, key: tuple[int, ...]) -> Path:
    """Write a PNG of grey or RGB of 16 bits in which one colour is transparent, which no library here writes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, channels = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 3: 2}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    parts = ((b"IHDR", head), (b"tRNS", struct.pack(f">{channels}H", *key)), (b"IDAT", zlib.compress(rows)))
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in (*parts, (b"IEND", b""))))
    return file


@pytest.mark.parametrize("channels", [1, 3])
def test_one_transparent_colour_of_16_bits(tmp_path: Path, channels: int) -> None:
    pixels = (np.arange(48, dtype=np.uint16).reshape(6, 8, 1) * 1300) // np.arange(1, channels + 1, dtype=np.uint16)
    file = png_of_16_bits(tmp_path / "in.png", pixels, tuple(map(int, pixels[2, 3])))
    found = read_picture(str(file), 3)
    assert np.array_equal(found.pixels, np.broadcast_to(pixels >> 8, (6, 8, 3)))
    assert found.alpha is not None
    assert np.argwhere(found.alpha == 0).tolist() == [[2, 3]]
    assert set(found.alpha.ravel()) == {0, 255}


def profile_of(space: bytes) -> bytes:
    """Return a colour profile whose header says that it is of a colour space."""
    made = bytes(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    return made[:16] + space + made[20:]


@pytest.mark.parametrize(
    ("space", "channels", "has_alpha", "is_kept"),
    [
        (b"RGB ", 3, False, True),
        (b"RGB ", 3, True, True),
        (b"GRAY", 1, False, True),
        (b"GRAY", 3, False, False),
        (b"RGB ", 1, False, False),
        (b"CMYK", 3, False, False),
    ],
)
def test_colour_profiles_stay_where_pixels_are_of_them(
    tmp_path: Path, photograph: np.ndarray, space: bytes, channels: int, has_alpha: bool, is_kept: bool
) -> None:
    profile, cut = profile_of(space), photograph[:20, :30]
    Image.fromarray(cut).save(tmp_path / "in.png", icc_profile=profile)
    found = read_picture(str(tmp_path / "in.png"), channels)
    assert found.profile == profile
    with ImageWriter(tmp_path, 20, 30, channels, has_alpha=has_alpha) as canvas:
        canvas.put(0, 0, found.pixels)
        canvas.save(tmp_path / "out.png", found.profile, "digest words")
    written = Image.open(tmp_path / "out.png")
    assert written.info.get("icc_profile") == (profile if is_kept else None)
    assert np.array_equal(np.asarray(written).reshape(20, 30, -1)[..., :channels], found.pixels)
    assert mark_in(tmp_path / "out.png") == "digest words"
    assert mark_in(tmp_path / "in.png") == ""
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.png", "out.png"]
