"""JPEGs over whose damage the decoder goes on: what it says, and of which file."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trainauto.data import GTImageDataset
from trainauto.data.decoder_warnings import decode_with_warnings
from trainauto.tasks.sr.data.image_io import decoded, read_image
from trainauto.tasks.sr.data.pixel_format import PixelFormat
from trainauto.tasks.sr.data.reading import Reading

Write = Callable[..., Path]


def damage_middle(file: Path, size_bytes: int = 600) -> None:
    """Overwrite some of a JPEG's compressed pixels: it has its size, its header and its end."""
    content = file.read_bytes()
    middle = len(content) // 2
    noise = np.random.default_rng(3).integers(0, 256, size_bytes, dtype=np.uint8).tobytes()
    file.write_bytes(content[:middle] + noise + content[middle + size_bytes :])


@pytest.fixture
def damaged(write_images: Write) -> Path:
    folder = write_images("photographs", 3, (200, 300), suffix=".jpg")
    damage_middle(folder / "image_001.jpg")
    return folder


def test_a_damaged_photograph_is_not_cached(damaged: Path, tmp_path: Path) -> None:
    dataset = GTImageDataset(str(damaged), scale=2, reading=Reading(cache_dir=str(tmp_path / "cache")))
    for index in range(3):
        dataset.full_sample(index)
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_what_others_print_while_an_image_is_decoded_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    def decode() -> int:
        os.write(2, b"from a driver\nCorrupt JPEG data: 3 bytes\n")
        return 7

    assert decode_with_warnings(decode) == (7, "Corrupt JPEG data: 3 bytes")
    assert capfd.readouterr().err == "from a driver\n"
    assert decode_with_warnings(lambda: 8) == (8, "")


def test_what_a_decoder_said_before_it_failed_is_not_said_of_the_next(capfd: pytest.CaptureFixture[str]) -> None:
    def decode() -> int:
        os.write(2, b"Corrupt JPEG data: 3 bytes\n")
        raise MemoryError

    with pytest.raises(MemoryError):
        decode_with_warnings(decode)
    assert capfd.readouterr().err == "Corrupt JPEG data: 3 bytes\n"
    assert decode_with_warnings(lambda: 8) == (8, "")


def test_without_a_standard_error_nothing_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    assert decode_with_warnings(lambda: 8) == (8, "")


@pytest.mark.parametrize(("between", "heard"), [(b"", ""), (bytes(20), ""), (b"what is left", "extraneous bytes")])
def test_padding_before_the_end_is_no_damage(write_images: Write, between: bytes, heard: str) -> None:
    file = write_images("photographs", 1, (40, 60), suffix=".jpg") / "image_000.jpg"
    pixels = read_image(str(file), 3)
    content = file.read_bytes()
    assert content.endswith(b"\xff\xd9")
    file.write_bytes(content[:-2] + between + content[-2:])
    decoded_pixels, damage = decoded(str(file), PixelFormat(3))
    assert np.array_equal(decoded_pixels, pixels)
    assert heard in damage
    assert bool(heard) == bool(damage)
