"""Pictures are read upright with their alpha, and written whole or not at all."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from trainauto.core.errors import InputError
from trainauto.tasks.sr.data.large_images import ImageWriter, read_picture


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
