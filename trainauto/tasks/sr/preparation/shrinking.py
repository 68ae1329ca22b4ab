"""Shrinking whole images by a whole number as MATLAB's imresize does."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def matlab_bicubic(pixels: NDArray[Any], scale: int) -> NDArray[Any]:
    """Shrink by an integer factor as MATLAB's ``imresize(image, 1/scale)`` does with integer images.

    The kernel is Keys' cubic (a = -0.5), widened by the factor (antialiasing). Borders are mirrored. Rows are shrunk
    first, then columns, and each pass is rounded to the depth of the image, half up.

    Args:
        pixels: (H, W, C) of 8 or 16 bits; both sides are multiples of ``scale``.
        scale: 1 returns the pixels.
    """
    for axis in (0, 1) if scale > 1 else ():
        pixels = _shrunk_along(pixels, scale, axis)
    return pixels


def _shrunk_along(pixels: NDArray[Any], scale: int, axis: int) -> NDArray[Any]:
    # Pixel i of the result lies at (i + 0.5) * scale - 0.5 of the image, at the same phase for each i: one set of
    # weights serves all of them.
    reach = 2 * scale
    taps = np.arange(-reach, reach + scale)
    distances = np.abs(taps - (scale - 1) / 2) / scale
    weights = _cubic(distances)
    taps, weights = taps[weights != 0], weights[weights != 0] / weights.sum()
    sides = [(0, 0)] * pixels.ndim
    sides[axis] = (reach, reach)
    padded = np.moveaxis(np.pad(pixels, sides, mode="symmetric"), axis, 0)
    count = pixels.shape[axis] // scale
    total = np.zeros((count, *padded.shape[1:]))
    for tap, weight in zip(taps, weights, strict=True):
        total += weight * padded[tap + reach : tap + reach + count * scale : scale]
    rounded = np.floor(np.clip(total, 0, np.iinfo(pixels.dtype).max) + 0.5).astype(pixels.dtype)
    return np.ascontiguousarray(np.moveaxis(rounded, 0, axis))


def _cubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keys' cubic convolution kernel (1981) with a = -0.5 at distances of 0 and more."""
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    weights: NDArray[np.float64] = np.where(distance <= 1, near, np.where(distance <= 2, far, 0.0))
    return weights
