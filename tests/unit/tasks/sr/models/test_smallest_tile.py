"""The tile that is tried before a run is the one that a lack of memory ends at."""

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.models.tiles import TiledEnlarger


class Refusing:
    """A network that never has enough memory, and notes what it was asked for."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def __call__(self, image: Tensor) -> Tensor:
        self.seen.append((image.shape[-2], image.shape[-1]))
        raise torch.OutOfMemoryError("none left")


@pytest.mark.parametrize("size", [(64, 64), (100, 164), (37, 210), (72, 9)])
@pytest.mark.parametrize("multiple", [1, 8, 24])
@pytest.mark.parametrize("tile_px", [0, 50])
def test_it_is_the_last_one_that_is_tried(size: tuple[int, int], multiple: int, tile_px: int) -> None:
    """Fault: halves were not rounded to the windows of SwinIR, so that a smaller tile was tried than any that runs."""
    enlarger = TiledEnlarger(2, tile_px, 16, SizeRequirements(multiple=multiple))
    smallest = enlarger.smallest_tile(size)
    assert enlarger.tile_px == tile_px, "asking changes nothing"
    refusing = Refusing()
    with pytest.raises(torch.OutOfMemoryError):
        enlarger(refusing, torch.zeros(1, 3, *size))
    # What ran in the upper left corner in the end: this tile, and what it sees right of it and below.
    reach = -(-16 // multiple) * multiple
    seen = smallest.grown(reach, *size)
    padded = tuple(-(-side // multiple) * multiple for side in (seen.height, seen.width))
    assert refusing.seen[-1] == padded
    assert smallest.height % multiple == 0 or smallest.height == size[0]


def test_kernels_are_made_before_the_limit_is_in_force() -> None:
    """Fault: oneDNN that got no memory for code made no kernels any more, before the first step."""
    shapes: list[tuple[bool, torch.Size]] = []
    is_limited = False

    class Limit(AbstractContextManager[None]):
        def __enter__(self) -> None:
            nonlocal is_limited
            is_limited = True

        def __exit__(self, *_: object) -> None:
            nonlocal is_limited
            is_limited = False

    def enlarge(image: Tensor) -> Tensor:
        shapes.append((is_limited, image.shape))
        if is_limited:
            raise torch.OutOfMemoryError("none left")
        return torch.nn.functional.interpolate(image, scale_factor=2.0)

    enlarger = TiledEnlarger(2, requirements=SizeRequirements(multiple=8))
    image = torch.zeros(1, 3, 90, 130)
    assert not enlarger.smallest_fits(enlarge, (90, 130), lambda box: box.of(image), list, Limit)
    (first, unlimited), (second, limited) = shapes
    assert (first, second) == (False, True)
    assert unlimited == limited

    def fits(tile: Tensor) -> Tensor:
        return torch.zeros(1, 3, 2 * tile.shape[2], 2 * tile.shape[3])

    assert enlarger.smallest_fits(fits, (90, 130), lambda box: box.of(image), list, nullcontext)
