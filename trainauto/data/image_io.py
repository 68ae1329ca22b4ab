"""Decoding images, and knowing their size without decoding them."""

import os
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trainauto.core.errors import InputError, Problem

Pixels = NDArray[np.uint8]
"""An image as (H, W, C), RGB or one grey channel."""


def read_image(path: str, channels: int) -> Pixels:
    """Decode an image to 8 bits with 1 or 3 channels; alpha is dropped, 16 bits are reduced, EXIF rotation is ignored.

    Rotation is ignored because the two images of a pair rarely carry the same tag.

    Raises:
        InputError: the file cannot be read or decoded; names it.
    """
    flags = (cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR) | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        # Through memory only where OpenCV cannot open the path itself: it decodes a tenth slower from there.
        readable = path.isascii() or os.name != "nt"
        image = cv2.imread(path, flags) if readable else cv2.imdecode(np.fromfile(path, np.uint8), flags)
    except (OSError, cv2.error) as error:
        raise InputError(f"cannot read image {path}: {error}") from error
    if image is None:
        raise InputError(
            Problem(f"cannot decode image {path}", advice="The file is damaged or no image; remove or replace it.")
        )
    if channels == 1:
        return np.asarray(image[:, :, None], np.uint8)
    # A view: only the crop that is taken from it is ever copied into RGB order.
    return np.asarray(image[:, :, ::-1], np.uint8)


def image_size_px(path: str) -> tuple[int, int]:
    """Return (height, width) from the header, after a look at the end of the file for signs of truncation.

    Raises:
        InputError: no image, or one that ends too early; names the file.
    """
    try:
        with Image.open(path) as image:
            width, height = image.size
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
