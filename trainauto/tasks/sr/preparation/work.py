"""What is done to one image: looking at it, and writing its tiles. Each runs in a process of its own."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import remove_leftovers, write_atomically
from trainauto.tasks.sr.data.exif_orientation import AS_STORED, orientation_of
from trainauto.tasks.sr.data.image_io import decoded, read_header
from trainauto.tasks.sr.data.pixel_format import PixelFormat
from trainauto.tasks.sr.preparation.journal import Entry, ended
from trainauto.tasks.sr.preparation.low_quality import LowQuality
from trainauto.tasks.sr.preparation.tiles import Grid, cut, tile_name

GT, LQ = "gt", "lq"
LONGEST_NAME_BYTES = 255
"""That file systems take."""


def look_at(name: str, source: str, grid: Grid) -> Entry:
    """Decode an image and measure it and its tiles; one that cannot be used is an entry that says why."""
    entry = Entry(name, source, 0, 0)
    try:
        status = Path(source).stat()
        entry = Entry(name, source, status.st_size, status.st_mtime_ns)
        image = read_at_depth(source)
    except OSError as error:
        return replace(entry, damage=f"cannot read image {source}: {error.strerror}")
    except InputError as error:
        return replace(entry, damage=error.problems[0].message)
    grey = grey_levels(image.pixels)
    height, width = grey.shape
    boxes = grid.boxes(height, width)
    if not boxes:
        return replace(entry, damage=f"{source} is {width}x{height}, less than one pixel at scale {grid.scale}")
    if len(os.fsencode(Path(tile_name(name, len(boxes))).name)) > LONGEST_NAME_BYTES:
        return replace(entry, damage=f"{source} has too long a name for tiles: rename it")
    tiles = [cut(grey, box) for box in boxes]
    return replace(
        entry,
        height_px=height,
        width_px=width,
        bits=8 * image.pixels.itemsize,
        remarks=image.remarks,
        hash=f"{perceptual_hash(grey):016x}",
        tiles=[(round(detail(tile), 4), round(blockiness(tile), 4)) for tile in tiles],
    )


@dataclass(frozen=True)
class Writer:
    """Writes the tiles of images below a folder.

    Attributes:
        folder: which; high-quality tiles go to ``gt`` and low-quality ones to ``lq``.
        grid: how images are cut.
        low_quality: how partners are made; ``None`` makes none.
    """

    folder: Path
    grid: Grid
    low_quality: LowQuality | None

    def files_of(self, name: str, number: int) -> list[Path]:
        """Return where a tile is written."""
        kinds = (GT,) if self.low_quality is None else (GT, LQ)
        return [self.folder / kind / tile_name(name, number) for kind in kinds]

    def is_done(self, entry: Entry, kept: Sequence[int]) -> bool:
        """Whether these tiles of an image are written, and no others."""
        if list(entry.written) != list(kept) or (kept and not entry.is_written):
            return False
        return all(file.is_file() for number in kept for file in self.files_of(entry.name, number))

    def remove(self, entry: Entry, numbers: Sequence[int]) -> None:
        """Delete tiles of an image, as far as there are any."""
        for number in numbers:
            for file in self.files_of(entry.name, number):
                file.unlink(missing_ok=True)

    def write(self, entry: Entry, kept: Sequence[int]) -> Entry:
        """Write these tiles of an image and delete its others; return what is known of the image then."""
        self.remove(entry, [number for number in entry.written if number not in kept])
        if not kept:
            return ended(entry, kept)
        try:
            pixels = _read_again(entry)
        except (InputError, FileNotFoundError) as error:
            self.remove(entry, entry.written)
            return replace(ended(entry, []), damage=str(error).splitlines()[0])
        for name, *images in self._tiles(entry, pixels, kept):
            for kind, image in zip((GT, LQ), images, strict=False):
                _write_png(self.folder / kind / name, image)
        return ended(entry, kept)

    def _tiles(self, entry: Entry, pixels: NDArray[Any], kept: Sequence[int]) -> Iterator[Sequence[Any]]:
        height, width = pixels.shape[:2]
        boxes = self.grid.boxes(height, width)
        named = {tile_name(entry.name, number): boxes[number - 1] for number in kept}
        if self.low_quality is None:
            return ((name, cut(pixels, box)) for name, box in named.items())
        scale = self.grid.scale
        return self.low_quality.pairs(pixels[: height // scale * scale, : width // scale * scale], named)


def _read_again(entry: Entry) -> NDArray[Any]:
    if not entry.is_of(Path(entry.source)):
        raise InputError(f"{entry.source} was changed meanwhile: start the same command again")
    return read_at_depth(entry.source).pixels


def _write_png(file: Path, pixels: NDArray[Any]) -> None:
    encoded = cv2.imencode(".png", np.ascontiguousarray(pixels[:, :, ::-1]))[1].tobytes()
    file.parent.mkdir(parents=True, exist_ok=True)

    def write(path: Path) -> None:
        path.write_bytes(encoded)

    write_atomically(file, write)


def remove_unfinished(folder: Path) -> None:
    """Delete what a killed command left of files that it was writing below a folder."""
    remove_leftovers(folder)
    for kind in (GT, LQ):
        remove_leftovers(folder / kind, below=True)


BLOCK_PX = 8
"""Side of JPEG's blocks."""
HASH_SIDE, HASH_SOURCE_PX = 8, 32
UNSEEN_STEP = 0.5
"""In 8-bit levels: a grid of steps this small cannot be seen, however smooth an image is otherwise."""


def grey_levels(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """Return the luma (BT.601) of RGB pixels (H, W, 3) as (H, W), 0 to 255 whatever the depth."""
    grey: NDArray[np.float32] = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY).astype(np.float32)
    return grey if pixels.dtype == np.uint8 else grey * np.float32(255 / 65535)


def perceptual_hash(grey: NDArray[np.float32]) -> int:
    """Return 64 bits that change little when an image is resized, compressed or made brighter.

    The image is shrunk to 32 x 32 px, and each of its 64 lowest DCT coefficients is compared with their median.
    """
    small = cv2.resize(grey, (HASH_SOURCE_PX, HASH_SOURCE_PX), interpolation=cv2.INTER_AREA)
    lowest = cv2.dct(small.astype(np.float64))[:HASH_SIDE, :HASH_SIDE].round(6)  # no bit hangs on a last digit
    bits = (lowest > np.median(lowest)).reshape(-1)
    return int("".join("1" if bit else "0" for bit in bits), 2)


def detail(grey: NDArray[np.float32]) -> float:
    """Return the mean absolute difference of neighbouring pixels in 8-bit levels: 0 where a tile is flat."""
    differences = [np.abs(np.diff(grey, axis=axis)) for axis in (0, 1)]
    count = sum(each.size for each in differences)
    return float(sum(float(each.sum(dtype=np.float64)) for each in differences) / count) if count else 0.0


def blockiness(grey: NDArray[np.float32]) -> float:
    """Return how much stronger steps between pixels are along a grid of 8 px than along any other; 1 without a grid.

    The eight places that such a grid can have are compared, so that it is found in a crop of a JPEG, too. The strongest
    is divided by the second strongest: pixel art, enlarged two or four times, is no JPEG. Both directions have to show
    it, as JPEG's do: the smaller ratio counts. Tiles of less than three blocks give 1.
    """
    return min(_step_ratio(grey, axis) for axis in (0, 1))


def _step_ratio(grey: NDArray[np.float32], axis: int) -> float:
    if min(grey.shape) < 3 * BLOCK_PX:
        return 1.0
    steps = np.abs(np.diff(grey, axis=axis)).mean(axis=1 - axis, dtype=np.float64)
    by_place = sorted(float(steps[place::BLOCK_PX].mean()) for place in range(BLOCK_PX))
    return (by_place[-1] + UNSEEN_STEP) / (by_place[-2] + UNSEEN_STEP)


DEPTHS = (8, 16)
ALPHA, CMYK, GREY, PALETTE, TURNED = "alpha channel dropped", "CMYK", "grey", "palette", "turned by EXIF"


@dataclass(frozen=True)
class ReadImage:
    """An image, decoded.

    Attributes:
        pixels: (H, W, 3) RGB, upright, uint8 or uint16.
        remarks: what it was before.
    """

    pixels: NDArray[Any]
    remarks: tuple[str, ...]


def read_at_depth(path: str) -> ReadImage:
    """Decode an image to RGB, with 16 bits where the file has them, upright; alpha is dropped.

    Raises:
        InputError: it cannot be read or decoded, is damaged, or has another depth; names it.
    """
    header = read_header(path)
    if header.bits not in DEPTHS:
        what = f"{path} has {header.bits} bits a sample, which cannot be decoded"
        raise InputError(Problem(what, advice="Save it with 8 or 16 bits."))
    with Image.open(path) as image:
        remarks = _remarks(image)
    pixels, damage = decoded(path, PixelFormat(3, header.bits))
    if damage:
        raise InputError(Problem(f"{path} is damaged: {damage}", advice="Copy or download it again, or leave it out."))
    return ReadImage(pixels, remarks)


def _remarks(image: Image.Image) -> tuple[str, ...]:
    has_alpha = image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info
    facts = {
        ALPHA: has_alpha,
        CMYK: image.mode == "CMYK",
        GREY: image.mode[:1] in {"1", "L", "I", "F"},
        PALETTE: image.mode in {"P", "PA"},
        TURNED: orientation_of(image) != AS_STORED,
    }
    return tuple(remark for remark, holds in facts.items() if holds)
