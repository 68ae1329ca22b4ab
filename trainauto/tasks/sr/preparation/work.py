"""What is done to one image: looking at it, and writing its tiles. Each runs in a process of its own."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from trainauto.core.errors import InputError
from trainauto.core.files import write_atomically
from trainauto.tasks.sr.preparation.journal import Entry, ended
from trainauto.tasks.sr.preparation.low_quality import LowQuality
from trainauto.tasks.sr.preparation.measures import blockiness, detail, grey_levels, perceptual_hash
from trainauto.tasks.sr.preparation.reading import read_at_depth
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
    for leftover in [found for kind in (GT, LQ) for found in (folder / kind).rglob(".*.tmp")]:
        with suppress(OSError):
            leftover.unlink()
