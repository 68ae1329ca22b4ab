"""Pictures of any size: decoded with their alpha, and written without ever being held in memory as a whole."""

import mmap
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import write_atomically
from trainauto.core.units import MIB
from trainauto.tasks.sr.data.exif_orientation import AS_STORED, SIDEWAYS, orientation_of, upright
from trainauto.tasks.sr.data.image_io import Pixels, image_size_px, read_header, read_image
from trainauto.tasks.sr.data.png_chunks import PNG_END, add_mark, add_profile, fits

EIGHT_BITS = 8

MAPPED_FROM_BYTES = 8 * MIB
"""Size of pixels from which on they lie in a file."""


@dataclass(frozen=True)
class Decoded:
    """A picture of 8 bits.

    Attributes:
        pixels: (H, W, C), RGB or grey.
        alpha: (H, W); ``None`` where the file has none.
        profile: the ICC profile that says what colours the pixels are; empty where the file has none.
        pictures: how many the file holds, of which this is the first.
    """

    pixels: Pixels
    alpha: NDArray[np.uint8] | None = None
    profile: bytes = b""
    pictures: int = 1


def read_picture(path: str, channels: int) -> Decoded:
    """Decode a picture to 8 bits with 1 or 3 channels, turned upright as its EXIF tag says, alpha beside it.

    Raises:
        InputError: the file cannot be read or decoded; names it.
    """
    image_size_px(path)
    try:
        with Image.open(path) as image:
            profile, pictures = bytes(image.info.get("icc_profile") or b""), getattr(image, "n_frames", 1)
            if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
                return replace(_with_alpha(path, image, channels), profile=profile, pictures=pictures)
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(Problem(f"cannot read image {path}", advice=f"{error}")) from error
    return Decoded(read_image(path, channels), profile=profile, pictures=pictures)


def _with_alpha(path: str, image: Image.Image, channels: int) -> Decoded:
    orientation = orientation_of(image)
    if image.format == "TIFF":
        if orientation in SIDEWAYS:  # Pillow 13 mixes up rows and columns, OpenCV multiplies colours by alpha
            raise InputError(Problem(f"cannot turn {path} upright without harm", advice="Save it upright, or as PNG."))
        image, orientation = ImageOps.exif_transpose(image), AS_STORED  # some versions of Pillow have done so by now
    if image.format == "PNG" and "transparency" in image.info and read_header(path).bits > EIGHT_BITS:
        alpha = _alpha_of_key(path, image.info["transparency"])
        return Decoded(read_image(path, channels), upright(alpha, orientation))
    with_alpha = image.convert("RGBA")
    coloured = np.asarray(with_alpha.convert("L" if channels == 1 else "RGB"))
    pixels = coloured.reshape(*coloured.shape[:2], channels)
    return Decoded(upright(pixels, orientation), upright(np.asarray(with_alpha.getchannel("A")), orientation))


def _alpha_of_key(path: str, key: int | tuple[int, ...]) -> NDArray[np.uint8]:
    """Return the alpha of an image of 16 bits in which one colour is transparent; Pillow compares 8 bits with it."""
    pixels = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_UNCHANGED | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None:
        raise InputError(
            Problem(f"cannot decode image {path}", advice="The file is damaged or no image; remove or replace it.")
        )
    is_key = pixels == key if isinstance(key, int) else (pixels[..., 2::-1] == np.array(key)).all(axis=-1)
    return np.where(is_key, 0, 255).astype(np.uint8)


def empty_pixels(folder: Path | None, height: int, width: int, channels: int) -> Pixels:
    """Return room for an image (H, W, C): in memory, or where it is large in a nameless file, mapped into memory.

    Pages of a file count against no budget, and the system takes them back when it wants to.

    Args:
        folder: where the file lies; made if missing. ``None`` takes memory, and so does a disk that is full.
        height: rows.
        width: columns.
        channels: of a pixel.
    """
    size_bytes = height * width * channels
    if folder is not None and size_bytes >= MAPPED_FROM_BYTES:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                if hasattr(os, "posix_fallocate"):  # as in ImageWriter
                    os.posix_fallocate(file.fileno(), 0, size_bytes)
                return np.asarray(np.memmap(file, np.uint8, "r+", shape=(height, width, channels)))
    return np.empty((height, width, channels), np.uint8)


class ImageWriter:
    """A picture under way, (H, W, C) with colours as RGB: a nameless file, mapped into memory.

    Its pages are the file's: they count against no budget, and the system takes them back when it wants to. The file is
    gone with the process, however that ends.

    Args:
        folder: where the file lies; the one the picture goes to, since that has the room.
        height: rows.
        width: columns.
        channels: 1 or 3; with alpha, either becomes four.
        has_alpha: there is one.

    Raises:
        InputError: there is no space left on the disk.
    """

    def __init__(self, folder: Path, height: int, width: int, channels: int, *, has_alpha: bool = False) -> None:
        channels = 4 if has_alpha else channels
        size_bytes = height * width * channels
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed in __exit__
        try:
            # Taken now: a page that finds no room when it is written ends the process (SIGBUS).
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), 0, size_bytes)
            else:
                self._file.truncate(size_bytes)
        except OSError as error:
            self._file.close()
            what = f"no room for {size_bytes / MIB:.0f} MiB of pixels in {folder}: {error.strerror}"
            raise InputError(Problem(what, advice="They go there first; the PNG is smaller.")) from error
        self._map = mmap.mmap(self._file.fileno(), size_bytes)
        self._stored = np.frombuffer(self._map, np.uint8).reshape(height, width, channels)

    def put(self, top: int, left: int, pixels: Pixels) -> None:
        """Write a part (h, w, C) of the picture, at its place in rows and columns."""
        height, width = pixels.shape[:2]
        # OpenCV writes BGR; grey beside an alpha fills all three.
        self._stored[top : top + height, left : left + width, :3] = pixels[..., ::-1]

    def put_alpha(self, top: int, left: int, alpha: NDArray[np.uint8]) -> None:
        """Write a part (h, w) of the last channel."""
        height, width = alpha.shape
        self._stored[top : top + height, left : left + width, -1] = alpha

    def release(self) -> None:
        """Let go of the pages written so far; they stay in the file."""
        if hasattr(mmap, "MADV_DONTNEED"):
            with suppress(OSError):
                self._map.madvise(mmap.MADV_DONTNEED)

    def save(self, path: Path, profile: bytes = b"", mark: str = "") -> None:
        """Write the picture as PNG, whole or not at all. The encoder goes by rows and holds a few of them.

        Args:
            path: the file.
            profile: ICC profile of its colours; left out where it is one of other channels (:meth:`holds`).
            mark: what made it, see :func:`~trainauto.tasks.sr.data.png_chunks.mark_in`.

        Raises:
            InputError: it could not be written.
        """

        def write(temporary: Path) -> None:
            self._encode(temporary)
            if self.holds(profile):
                add_profile(temporary, profile)
            if mark:
                add_mark(temporary, mark)

        write_atomically(path, write)

    def holds(self, profile: bytes) -> bool:
        """Say whether the picture can hold a colour profile: it is one of grey, or of RGB, as its pixels are."""
        return bool(profile) and fits(profile, self._stored.shape[2])

    def _encode(self, temporary: Path) -> None:
        named = temporary.with_name(f"{temporary.name}.png")  # OpenCV tells the format by the name
        try:
            done = cv2.imwrite(str(named), self._stored)
            with named.open("rb") as file:
                file.seek(-len(PNG_END), os.SEEK_END)
                done = done and file.read() == PNG_END
            if not done:
                raise InputError(f"the picture could not be written to {temporary.parent}; is the disk full?")
            os.replace(named, temporary)
        except (OSError, cv2.error) as error:
            raise InputError(f"the picture could not be written to {temporary.parent}: {error}") from error
        finally:
            named.unlink(missing_ok=True)

    def __enter__(self) -> "ImageWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del self._stored
        with suppress(BufferError):  # a traceback may hold a view still
            self._map.close()
        self._file.close()
