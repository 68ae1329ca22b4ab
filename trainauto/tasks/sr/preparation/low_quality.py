"""Low-quality partners of tiles."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainauto.tasks.sr.data.degraded_dataset import DegradedCrops
from trainauto.tasks.sr.data.geometry import shrunk
from trainauto.tasks.sr.preparation.tiles import cut


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


SHRINKING: dict[str, Callable[[NDArray[Any], int], NDArray[Any]]] = {
    "matlab": matlab_bicubic,
    "antialiased": shrunk,
}

Box = tuple[int, int, int, int]
Pair = tuple[str, NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Degradations:
    """What an option file draws.

    Attributes:
        crops: degrades an image.
        seed: of the file; every tile has its own, made of this and of its name.
    """

    crops: DegradedCrops
    seed: int

    def pair(self, pixels: NDArray[Any], name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the high-quality tile (sharpened where the file says so) and the low-quality one, of 8 bits."""
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        images, _ = self.crops.whole(np.ascontiguousarray(pixels), int.from_bytes(digest[:8], "little"))
        return images["gt"], images["lq"]


@dataclass(frozen=True)
class LowQuality:
    """How low-quality partners are made; without one there are none.

    Attributes:
        scale: by how much smaller they are.
        how: a key of :data:`SHRINKING`, or degradations.
    """

    scale: int
    how: Literal["matlab", "antialiased"] | Degradations

    def pairs(self, pixels: NDArray[Any], boxes: dict[str, Box]) -> Iterator[Pair]:
        """Yield (name, high-quality tile, low-quality tile) of an image.

        Shrunk tiles are cut out of the whole image shrunk, so that they know no edges but the image's own. Degraded
        ones are made tile by tile: each draws for itself.

        Args:
            pixels: (H, W, 3); both sides are multiples of the scale.
            boxes: places of the tiles by name, multiples of the scale.
        """
        if isinstance(self.how, Degradations):
            for name, box in boxes.items():
                yield name, *self.how.pair(cut(pixels, box), name)
            return
        small = SHRINKING[self.how](pixels, self.scale)
        for name, box in boxes.items():
            yield name, cut(pixels, box), cut(small, box, self.scale)
