"""Square crops of images as a workload: ``lq`` (N, C, s, s), and references (N, C, s * scale, s * scale)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainauto.core.plan import BatchShape
from trainauto.core.run_events import ImageArray
from trainauto.core.stacked_samples import StackedSamples
from trainauto.core.workload import Tensors
from trainauto.tasks.sr.data.geometry import in_8_bits
from trainauto.tasks.sr.data.pixel_format import TRAINED_BITS

SHOWN_PX = 256
"""Longest side of a reference that is shown."""


class ImageCrops(StackedSamples):
    """Low-quality crops and their references, uint8 or uint16 as they leave the loader.

    Args:
        channels: of all images.
        scale: enlargement factor between them.
        references: their names in a batch; ``gt`` is the image as its file holds it.
        bits: of the pixels, 8 or 16.
    """

    def __init__(
        self, channels: int, scale: int, references: Sequence[str] = ("gt",), *, bits: int = TRAINED_BITS
    ) -> None:
        self._channels = channels
        self._dtype = torch.uint8 if bits == TRAINED_BITS else torch.uint16
        self._scale = scale
        self._references = references

    def shape(self, tensors: Tensors) -> BatchShape:
        """Return samples and the side of the low-quality crops, in pixels."""
        samples = self.weight(tensors)
        return BatchShape(samples=samples, extent=tensors["lq"].shape[-1], images=samples)

    def units(self, tensors: Tensors) -> int:
        """Return the number of high-quality pixels."""
        gt = tensors["gt"]
        return gt.shape[0] * gt.shape[-2] * gt.shape[-1]

    def shrink(self, tensors: Tensors, extent: int, smaller: int) -> dict[str, Tensor]:
        """Keep the upper left corner of every crop.

        Tensors whose sides are a multiple of ``extent`` (references, outputs) keep that ratio; all others stay whole.
        """
        cut = {}
        for name, tensor in tensors.items():
            height, width = tensor.shape[-2:] if tensor.ndim >= 3 else (0, 0)
            is_image = height == width and height > 0 and height % extent == 0
            side = height // extent * smaller if is_image else 0
            cut[name] = tensor[..., :side, :side] if is_image else tensor
        return cut

    def shown(self, tensors: Tensors, most: int) -> list[dict[str, ImageArray]]:
        """Return the first crops with their references: of large ones, the upper left corner."""
        crops = {
            name: in_8_bits(tensor[:most])
            for name, tensor in tensors.items()
            if tensor.ndim == 4 and tensor.shape[1] in (1, 3) and tensor.dtype in (torch.uint8, torch.uint16)
        }
        if "lq" not in crops:  # of a set that is not ours, of pixels that are no whole numbers
            return []
        side = crops["lq"].shape[-1]
        crops = self.shrink(crops, side, min(side, max(1, SHOWN_PX // self._scale)))
        return [
            {name: crop[sample].permute(1, 2, 0).numpy() for name, crop in crops.items()}
            for sample in range(len(crops["lq"]))
        ]

    def dummy(self, samples: int, extent: int) -> dict[str, Tensor]:
        """Return crops of the size asked for; their pixels are not set."""
        sides = {"lq": extent, **dict.fromkeys(self._references, extent * self._scale)}
        return {
            name: torch.empty(samples, self._channels, side, side, dtype=self._dtype) for name, side in sides.items()
        }
