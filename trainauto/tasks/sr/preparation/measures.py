"""What is measured of an image and of its tiles, to find those that teach nothing."""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

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
