"""Enlarging images of any size: whole where they fit, else in overlapping tiles that shrink until they do."""

import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from trainauto.core.plan import SizeRequirements
from trainauto.core.process import Limited
from trainauto.memory.monitor import onednn
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.tasks.sr.archs.padding import pad_to

logger = logging.getLogger(__name__)

Enlarge = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Box:
    """A part of an image in input pixels: rows ``top`` to ``bottom``, columns ``left`` to ``right``, ends left out."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def height(self) -> int:
        """Rows."""
        return self.bottom - self.top

    @property
    def width(self) -> int:
        """Columns."""
        return self.right - self.left

    def grown(self, reach_px: int, height: int, width: int) -> "Box":
        """Return the box with so much more on every side, as far as the image goes."""
        return Box(
            max(0, self.top - reach_px),
            min(height, self.bottom + reach_px),
            max(0, self.left - reach_px),
            min(width, self.right + reach_px),
        )

    def within(self, outer: "Box", scale: int) -> "Box":
        """Return where this box lies in the enlarged picture of an ``outer`` one."""
        sides = (self.top - outer.top, self.bottom - outer.top, self.left - outer.left, self.right - outer.left)
        return Box(*(side * scale for side in sides))

    def of(self, image: Tensor) -> Tensor:
        """Return this part of an image (..., H, W)."""
        return image[..., self.top : self.bottom, self.left : self.right]


Read = Callable[[Box], Tensor]
"""Gives a part of an image (1, C, h, w), on the device the network runs on."""

Keep = Callable[[Box, Tensor], None]
"""Takes the enlarged picture (1, C, h * scale, w * scale) of a part, on the device."""


class TiledEnlarger:
    """Runs a network over an image, whole or in tiles.

    A tile sees ``overlap_px`` more on every side than it contributes, so that its seams lie outside what is kept. When
    memory runs out the tile is halved, for this image and all later ones; training is not touched.

    Tiles begin on multiples of what the network asks for: windows of attention then lie where those of the whole image
    do. ``tile_px`` may be changed while an image is under way; the next row of tiles follows it. ``ooms`` counts how
    often memory has run out.

    Args:
        scale: enlargement factor.
        tile_px: side of a tile in input pixels; 0 runs images whole.
        overlap_px: pixels a tile sees beyond its own on every side.
        requirements: sizes the network accepts; inputs are mirrored up to them, as the networks themselves do.
        may_shrink: whether running out of memory may change the tiles. Not where several ranks run the network in step.
    """

    def __init__(
        self,
        scale: int,
        tile_px: int = 0,
        overlap_px: int = 16,
        requirements: SizeRequirements | None = None,
        *,
        may_shrink: bool = True,
    ) -> None:
        self.scale = scale
        self.tile_px = tile_px
        self.overlap_px = overlap_px
        self.requirements = requirements or SizeRequirements()
        self.ooms = 0
        self._may_shrink = may_shrink

    def __call__(self, enlarge: Enlarge, lq: Tensor) -> Tensor:
        """Map an image (1, C, h, w) on the device to (1, C, h * scale, w * scale) on the CPU, as float32.

        Raises:
            torch.OutOfMemoryError: (or its CPU twin) not even the smallest tile fits.
        """
        height, width = lq.shape[-2:]
        result = torch.empty(1, lq.shape[1], height * self.scale, width * self.scale)
        everything = Box(0, height, 0, width)

        def keep(box: Box, enlarged: Tensor) -> None:
            box.within(everything, self.scale).of(result).copy_(enlarged)

        self.run(enlarge, (height, width), lambda box: box.of(lq), keep)
        return result

    def smallest_fits(
        self,
        enlarge: Enlarge,
        size: tuple[int, int],
        read: Read,
        make_canvas: Callable[[], object],
        limited: Limited = nullcontext,
    ) -> bool:
        """Say whether the smallest tile that running out of memory would end at fits beside the enlarged image.

        Args:
            enlarge: the network, or what is made of it.
            size: height and width of the image.
            read: gives parts of the image.
            make_canvas: takes the memory of the enlarged image, which is held as long as what it returns.
            limited: puts the limit in force that is asked about. The tile is run without it before, so that the code of
                its kernels is there: oneDNN that gets no memory for code makes no kernels any more in this process.
        """
        height, width = size
        smallest, multiple = self.smallest_tile(size), self.requirements.multiple
        # In the middle, where it sees something on all sides.
        top = max(0, height - smallest.height) // 2 // multiple * multiple
        left = max(0, width - smallest.width) // 2 // multiple * multiple
        box = Box(top, top + smallest.height, left, left + smallest.width)
        try:
            self.enlarged(enlarge, box, size, read)
            with limited():
                canvas = make_canvas()
                self.enlarged(enlarge, box, size, read)
                del canvas
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return False
        return True

    def smallest_tile(self, size: tuple[int, int]) -> Box:
        """Return the tile in the upper left corner that is left where memory runs out until it cannot shrink.

        Args:
            size: height and width of the image.
        """
        tile_px, box = self.tile_px, Box(0, size[0], 0, size[1])
        try:
            while True:
                box = Box(*next(self._spans(0, box.height)), *next(self._spans(0, box.width)))
                if not self._can_shrink(box):
                    return box
                self.tile_px = -(-max(box.height, box.width) // 2)
        finally:
            self.tile_px = tile_px

    def run(self, enlarge: Enlarge, size: tuple[int, int], read: Read, keep: Keep) -> None:
        """Enlarge an image part by part, rows of tiles from the top; nothing is held but the tile under way.

        Args:
            enlarge: the network, or what is made of it.
            size: height and width of the image.
            read: gives parts of the image.
            keep: takes enlarged parts, each pixel of the picture once.

        Raises:
            torch.OutOfMemoryError: (or its CPU twin) not even the smallest tile fits.
        """
        top, (height, width) = 0, size
        while top < height:
            bottom = next(self._spans(top, height))[1]
            for left, right in self._spans(0, width):
                self._tile(enlarge, Box(top, bottom, left, right), size, read, keep)
            top = bottom

    def enlarged(self, enlarge: Enlarge, box: Box, size: tuple[int, int], read: Read) -> Tensor:
        """Return the enlarged picture of one part, which sees what lies around it."""
        seen = box.grown(self._reach_px, *size)
        return box.within(seen, self.scale).of(self._padded(enlarge, read(seen)))

    @property
    def _reach_px(self) -> int:
        """The overlap, rounded up so that what is seen begins on a multiple, too."""
        return -(-self.overlap_px // self.requirements.multiple) * self.requirements.multiple

    def _tile(self, enlarge: Enlarge, box: Box, size: tuple[int, int], read: Read, keep: Keep) -> None:
        if not self.tile_px or max(box.height, box.width) <= self._side_px:
            try:
                keep(box, self.enlarged(enlarge, box, size, read))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or not self._can_shrink(box):
                    raise
            else:
                return
            # Outside the handler: its traceback would keep the tensors of the failed attempt alive.
            self._shrink(box)
        for top, bottom in self._spans(box.top, box.bottom):
            for left, right in self._spans(box.left, box.right):
                self._tile(enlarge, Box(top, bottom, left, right), size, read, keep)

    def _padded(self, enlarge: Enlarge, tile: Tensor) -> Tensor:
        height, width = tile.shape[-2:]
        multiple = self.requirements.multiple
        padded = [-(-max(side, self.requirements.minimum) // multiple) * multiple for side in (height, width)]
        return enlarge(pad_to(tile, *padded))[..., : height * self.scale, : width * self.scale]

    @property
    def _side_px(self) -> int:
        """Side of a tile, rounded down to a multiple."""
        multiple = self.requirements.multiple
        return max(multiple, self.tile_px // multiple * multiple)

    def _spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Cut a length into the fewest tiles, nearly equal, that begin on multiples."""
        multiple = self.requirements.multiple
        count = -(-(end - start) // self._side_px) if self.tile_px else 1
        step = -(-(end - start) // (count * multiple)) * multiple
        for begin in range(start, end, step):
            yield begin, min(begin + step, end)

    def _can_shrink(self, box: Box) -> bool:
        return self._may_shrink and max(box.height, box.width) // 2 >= max(
            self.requirements.minimum, self.requirements.multiple, self.overlap_px // 2, 8
        )

    def _shrink(self, box: Box) -> None:
        side_px = max(box.height, box.width)
        self.ooms += 1
        self.tile_px = -(-side_px // 2)
        torch.cuda.empty_cache()  # does nothing where CUDA is not in use
        onednn.leave_if_broken()
        logger.warning("Out of memory at %d px: continuing in tiles of %d px.", side_px, self.tile_px)
