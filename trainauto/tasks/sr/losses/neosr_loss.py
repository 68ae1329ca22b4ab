"""Losses of neosr's recipes: its MS-SSIM, clipped pseudo-Huber, and consistency of colour and brightness."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.color_loss import lightness
from trainauto.tasks.sr.losses.color_spaces import linear, require_rgb
from trainauto.tasks.sr.losses.criteria import charbonnier
from trainauto.tasks.sr.losses.hsluv_loss import blurred
from trainauto.tasks.sr.losses.local_statistics import gaussian, halved, moments, power
from trainauto.tasks.sr.losses.mssim_loss import SCALE_WEIGHTS
from trainauto.tasks.sr.losses.registry import LOSSES

BLUR_SIGMA_PX, BLUR_WINDOW_PX = 3, 21
LEAST_VALUE = 1 / 255
COSINE_LIMIT = 1e-3
"""The cosine's term of consistency counts only below it: far from the target it would dominate."""


@LOSSES.register("MSSIM_Loss")
class NeosrMSSIMLoss(WeightedLoss):
    """1 - multi-scale SSIM as neosr trains with it: every scale is padded with zeros, and values are not clamped.

    Each sample has a value of its own, and the loss is one minus their mean. neosr takes means over the batch at each
    scale, so that its samples depend on each other; of a batch of one both are the same.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        window_size: side of the Gaussian window, odd, in px.
        in_channels: read and not used: images say how many they have.
        sigma: of the window, in px.
        K1: small constant of luminance.
        K2: small constant of contrast.
        L: largest value of an image.
        padding: zeros around each scale, in px; ``None`` is half the window, which keeps its size.

    Raises:
        ValueError: an even window.
    """

    def __init__(
        self,
        loss_weight: float = 1.0,
        window_size: int = 11,
        in_channels: int = 3,  # noqa: ARG002  part of the interface
        sigma: float = 1.5,
        K1: float = 0.01,  # noqa: N803  as option files of neosr call it
        K2: float = 0.03,  # noqa: N803
        L: float = 1.0,  # noqa: N803
        padding: int | None = None,
    ) -> None:
        super().__init__(loss_weight)
        if not window_size % 2:
            raise ValueError(f"mssim_loss: window_size must be odd, not {window_size}")
        self.window_px, self.sigma_px = window_size, sigma
        self.padding_px = window_size // 2 if padding is None else padding
        self.c1, self.c2 = (K1 * L) ** 2, (K2 * L) ** 2

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return 1 - mean MS-SSIM."""
        x, y = prediction, target
        window = gaussian(self.window_px, self.sigma_px, x.device)
        score = torch.ones(len(x), device=x.device)
        for scale, weight in enumerate(SCALE_WEIGHTS, start=1):
            mean_x, mean_y, variance_x, variance_y, covariance = moments(x, y, window, self.padding_px)
            similarity = (2 * covariance + self.c2) / (variance_x + variance_y + self.c2)
            if scale == len(SCALE_WEIGHTS):
                similarity = (
                    similarity * (2 * mean_x * mean_y + self.c1) / (mean_x.square() + mean_y.square() + self.c1)
                )
            score = score * power(similarity.mean(dim=(1, 2, 3)), weight)
            x, y = halved(x), halved(y)
        return 1 - score.mean()


@LOSSES.register("CHC_Loss")
class ClippedPseudoHuberLoss(WeightedLoss):
    """L1 that is smooth at zero, each pixel's loss clipped: pixels that are close enough teach nothing more.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        reduction: only ``mean``.
        criterion: ``huber`` (Charbonnier) or ``l1``.
        loss_lambda: factor of one minus the mean cosine of colours, added to every pixel before it is clipped. Above 0
            samples depend on each other, and a batch that runs out of memory cannot be split into micro-batches.
        clip_min: least loss of a pixel.
        clip_max: largest loss of a pixel.

    Raises:
        ValueError: another criterion.
    """

    def __init__(
        self,
        loss_weight: float = 1.0,
        reduction: Literal["mean"] = "mean",
        criterion: Literal["huber", "l1"] = "huber",
        loss_lambda: float = 0.0,
        clip_min: float = 0.003921,
        clip_max: float = 0.996078,
    ) -> None:
        super().__init__(loss_weight, reduction)
        if criterion not in ("huber", "l1"):
            raise ValueError(f"chc_loss: criterion must be huber or l1, not '{criterion}'")
        self.criterion, self.loss_lambda = criterion, loss_lambda
        self.clip_min, self.clip_max = clip_min, clip_max
        self.couples_samples = loss_lambda != 0

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean of clipped differences."""
        is_l1 = self.criterion == "l1"
        each = (prediction - target).abs() if is_l1 else charbonnier(prediction, target)
        if self.loss_lambda:
            each = each + self.loss_lambda * (1 - F.cosine_similarity(prediction, target, dim=1, eps=1e-20)).mean()
        return each.clamp(self.clip_min, self.clip_max).mean()


@LOSSES.register("Consistency_Loss")
class ConsistencyLoss(WeightedLoss):
    """Chroma in Oklab and lightness in CIELAB stay those of the target: colours and brightness do not drift.

    The cosine's term counts for a sample once it is below 0.001; neosr asks that of the batch's mean.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        criterion: ``chc`` (Charbonnier, clipped to 0 to 1) or ``l1``.
        blur: compare lightness under a Gaussian of sigma 3 px.
        cosim: add the cosines between chroma, and between columns of lightness.
        saturation: factor of the target's chroma.
        brightness: factor of the target's lightness.

    Raises:
        ValueError: another criterion.
    """

    def __init__(
        self,
        loss_weight: float = 1.0,
        criterion: Literal["chc", "l1"] = "chc",
        blur: bool = True,
        cosim: bool = True,
        saturation: float = 1.0,
        brightness: float = 1.0,
    ) -> None:
        super().__init__(loss_weight)
        if criterion not in ("chc", "l1"):
            raise ValueError(f"consistency_loss: criterion must be chc or l1, not '{criterion}'")
        self.criterion, self.blur, self.cosim = criterion, blur, cosim
        self.saturation, self.brightness = saturation, brightness
        self.smallest_px = BLUR_WINDOW_PX // 2 + 1 if blur else 1

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean over samples."""
        require_rgb(prediction, "consistency_loss")
        x, y = (image.clamp(LEAST_VALUE, 1) for image in (prediction, target))
        x_luma, y_luma = self._luma(x), self._luma(y) * self.brightness
        x_chroma, y_chroma = _chroma(x, 1.0), _chroma(y, self.saturation)
        each = self._difference(x_luma, y_luma) + self._difference(x_chroma, y_chroma)
        if self.cosim:
            of_chroma = 1 - F.cosine_similarity(x_chroma, y_chroma, dim=1, eps=1e-20).mean(dim=(1, 2))
            of_luma = 1 - F.cosine_similarity(x_luma[:, 0], y_luma[:, 0], dim=1, eps=1e-20).mean(dim=1)
            cosines = 0.5 * of_chroma + 0.5 * of_luma
            each = each + torch.where(cosines < COSINE_LIMIT, cosines, 0.0)
        return each.mean()

    def _luma(self, image: Tensor) -> Tensor:
        if self.blur:
            image = blurred(image, BLUR_WINDOW_PX, BLUR_SIGMA_PX).clamp(0, 1)
        return lightness(image)

    def _difference(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean difference of each sample, (N,)."""
        each = (x - y).abs() if self.criterion == "l1" else charbonnier(x, y).clamp(0, 1)
        return each.mean(dim=(1, 2, 3))


def _chroma(image: Tensor, saturation: float) -> Tensor:
    """Return a and b of Oklab (Ottosson 2020) plus one half, clamped to 0 to 1, (N, 2, H, W)."""
    red, green, blue = linear(image).chunk(3, dim=1)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    medium = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    a = 1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short
    b = 0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short
    return (saturation * torch.cat((a, b), dim=1) + 0.5).clamp(0, 1)
