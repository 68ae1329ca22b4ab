"""What the steps of a degradation take and return."""

from typing import Any, TypeVar, cast

import cv2
import numpy as np
from numpy.typing import DTypeLike, NDArray

Image = NDArray[np.float32]
"""(H, W, C), 0 to 1, with 1 or 3 channels."""

Pixels = NDArray[Any]
"""(H, W, C) of uint8 or uint16, from 0 to all bits set."""

Array = TypeVar("Array", bound=NDArray[Any])


def to_image(pixels: Pixels) -> Image:
    """Return pixels of 8 or 16 bits as an image."""
    image: Image = np.multiply(pixels, np.float32(1 / np.iinfo(pixels.dtype).max), dtype=np.float32)
    return image


def to_pixels(image: Image, dtype: DTypeLike = np.uint8) -> Pixels:
    """Return an image rounded to 8 bits, or those of ``dtype``; values outside of 0 to 1 are clipped."""
    largest = np.iinfo(np.dtype(dtype)).max
    if largest == 255:  # OpenCV scales, rounds and clips from above in one pass
        return with_channels(cv2.convertScaleAbs(np.maximum(image, 0), alpha=largest))
    pixels: Pixels = np.rint(np.clip(image, 0, 1) * np.float32(largest)).astype(dtype)
    return pixels


def with_channels(image: Array) -> Array:
    """Return the image with its channel as an axis: OpenCV drops that of grey images."""
    return image if image.ndim == 3 else cast(Array, image[:, :, None])
