"""Decoding images, and knowing their size without decoding them."""

import os
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trainauto.core.errors import InputError, Problem
from trainauto.data.upright import AS_STORED, orientation_of, upright, upright_size_px

Pixels = NDArray[np.uint8]
"""An image as (H, W, C), RGB or one grey channel."""

TIFF_SUFFIXES = frozenset({".tif", ".tiff"})


def read_image(path: str, channels: int) -> Pixels:
    """Decode an image to 8 bits with 1 or 3 channels, upright; alpha is dropped, 16 bits are reduced.

    Raises:
        InputError: the file cannot be read or decoded; names it.
    """
    flags = (cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR) | cv2.IMREAD_IGNORE_ORIENTATION
    is_tiff = Path(path).suffix.lower() in TIFF_SUFFIXES
    try:
        # Through memory only where OpenCV cannot open the path itself: it decodes a tenth slower from there. It turns
        # TIFF whatever it is told, and fails to do so on the straight way.
        readable = (path.isascii() or os.name != "nt") and not is_tiff
        image = cv2.imread(path, flags) if readable else cv2.imdecode(np.fromfile(path, np.uint8), flags)
        orientation = AS_STORED if is_tiff else _orientation(path)
    except (OSError, cv2.error) as error:
        raise InputError(f"cannot read image {path}: {error}") from error
    if image is None:
        raise InputError(
            Problem(f"cannot decode image {path}", advice="The file is damaged or no image; remove or replace it.")
        )
    # A view: only the crop that is taken from it is ever copied, into RGB order.
    return np.asarray(upright(image[:, :, None] if channels == 1 else image[:, :, ::-1], orientation), np.uint8)


def _orientation(path: str) -> int:
    try:
        with Image.open(path) as image:
            return orientation_of(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return AS_STORED  # what Pillow cannot open, it has found no tag in


def image_size_px(path: str) -> tuple[int, int]:
    """Return (height, width) of the upright image from its header, after a look at the file's end for truncation.

    Raises:
        InputError: no image, or one that ends too early; names the file.
    """
    try:
        with Image.open(path) as image:
            height, width = upright_size_px(image)
            kind = image.format
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(Problem(f"cannot read image {path}", advice=f"{error}")) from error
    if _is_cut_short(Path(path), kind):
        raise InputError(Problem(f"image {path} ends too early", advice="Copy or download it again."))
    return height, width


def _is_cut_short(path: Path, kind: str | None) -> bool:
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        if kind == "WEBP":
            header = file.read(12)
            return int.from_bytes(header[4:8], "little") + 8 > size_bytes
        file.seek(max(0, size_bytes - 65536))
        tail = file.read()
    # Some cameras append data after the end marker, so it is searched for, not expected at the very end.
    if kind == "PNG":
        return b"IEND" not in tail
    if kind == "JPEG":
        return b"\xff\xd9" not in tail
    return False
