"""Losses that compare colour, or brightness, or images made smaller: traiNNer-redux's."""

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.color_spaces import linear, require_rgb, video_chroma
from trainauto.tasks.sr.losses.criteria import Criterion, criterion_named
from trainauto.tasks.sr.losses.registry import LOSSES

CIE_LIMIT, CIE_SLOPE = 216 / 24389, 24389 / 27


class _Smaller(WeightedLoss):
    """A comparison of images that were made ``scale`` times smaller.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        criterion: ``l1``, ``l2`` or ``charbonnier``.
        scale: how much smaller. Rows and columns that are left over at the lower and right edge do not count.

    Raises:
        ValueError: another criterion, or a scale below 1.
    """

    def __init__(self, loss_weight: float = 1.0, criterion: Criterion = "l1", scale: int = 4) -> None:
        super().__init__(loss_weight)
        if scale < 1:
            raise ValueError(f"{type(self).__name__}: scale must be at least 1, not {scale}")
        self.scale = self.smallest_px = scale
        self._compare = criterion_named(criterion, type(self).__name__)

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean difference of the smaller images."""
        return self._compare(self._smaller(prediction), self._smaller(target)).mean()

    def _smaller(self, image: Tensor) -> Tensor:
        return F.avg_pool2d(image, self.scale)


@LOSSES.register("AverageLoss", "average")
class AverageLoss(_Smaller):
    """Means of squares of ``scale`` x ``scale`` pixels: colours in the large, whatever the texture."""


@LOSSES.register("BicubicLoss", "bicubic")
class BicubicLoss(_Smaller):
    """Images made smaller by antialiased bicubic: what the low-quality image of a bicubic recipe would be."""

    def _smaller(self, image: Tensor) -> Tensor:
        return F.interpolate(image, scale_factor=1 / self.scale, mode="bicubic", antialias=True)


@LOSSES.register("ColorLoss", "color")
class ColorLoss(_Smaller):
    """Cb and Cr of BT.601, averaged over squares of ``scale`` x ``scale`` pixels."""

    def _smaller(self, image: Tensor) -> Tensor:
        require_rgb(image, "ColorLoss")
        return super()._smaller(video_chroma(image))


@LOSSES.register("LumaLoss", "luma")
class LumaLoss(WeightedLoss):
    """Lightness L* of CIELAB, from 0 to 1.

    Below a luminance of 0.0089, where L* is linear, this is traiNNer-redux's curve, which falls with the square: dark
    pixels weigh less than in CIELAB.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        criterion: ``l1``, ``l2`` or ``charbonnier``.

    Raises:
        ValueError: another criterion.
    """

    def __init__(self, loss_weight: float = 1.0, criterion: Criterion = "l1") -> None:
        super().__init__(loss_weight)
        self._compare = criterion_named(criterion, "LumaLoss")

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean difference of L* / 100."""
        return self._compare(lightness(prediction), lightness(target)).mean()


def lightness(image: Tensor) -> Tensor:
    """Return L* / 100, (N, 1, H, W), of images with one or three channels."""
    light = linear(image)
    if image.shape[1] != 1:
        require_rgb(image, "LumaLoss")
        red, green, blue = light.chunk(3, dim=1)
        light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    curve = torch.where(light <= CIE_LIMIT, light * (light * CIE_SLOPE), 116 * light ** (1 / 3) - 16)
    return (curve / 100).clamp(0, 1)
