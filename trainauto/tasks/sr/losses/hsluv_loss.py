"""Hue, saturation and lightness as the eye sees them, as a loss: traiNNer-redux's, a term of its GAN recipes."""

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import Terms, WeightedLoss
from trainauto.tasks.sr.losses.color_spaces import require_rgb
from trainauto.tasks.sr.losses.criteria import Criterion, criterion_named
from trainauto.tasks.sr.losses.hsluv import hsluv
from trainauto.tasks.sr.losses.local_statistics import filtered, gaussian
from trainauto.tasks.sr.losses.registry import LOSSES

GREY, DARK = 0.1, 0.1
"""Saturation below which a colour counts as grey; lightness below which, and above one minus which, it has no hue."""


@LOSSES.register("HSLuvLoss", "hsluv")
class HSLuvLoss(WeightedLoss):
    """Differences of hue, saturation and lightness in HSLuv, which keeps colours from shifting beside a GAN.

    * Hue: the shorter way around the circle, twice, always as an absolute difference. Between a grey and a colour it is
      the larger saturation; between two greys, two dark or two bright pixels it is nothing.
    * Saturation: weighted by how far both pixels are from black and from white.
    * Lightness: as it is.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        hue_weight: factor of the part; 0 leaves it out.
        saturation_weight: factor of the part; 0 leaves it out.
        lightness_weight: factor of the part; 0 leaves it out.
        criterion: ``l1``, ``l2`` or ``charbonnier``, of saturation and lightness.
        downscale_factor: images are first made so many times smaller, by antialiased bicubic.
        blur_strength: images are first blurred by a Gaussian of this sigma in px, over 4 times that and one pixels.

    Raises:
        ValueError: another criterion.
    """

    def __init__(
        self,
        loss_weight: float = 1.0,
        hue_weight: float = 1 / 3,
        saturation_weight: float = 1 / 3,
        lightness_weight: float = 1 / 3,
        criterion: Criterion = "l1",
        downscale_factor: int = 1,
        blur_strength: int = 0,
    ) -> None:
        super().__init__(loss_weight)
        self.weights = {"hue": hue_weight, "saturation": saturation_weight, "lightness": lightness_weight}
        self._compare = criterion_named(criterion, "HSLuvLoss")
        self.downscale_factor, self.blur_strength = downscale_factor, blur_strength
        self.smallest_px = max(downscale_factor, 2 * blur_strength + 1)

    def compute(self, prediction: Tensor, target: Tensor) -> Terms:
        """Return the weighted mean difference of each part."""
        require_rgb(prediction, "HSLuvLoss")
        x, y = self._prepared(prediction), self._prepared(target)
        x_hue, x_saturation, x_lightness = (part / full for part, full in zip(hsluv(x), (360, 100, 100), strict=True))
        y_hue, y_saturation, y_lightness = (part / full for part, full in zip(hsluv(y), (360, 100, 100), strict=True))
        terms: Terms = {}
        if weight := self.weights["hue"]:
            hues = _hue_difference((x_hue, x_saturation, x_lightness), (y_hue, y_saturation, y_lightness))
            terms["hue"] = weight * hues.mean()
        if weight := self.weights["saturation"]:
            colourful = torch.minimum(x_lightness, 1 - x_lightness) + torch.minimum(y_lightness, 1 - y_lightness)
            terms["saturation"] = weight * (self._compare(x_saturation, y_saturation) * colourful).mean()
        if weight := self.weights["lightness"]:
            terms["lightness"] = weight * self._compare(x_lightness, y_lightness).mean()
        return terms

    def _prepared(self, image: Tensor) -> Tensor:
        if self.blur_strength:
            image = blurred(image, 4 * self.blur_strength + 1, self.blur_strength)
        if self.downscale_factor > 1:
            smaller = F.interpolate(image, scale_factor=1 / self.downscale_factor, mode="bicubic", antialias=True)
            image = smaller.clamp(0, 1)
        return image


def _hue_difference(x: tuple[Tensor, Tensor, Tensor], y: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Return the difference of two hues from 0 to 1, given hue, saturation and lightness of both, each 0 to 1."""
    (x_hue, x_saturation, x_lightness), (y_hue, y_saturation, y_lightness) = x, y
    around = (x_hue - y_hue).abs()
    difference = 2 * torch.minimum(around, 1 - around)
    x_grey, y_grey = x_saturation < GREY, y_saturation < GREY
    difference = torch.where(x_grey & y_grey, 0.0, difference)
    difference = torch.where(x_grey ^ y_grey, torch.maximum(x_saturation, y_saturation), difference)
    difference = torch.where((x_lightness < DARK) & (y_lightness < DARK), 0.0, difference)
    return torch.where((x_lightness > 1 - DARK) & (y_lightness > 1 - DARK), 0.0, difference)


def blurred(image: Tensor, window_px: int, sigma_px: float) -> Tensor:
    """Return an image under a Gaussian of an odd window, mirrored at its edges, (N, C, H, W)."""
    padded = F.pad(image, [window_px // 2] * 4, mode="reflect")
    return filtered(padded, gaussian(window_px, sigma_px, image.device))
