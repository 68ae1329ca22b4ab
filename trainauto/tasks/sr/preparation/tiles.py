"""Where an image is cut into tiles, and what a tile's file is called."""

from dataclasses import dataclass
from itertools import product

from numpy.typing import NDArray


@dataclass(frozen=True)
class Grid:
    """How images are cut.

    Attributes:
        tile_px: longest side of a tile, a multiple of ``scale``.
        overlap_px: what neighbours share, less than ``tile_px``, a multiple of ``scale``.
        scale: image sides are cut to a multiple of it; 1 cuts nothing off.
    """

    tile_px: int
    overlap_px: int = 0
    scale: int = 1

    def boxes(self, height_px: int, width_px: int) -> list[tuple[int, int, int, int]]:
        """Return the tiles of an image as (top, left, height, width), row by row.

        As in BasicSR's extract_subimages, the last tile ends at the edge, so that it overlaps more than the others. A
        side shorter than a tile is kept whole. None are left of an image smaller than ``scale``.
        """
        height_px, width_px = (side // self.scale * self.scale for side in (height_px, width_px))
        height, width = min(height_px, self.tile_px), min(width_px, self.tile_px)
        return [(top, left, height, width) for top, left in product(self._starts(height_px), self._starts(width_px))]

    def _starts(self, length_px: int) -> list[int]:
        if length_px <= self.tile_px:
            return [0] if length_px else []
        last = length_px - self.tile_px
        starts = list(range(0, last + 1, self.tile_px - self.overlap_px))
        return starts if starts[-1] == last else [*starts, last]


def cut(pixels: NDArray, box: tuple[int, int, int, int], scale: int = 1) -> NDArray:  # type: ignore[type-arg]
    """Return the view of a box, (H, W, C), of an image that is ``scale`` times smaller than what the box counts in."""
    top, left, height, width = (length // scale for length in box)
    return pixels[top : top + height, left : left + width]


def tile_name(image_name: str, number: int) -> str:
    """Return the name of a tile's file as BasicSR writes it: ``sub/photo_s001.png`` of image ``sub/photo``."""
    return f"{image_name}_s{number:03d}.png"
