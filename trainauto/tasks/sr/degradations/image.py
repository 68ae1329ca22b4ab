"""What the steps of a degradation take and return."""

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float32]
"""(H, W, C), 0 to 1, with 1 or 3 channels."""

Pixels = NDArray[np.uint8]
"""(H, W, C), 0 to 255."""


def to_image(pixels: Pixels) -> Image:
    """Return 8-bit pixels as an image."""
    image: Image = np.multiply(pixels, np.float32(1 / 255), dtype=np.float32)
    return image


def to_pixels(image: Image) -> Pixels:
    """Return an image rounded to 8 bits; values outside of 0 to 1 are clipped."""
    pixels: Pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    return pixels


def with_channels(image: Image) -> Image:
    """Return the image with its channel as an axis: OpenCV drops that of grey images."""
    return image if image.ndim == 3 else image[:, :, None]
