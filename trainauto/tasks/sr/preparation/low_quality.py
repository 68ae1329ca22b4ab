"""Low-quality partners of tiles."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainauto.tasks.sr.data.degraded_dataset import DegradedCrops
from trainauto.tasks.sr.data.geometry import shrunk
from trainauto.tasks.sr.preparation.shrinking import matlab_bicubic
from trainauto.tasks.sr.preparation.tiles import cut

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
