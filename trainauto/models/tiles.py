"""Enlarging images of any size: whole where they fit, else in overlapping tiles that shrink until they do."""

import logging
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.core.plan import SizeRequirements
from trainauto.memory.oom import is_out_of_memory

logger = logging.getLogger(__name__)

Enlarge = Callable[[Tensor], Tensor]


class TiledEnlarger:
    """Runs a network over an image, whole or in tiles.

    A tile sees ``overlap_px`` more on every side than it contributes, so that its seams lie outside what is kept. When
    memory runs out the tile is halved, for this image and all later ones; training is not touched.

    Args:
        scale: enlargement factor.
        tile_px: side of a tile in input pixels; 0 runs images whole.
        overlap_px: pixels a tile sees beyond its own on every side.
        requirements: sizes the network accepts; inputs are mirrored up to them.
    """

    def __init__(
        self, scale: int, tile_px: int = 0, overlap_px: int = 16, requirements: SizeRequirements | None = None
    ) -> None:
        self.scale = scale
        self.tile_px = tile_px
        self.overlap_px = overlap_px
        self.requirements = requirements or SizeRequirements()

    def __call__(self, enlarge: Enlarge, lq: Tensor) -> Tensor:
        """Map an image (1, C, h, w) on the device to (1, C, h * scale, w * scale) on the CPU, as float32.

        Raises:
            torch.OutOfMemoryError: (or its CPU twin) not even the smallest tile fits.
        """
        while True:
            try:
                return self._attempt(enlarge, lq)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or not self._can_shrink(lq):
                    raise
            # Outside the handler: its traceback would keep the tensors of the failed attempt alive.
            self._shrink(lq)

    def _attempt(self, enlarge: Enlarge, lq: Tensor) -> Tensor:
        height, width = lq.shape[-2:]
        side, reach, scale = self.tile_px or max(height, width), self.overlap_px, self.scale
        result = torch.empty(1, lq.shape[1], height * scale, width * scale)
        for top, bottom in _spans(height, side):
            for left, right in _spans(width, side):
                y0, x0 = max(0, top - reach), max(0, left - reach)
                tile = lq[..., y0 : min(height, bottom + reach), x0 : min(width, right + reach)]
                enlarged = self._enlarge_padded(enlarge, tile)
                inner = enlarged[
                    ..., (top - y0) * scale : (bottom - y0) * scale, (left - x0) * scale : (right - x0) * scale
                ]
                result[..., top * scale : bottom * scale, left * scale : right * scale] = inner
        return result

    def _enlarge_padded(self, enlarge: Enlarge, tile: Tensor) -> Tensor:
        height, width = tile.shape[-2:]
        multiple = self.requirements.multiple
        padded = [-(-max(side, self.requirements.minimum) // multiple) * multiple for side in (height, width)]
        if padded != [height, width]:
            tile = F.pad(tile, (0, padded[1] - width, 0, padded[0] - height), mode="replicate")
        return enlarge(tile)[..., : height * self.scale, : width * self.scale].float().cpu()

    def _side(self, lq: Tensor) -> int:
        longest = max(lq.shape[-2:])
        return min(self.tile_px, longest) if self.tile_px else longest

    def _can_shrink(self, lq: Tensor) -> bool:
        return self._side(lq) // 2 >= max(
            self.requirements.minimum, self.requirements.multiple, self.overlap_px // 2, 8
        )

    def _shrink(self, lq: Tensor) -> None:
        tried = self._side(lq)
        self.tile_px = -(-tried // 2)
        if lq.device.type == "cuda":  # pragma: no cuda
            torch.cuda.empty_cache()
        logger.warning("Out of memory in validation at %d px: going on in tiles of %d px.", tried, self.tile_px)


def _spans(length: int, side: int) -> Iterator[tuple[int, int]]:
    for start in range(0, length, side):
        yield start, min(start + side, length)
