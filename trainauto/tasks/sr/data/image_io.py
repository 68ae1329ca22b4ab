"""Decoding images, and knowing their size without decoding them."""

import os
import re
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from trainauto.core.errors import InputError, Problem
from trainauto.data.decoder_warnings import decode_with_warnings, is_listened_to, is_padding, report_damage
from trainauto.tasks.sr.data.exif_orientation import AS_STORED, orientation_of, upright, upright_size_px
from trainauto.tasks.sr.data.image_source import in_database, opened, size_bytes, stored_bytes
from trainauto.tasks.sr.data.pixel_format import PixelFormat

Pixels = NDArray[Any]
"""An image as (H, W, C), RGB or one grey channel, uint8 or uint16."""

# From 89 megapixels on Pillow warns without naming a file, from 179 on it refuses, which we say (:func:`read_header`).
# What lies between is decoded as any other image is, by OpenCV: there is nothing to warn of. The filter is the whole
# process's: headers are read in threads, and a filter that is set for a while is not one thread's alone.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

_TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_GIF_START, _AVIF_MARKS = b"GIF8", (b"ftypavif", b"ftypavis")


def read_image(path: str, channels: int) -> Pixels:
    """Decode an image to 8 bits with 1 or 3 channels, upright; alpha is dropped, 16 bits are reduced.

    Where the decoder continues over damage, the file is named in the log, once.

    Raises:
        InputError: the file cannot be read or decoded; names it.
    """
    return read_pixels(path, PixelFormat(channels))


def read_pixels(path: str, form: PixelFormat) -> Pixels:
    """Decode an image as :func:`read_image` does, to pixels of a format.

    Raises:
        InputError: the file cannot be read or decoded; names it.
    """
    pixels, damage = decoded(path, form)
    if damage:
        report_damage(path, damage)
    return pixels


def decoded(path: str, form: PixelFormat) -> tuple[Pixels, str]:
    """Return what :func:`read_pixels` returns, and what the decoder says of damage; empty where it says nothing.

    Raises:
        InputError: as :func:`read_image`.
    """
    damage = ""
    try:
        start = _start_of(path)
        if start.startswith(_GIF_START) or start[4:] in _AVIF_MARKS:
            # OpenCV has them in some builds, and turns AVIF whatever it is told.
            return _decoded_by_pillow(path, form), ""
        is_tiff = start.startswith(_TIFF_STARTS)
        # Through memory only where OpenCV cannot open the path itself: it decodes a tenth slower from there. It turns
        # TIFF whatever it is told, and fails to do so on the straight way.
        if in_database(path):
            decode = partial(cv2.imdecode, np.frombuffer(stored_bytes(path), np.uint8), form.flags)
        elif (path.isascii() or os.name != "nt") and not is_tiff:
            decode = partial(cv2.imread, path, form.flags)
        else:
            decode = partial(cv2.imdecode, np.fromfile(path, np.uint8), form.flags)
        if is_listened_to(path):
            image, damage = decode_with_warnings(decode)
            damage = "" if damage and is_padding(_all_bytes(path), damage) else damage
        else:
            image = decode()
        orientation = AS_STORED if is_tiff else _orientation(path)
    except MemoryError as error:
        raise _without_room(path) from error
    except (OSError, cv2.error) as error:
        if isinstance(error, cv2.error) and error.code == cv2.Error.STS_NO_MEM:
            raise _without_room(path) from error
        raise InputError(Problem(f"cannot read image {path}: {error}", advice="Remove or replace it.")) from error
    if image is None:
        raise InputError(
            Problem(f"cannot decode image {path}", advice="The file is damaged or no image; remove or replace it.")
        )
    return np.asarray(upright(form.converted(image), orientation), form.dtype), damage


def _without_room(path: str) -> InputError:
    advice = "Free some, cut the image into smaller ones, or take it out of the set."
    return InputError(Problem(f"no memory is left to decode image {path}", advice=advice))


def _decoded_by_pillow(path: str, form: PixelFormat) -> Pixels:
    """Return the first picture of a file, upright.

    Raises:
        InputError: it cannot be decoded.
    """
    try:
        with opened(path) as file, Image.open(file) as image:
            converted = np.asarray(image.convert("RGB"))
            orientation = orientation_of(image)
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise InputError(Problem(f"cannot decode image {path}", advice=f"{error}")) from error
    if form.channels == 1 and not form.is_luma:
        pixels = form.deepened(cv2.cvtColor(converted, cv2.COLOR_RGB2GRAY)[:, :, None])
    else:
        pixels = form.converted(converted[:, :, ::-1])
    return np.asarray(upright(pixels, orientation), form.dtype)


def _all_bytes(path: str) -> bytes:
    with opened(path) as file:
        return file.read()


def _start_of(path: str) -> bytes:
    """Return the first bytes of a file: decoders go by them, whatever its name."""
    with opened(path) as file:
        return file.read(12)


def _orientation(path: str) -> int:
    try:
        with opened(path) as file, Image.open(file) as image:
            return orientation_of(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return AS_STORED  # what Pillow cannot open, it has found no tag in


@dataclass(frozen=True)
class Header:
    """What is known of an image without decoding it.

    Attributes:
        height_px: rows of the upright image.
        width_px: its columns.
        bits: of one sample.
    """

    height_px: int
    width_px: int
    bits: int


def image_size_px(path: str) -> tuple[int, int]:
    """Return (height, width) of the upright image; see :func:`read_header`."""
    header = read_header(path)
    return header.height_px, header.width_px


def read_header(path: str) -> Header:
    """Read the header of an image, after a look at the end of the file for signs of truncation.

    Raises:
        InputError: no image, an empty file, one that ends too early or says it is larger than can be decoded; names it.
    """
    try:
        with opened(path) as file:
            if not size_bytes(path):
                raise InputError(Problem(f"image {path} is empty: 0 bytes", advice="Copy or download it again."))
            with Image.open(file) as image:
                height, width = upright_size_px(image)
                kind = image.format
                bits = _bits(path, image)
    except Image.DecompressionBombError as error:
        raise InputError(
            Problem(
                f"image {path} says it has {_pixels_in(error)} pixels, more than are decoded",
                advice="It is damaged or made to fill memory: remove it. Cut a real image of that size to parts.",
            )
        ) from error
    except UnidentifiedImageError as error:
        if not _start_of(path).startswith(_TIFF_STARTS):
            raise InputError(Problem(f"cannot read image {path}", advice=f"{error}")) from error
        what = f"image {path} is a TIFF of a kind that is not read"
        raise InputError(Problem(what, advice="Save it with 8 or 16 bits.")) from error
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(Problem(f"cannot read image {path}", advice=f"{error}")) from error
    if _is_cut_short(path, kind):
        raise InputError(Problem(f"image {path} ends too early", advice="Copy or download it again."))
    return Header(height, width, bits)


def _pixels_in(error: Exception) -> str:
    """Return the pixels that Pillow names where it refuses an image before its size can be asked for."""
    count = re.search(r"\d+", str(error))
    return f"{int(count.group()):,}" if count else "too many"


def _bits(path: str, image: Image.Image) -> int:
    if image.format == "TIFF":
        return max(image.tag_v2.get(_TIFF_BITS, (8,)))  # type: ignore[attr-defined, no-any-return]
    if image.format == "PNG":
        with opened(path) as file:
            return max(8, file.read(_PNG_BITS + 1)[_PNG_BITS])  # fewer are those of a palette
    return 16 if image.mode.startswith("I") else 8


_TIFF_BITS = 0x0102  # tag BitsPerSample
_PNG_BITS = 24  # place of the bit depth in the file


def _is_cut_short(path: str, kind: str | None) -> bool:
    whole_bytes = size_bytes(path)
    with opened(path) as file:
        if kind == "WEBP":
            header = file.read(12)
            return int.from_bytes(header[4:8], "little") + 8 > whole_bytes
        file.seek(max(0, whole_bytes - 65536))
        tail = file.read()
    # Some cameras append data after the end marker, so it is searched for, not expected at the very end.
    if kind == "PNG":
        return b"IEND" not in tail
    if kind == "JPEG":
        return b"\xff\xd9" not in tail
    return False
