"""How far a network sees: the overlap that tiles need, measured on the picture that is to be enlarged.

What layers can see in theory adds up to hundreds of pixels in deep networks; what changes the result is near. A part of
the picture is enlarged twice, with more and with less around it: where the difference is small, so is the seam.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from trainauto.tasks.sr.models.tiles import Box, Enlarge, Read, TiledEnlarger

TOLERANCE = 2.5e-4
"""Largest difference, of 1.0, where seams are measured: a quarter of what is promised of seams elsewhere."""

CORE_PX = 48
"""Side of the parts that are compared."""
SPOTS = 4
"""Parts that are compared: two of most detail, the brightest, one of the middle."""
GRID = 12
"""Parts looked at for that are as many in a row, and rows."""


@dataclass(frozen=True)
class ReceptiveField:
    """The overlap that a network's receptive field asks for on a picture.

    Attributes:
        px: the smallest overlap that hides seams.
        difference: the largest difference seen with it, of 1.0.
        is_certain: whether that is within the tolerance; otherwise ``px`` is the largest overlap that could be tried.
    """

    px: int
    difference: float
    is_certain: bool


def measure_receptive_field(
    enlarge: Enlarge,
    tiles: TiledEnlarger,
    size: tuple[int, int],
    read: Read,
    largest_px: int,
    tolerance: float = TOLERANCE,
) -> ReceptiveField:
    """Return the smallest overlap, a multiple of what the network asks for, that hides seams on this picture.

    Overlaps are doubled until twice as much makes no difference, then halved towards the last that did.

    Args:
        enlarge: the network, on parts as ``read`` gives them, to float images.
        tiles: says scale and requirements; its tile and overlap are not looked at.
        size: height and width of the picture.
        read: gives parts of the picture.
        largest_px: side of the largest part that can be run; bounds what can be tried.
        tolerance: largest difference that counts as none.

    Raises:
        torch.OutOfMemoryError: (or its CPU twin) what was to fit does not.
    """
    multiple = tiles.requirements.multiple
    core = _rounded(min(CORE_PX, max(largest_px // 3, tiles.requirements.minimum)), multiple)
    most = max(0, (largest_px - core) // 2 // multiple * multiple)
    if most == 0:
        return ReceptiveField(multiple, float("inf"), is_certain=False)
    comparison = _Comparison(enlarge, tiles, size, read, list(_spots(read, size, core, multiple)))
    failed, reach = 0, min(most, _rounded(4, multiple))
    while True:
        wider = min(2 * reach, most)
        difference = comparison.difference(reach, wider) if wider > reach else float("inf")
        if difference <= tolerance:
            break
        if wider >= most:
            return ReceptiveField(most, difference, is_certain=False)
        failed, reach = reach, wider
    step = _rounded(reach // 8, multiple)
    while reach - failed > step:
        middle = _rounded((failed + reach) // 2, multiple)
        if middle >= reach:
            break
        between = comparison.difference(middle, wider)
        if between <= tolerance:
            reach, difference = middle, between
        else:
            failed = middle
    return ReceptiveField(reach, difference, is_certain=True)


class _Comparison:
    """Enlarges the same parts with different surroundings; the widest are kept, since they are asked for again."""

    def __init__(
        self, enlarge: Enlarge, tiles: TiledEnlarger, size: tuple[int, int], read: Read, spots: list[Box]
    ) -> None:
        self._enlarge, self._tiles, self._size, self._read, self._spots = enlarge, tiles, size, read, spots
        self._kept: dict[int, list[Tensor]] = {}

    def difference(self, narrow_px: int, wide_px: int) -> float:
        """Return the largest difference that the surroundings between the two make."""
        for reach_px in (narrow_px, wide_px):
            self._kept[reach_px] = self._kept.get(reach_px) or self._run(reach_px)
        self._kept = {reach_px: result for reach_px, result in self._kept.items() if reach_px in (narrow_px, wide_px)}
        return max(
            float((narrow - wide).abs().max())
            for narrow, wide in zip(self._kept[narrow_px], self._kept[wide_px], strict=True)
        )

    def _run(self, reach_px: int) -> list[Tensor]:
        enlarger = TiledEnlarger(self._tiles.scale, 0, reach_px, self._tiles.requirements)
        return [enlarger.enlarged(self._enlarge, spot, self._size, self._read).clone() for spot in self._spots]


def _spots(read: Read, size: tuple[int, int], core: int, multiple: int) -> Iterator[Box]:
    """Choose parts of the picture, off its edges where it is large enough: there is no seam at an edge."""
    rows, columns = (_starts(length, core, multiple) for length in size)
    boxes = [Box(y, min(y + core, size[0]), x, min(x + core, size[1])) for y in rows for x in columns]
    spots: list[tuple[float, float, Box]] = []
    for box in boxes:
        part = read(box).float()
        spots.append((float(part.diff(dim=-1).abs().mean()), float(part.mean()), box))
    by_detail = sorted(spots, key=lambda spot: spot[0], reverse=True)
    brightest = max(spots, key=lambda spot: spot[1])
    chosen = [*by_detail[:2], brightest, spots[len(spots) // 2]]
    yield from dict.fromkeys(box for _, _, box in chosen[:SPOTS])


def _starts(length: int, core: int, multiple: int) -> list[int]:
    margin = min(2 * core, max(0, (length - core) // 2))
    last = max(margin, length - margin - core)
    starts = torch.linspace(margin, last, GRID).tolist()
    return list(dict.fromkeys(int(start) // multiple * multiple for start in starts))


def _rounded(px: int, multiple: int) -> int:
    """Round up to a multiple, of which there is at least one."""
    return max(1, -(-px // multiple)) * multiple
