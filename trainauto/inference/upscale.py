"""Enlarging pictures with a trained network, in the largest tiles that what there is of memory allows."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isinf

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainauto.builders.image_model import requirements_of
from trainauto.core.errors import InputError, Problem
from trainauto.core.free_memory import free_memory_bytes
from trainauto.core.plan import BatchShape
from trainauto.core.units import MIB
from trainauto.forecast.benchmark_steps import SHARE_OF_FREE
from trainauto.inference.load_network import LoadedNetwork
from trainauto.memory.cost.cost_model import UPPER, CostModel
from trainauto.memory.cost.forward_trace import forward_prior
from trainauto.memory.cost.ratio_prior import ALLOCATED, FORWARD_PROCESS
from trainauto.memory.cost.tile_policy import extent_px, largest_tile
from trainauto.memory.monitor import device_use
from trainauto.memory.monitor.budget import calm_allocator
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.tracing.trace import TraceError
from trainauto.tasks.sr.data.image_io import Pixels
from trainauto.tasks.sr.data.large_images import Decoded, ImageWriter
from trainauto.tasks.sr.models.receptive_field import ReceptiveField, measure_receptive_field
from trainauto.tasks.sr.models.tiles import Box, Read, TiledEnlarger

logger = logging.getLogger(__name__)

TARGET = 0.85
"""Share of what there is that a tile's predicted peak may reach."""
TRACED_PX = (64, 256, 1024)
FIRST_PROBE_PX = 64
LARGEST_PROBE_PX = 512
"""Where nothing could be traced, tiles of these sides are measured first, each twice the last."""
WITHOUT_LIMIT_PX = 512
"""Side of tiles if the amount of memory is unknown."""
WORTH = 1.15
"""A larger tile is taken up in mid-picture if it is larger by so much: each new shape costs libraries time."""
ALPHA_MARGIN_PX = 4
"""What bicubic enlargement of a part sees beyond it; two would do."""


@dataclass(frozen=True)
class TileFigures:
    """What enlarging took.

    Attributes:
        tile_px: side of the largest tile, overlap included; of the longer side where a picture ran whole.
        tiles: how many there were.
        predicted_bytes: expected peak of the tile that took most, before it ran, what was held included.
        measured_bytes: its peak; 0 where the platform does not tell.
        is_whole: no picture was cut.
    """

    tile_px: int = 0
    tiles: int = 0
    predicted_bytes: int = 0
    measured_bytes: int = 0
    is_whole: bool = True


def as_pixels(network: nn.Module, pixels: Tensor) -> Tensor:
    """Enlarge pixels (1, C, h, w) of 8 bits to pixels of 8 bits."""
    enlarged: Tensor = network(pixels.float().div_(255))
    # A new tensor: some networks give views, of which several pixels are one.
    return enlarged.float().mul(255).round_().clamp_(0, 255).to(torch.uint8)


def limited_meter(device: torch.device, budget_bytes: int | None) -> MemoryMeter:
    """Return a meter that counts from what is held now, with the budget in force; without one, most of what is free.

    Call it when everything that will be needed is loaded, and before weights and pictures are.
    """
    if device.type == "cpu":
        calm_allocator()
    meter = MemoryMeter(device)
    free_bytes = free_memory_bytes() if device.type == "cpu" else None
    limit = budget_bytes or (int(SHARE_OF_FREE * free_bytes) if free_bytes is not None else None)
    if limit is not None:
        meter.set_budget(limit)
    else:
        meter.set_baseline()
        meter.cap_at_available()
    return meter


class Upscaler:
    """Enlarges pictures with one network, and learns what its tiles take.

    Args:
        trained: the network.
        meter: reads memory, and knows its limit.
        tile_px: side of tiles without overlap; ``None`` takes the largest that fits, 0 runs pictures whole.
        overlap_px: pixels a tile sees beyond its own; ``None`` measures what the network needs.
        say: called with what was measured, in words for people.
    """

    def __init__(
        self,
        trained: LoadedNetwork,
        meter: MemoryMeter,
        *,
        tile_px: int | None = None,
        overlap_px: int | None = None,
        say: Callable[[str], None] = logger.info,
    ) -> None:
        self.figures = TileFigures()
        self._network, self._channels = trained.network, trained.channels
        self._meter, self._say = meter, say
        self._is_fixed = tile_px is not None
        self._tiles = TiledEnlarger(trained.scale, tile_px or 0, overlap_px or 0, requirements_of(trained.network))
        self._overlap_is_known = overlap_px is not None
        self.out_channels = self._out_channels()
        self._cost = self._initial_cost()

    @property
    def overlap_px(self) -> int:
        """What tiles see beyond their own, as far as that is known."""
        return self._tiles.overlap_px

    @torch.no_grad()
    def enlarge(self, picture: Decoded, canvas: ImageWriter, done: Callable[[int], object]) -> None:
        """Enlarge a picture onto a canvas; ``done`` is called with how many pixels of the input have been added.

        Raises:
            InputError: not even the smallest tile fits the memory there is.
        """
        size = picture.pixels.shape[0], picture.pixels.shape[1]
        scale = self._tiles.scale

        def read(box: Box) -> Tensor:
            part = picture.pixels[box.top : box.bottom, box.left : box.right]
            tensor = torch.from_numpy(np.ascontiguousarray(part.transpose(2, 0, 1)))
            return tensor[None].to(self._meter.device)

        def keep(box: Box, enlarged: Tensor) -> None:
            pixels: Pixels = enlarged[0].permute(1, 2, 0).cpu().numpy()
            canvas.put(box.top * scale, box.left * scale, pixels)
            if picture.alpha is not None:
                canvas.put_alpha(box.top * scale, box.left * scale, _alpha(picture.alpha, box, scale))
            canvas.release()
            done(box.height * box.width)
            if box.right == size[1]:
                self._correct(size)

        try:
            self._begin(size, read)
            self._tiles.run(self._measured, size, read, keep)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            what = "not even the smallest tile fits the memory there is"
            raise InputError(Problem(what, advice="Give it a larger --budget, or a smaller --overlap.")) from error

    # --- which tile

    @torch.no_grad()
    def _out_channels(self) -> int:
        needs = self._tiles.requirements
        side = -(-max(needs.minimum, 8) // needs.multiple) * needs.multiple
        channels = int(self._network(torch.zeros(1, self._channels, side, side, device=self._meter.device)).shape[1])
        if channels not in (1, 3):
            raise InputError(f"the network makes pictures of {channels} channels; grey and RGB can be written")
        return channels

    def _initial_cost(self) -> CostModel:
        """Trace the network; a model without a prior lives by what is measured."""
        window_px, device = self._tiles.requirements.multiple, self._meter.device
        sides = [-(-max(side, self._tiles.requirements.minimum) // window_px) * window_px for side in TRACED_PX]
        try:
            prior = forward_prior(as_pixels, self._network, self._channels, sides, device=device, window_px=window_px)
        except TraceError as error:
            self._say(f"memory of the network is measured, since it cannot be traced: {error}")
            return CostModel(None, window_px=window_px)
        return CostModel(prior, FORWARD_PROCESS if device.type == "cpu" else ALLOCATED)

    def _begin(self, size: tuple[int, int], read: Read) -> None:
        """Choose the tile for a picture."""
        if not self._is_fixed:
            if not self._cost.can_predict:
                self._measure_upwards(size, read)
            self._tiles.tile_px = self._largest(size, 0)
            if self._tiles.tile_px and not self.figures.tiles:
                # A ninth of the work tells how kernels and trace compare.
                self._try(self._tiles.tile_px // 3, size, read)
                self._tiles.tile_px = self._largest(size, 0)
        if self._tiles.tile_px and not self._overlap_is_known and max(size) > self._tiles.tile_px:
            self._measure_overlap(size, read)
        if not self._is_fixed:
            self._tiles.tile_px = self._largest(size, self._tiles.overlap_px)

    def _largest(self, size: tuple[int, int], overlap_px: int) -> int:
        room_bytes = self._room_bytes()
        if room_bytes is None:
            return WITHOUT_LIMIT_PX
        tile = largest_tile(self._need, size, overlap_px, self._tiles.requirements, room_bytes)
        if tile is None:
            what = f"no tile is predicted to fit {room_bytes / MIB:.0f} MiB with an overlap of {overlap_px} px"
            raise InputError(Problem(what, advice="Give it a larger --budget, or a smaller --overlap."))
        return tile

    def _need(self, side_px: int) -> int:
        return self._cost.predict(BatchShape(1, side_px), UPPER)

    def _room_bytes(self) -> float | None:
        """Return what a forward pass may take beside what is held now; ``None`` if unknown."""
        limit = self._limit_bytes()
        return None if limit is None else TARGET * limit - self._meter.now_bytes()

    def _limit_bytes(self) -> int | None:
        meter = self._meter
        if meter.device.type != "cuda":
            return meter.limit_bytes
        reserved, used = (
            torch.cuda.memory_reserved(meter.device),
            device_use.used_bytes(meter.device),
        )  # pragma: no cuda
        return device_use.available_bytes(  # pragma: no cuda
            used, reserved, meter.total_bytes or 0, meter.limit_bytes
        )

    def _measure_upwards(self, size: tuple[int, int], read: Read) -> None:
        """Measure small tiles, each twice as wide as the last, while the next is expected to fit."""
        side, room_bytes = FIRST_PROBE_PX, self._room_bytes()
        while room_bytes is not None and side <= LARGEST_PROBE_PX:
            self._try(side, size, read)
            side *= 2
            if side >= 2 * max(size) or self._need(side) > room_bytes:
                return

    def _try(self, side_px: int, size: tuple[int, int], read: Read) -> None:
        """Run a corner of the picture, to learn what it takes."""
        side_px = max(side_px, self._tiles.requirements.minimum)
        box = Box(0, min(side_px, size[0]), 0, min(side_px, size[1]))
        TiledEnlarger(self._tiles.scale, 0, 0, self._tiles.requirements).enlarged(self._measured, box, size, read)

    def _measure_overlap(self, size: tuple[int, int], read: Read) -> None:
        # Half of what fits: the parts that are compared are held beside the one that runs.
        largest_px = max(self._tiles.tile_px // 2, self._tiles.requirements.minimum)
        reach = measure_receptive_field(
            lambda pixels: self._network(pixels.float().div_(255)).float(), self._tiles, size, read, largest_px
        )
        self._tiles.overlap_px, self._overlap_is_known = reach.px, reach.is_certain
        self._say(_in_words(reach))

    def _correct(self, size: tuple[int, int]) -> None:
        """Choose the tile anew by what was measured, for the rows that follow."""
        room_bytes = self._room_bytes()
        if self._is_fixed or room_bytes is None or not self._tiles.tile_px:
            return
        better = largest_tile(self._need, size, self._tiles.overlap_px, self._tiles.requirements, room_bytes)
        if better is not None and not self._tiles.tile_px <= (better or max(size)) < WORTH * self._tiles.tile_px:
            self._tiles.tile_px = better

    # --- what it takes

    def _measured(self, pixels: Tensor) -> Tensor:
        """Run a tile, and learn from it."""
        height, width = pixels.shape[-2:]
        shape = BatchShape(1, extent_px(height, width))
        expected = self._cost.predict(shape) if self._cost.can_predict else 0
        before = 0
        try:
            with self._meter.window() as window:
                before = self._meter.now_bytes()
                enlarged = as_pixels(self._network, pixels)
        except (RuntimeError, MemoryError) as error:
            limit = self._limit_bytes()
            if is_out_of_memory(error) and limit is not None:
                self._cost.observe_failure(shape, max(1, limit - before))
            raise
        peak = window.reading.allocated if window.reading is not None else 0
        if peak:
            self._cost.observe(shape, max(1, peak - before))
        self._count(max(height, width), before + expected, peak)
        return enlarged

    def _count(self, side_px: int, expected_bytes: int, peak_bytes: int) -> None:
        figures = self.figures
        figures = replace(figures, tiles=figures.tiles + 1, tile_px=max(figures.tile_px, side_px))
        if peak_bytes >= figures.measured_bytes:
            figures = replace(figures, predicted_bytes=expected_bytes, measured_bytes=peak_bytes)
        self.figures = replace(figures, is_whole=figures.is_whole and not self._tiles.tile_px)


def _in_words(reach: ReceptiveField) -> str:
    if reach.is_certain:
        return f"tiles overlap by {reach.px} px: with more, pixels (0 to 1) change by at most {reach.difference:.1e}"
    if isinf(reach.difference):
        return f"tiles overlap by {reach.px} px: memory allows no comparison with more, seams may show"
    changes = f"more would change pixels by {reach.difference:.1e}"
    return f"tiles overlap by {reach.px} px, the most that fits: {changes}, seams may show"


def _alpha(alpha: NDArray[np.uint8], box: Box, scale: int) -> NDArray[np.uint8]:
    """Return a part of the alpha channel, enlarged bicubically."""
    seen = box.grown(ALPHA_MARGIN_PX, *alpha.shape)
    part = np.ascontiguousarray(alpha[seen.top : seen.bottom, seen.left : seen.right])
    enlarged = cv2.resize(part, (seen.width * scale, seen.height * scale), interpolation=cv2.INTER_CUBIC)
    inner = box.within(seen, scale)
    return np.asarray(enlarged[inner.top : inner.bottom, inner.left : inner.right], np.uint8)
