"""How large a tile may be: the largest whose forward pass is predicted to stay within what there is."""

from collections.abc import Callable
from math import ceil, sqrt

from trainauto.core.plan import SizeRequirements

Need = Callable[[int], float]
"""Maps the side of a square image to the bytes that a forward pass needs beside what is held."""

SMALLEST_PX = 8
"""Tiles of fewer pixels a side are nearly all overlap."""


def extent_px(height: int, width: int) -> int:
    """Return the side of the square of as many pixels: memory follows those (and their square, with attention)."""
    return ceil(sqrt(height * width))


def largest_tile(
    need: Need, size: tuple[int, int], overlap_px: int, requirements: SizeRequirements, room_bytes: float
) -> int | None:
    """Return the side of the largest tile that fits, without its overlap; 0 where the image fits whole.

    Args:
        need: bytes of a forward pass; never falls with the side.
        size: height and width of the image.
        overlap_px: what a tile sees beyond its own on every side.
        requirements: of the network; the side is a multiple of what it asks for.
        room_bytes: what the forward pass may take.

    Returns:
        The side in pixels; ``None`` where not even the smallest tile fits.
    """
    if need(extent_px(*size)) <= room_bytes:
        return 0
    multiple = requirements.multiple
    reach_px = ceil(overlap_px / multiple) * multiple
    smallest = ceil(max(SMALLEST_PX, requirements.minimum) / multiple)

    def fits(count: int) -> bool:
        seen = [min(side, count * multiple + 2 * reach_px) for side in size]
        return need(extent_px(*seen)) <= room_bytes

    if not fits(smallest):
        return None
    fitting, failing = smallest, max(ceil(max(size) / multiple), smallest + 1)
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        fitting, failing = (middle, failing) if fits(middle) else (fitting, middle)
    return fitting * multiple
