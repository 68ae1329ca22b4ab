"""Structural similarity over several scales, in the variants that option files of others ask for."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.color_spaces import luma, require_rgb, video_luma
from trainauto.tasks.sr.losses.local_statistics import (
    SIGMA_PX,
    WINDOW_PX,
    filtered,
    gaussian,
    halved,
    luminance,
    moments,
    power,
    structure,
)
from trainauto.tasks.sr.losses.registry import LOSSES

SCALE_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Of Wang et al., "Multiscale Structural Similarity for Image Quality Assessment", 2003."""
ColorSpace = Literal["yiq", "ycbcr", "lhm"]


@LOSSES.register("MSSIMLoss", "mssim")
class MSSIMLoss(WeightedLoss):
    """1 - multi-scale SSIM, as traiNNer-redux trains with it.

    Five scales; contrast and structure of each, negative values as zero, and luminance only where asked for. A scale
    smaller than the window of 11 px is padded with zeros, so that crops of 64 px can be compared, which the published
    definition refuses below 161 px. Each sample has a value of its own, and the loss is one minus their mean.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        channels: read and not used, as in traiNNer-redux.
        downsample: make images of 384 px and more smaller first, as the authors' MATLAB code does.
        test_y_channel: compare brightness alone, else each channel.
        is_prod: multiply the scales, else sum them.
        color_space: what brightness is: ``yiq`` and ``lhm`` nearly that of BT.601 with full range, ``ycbcr`` with the
            range of video.
        include_luminance: multiply by the similarity of local means.

    Raises:
        ValueError: another colour space.
    """

    def __init__(
        self,
        loss_weight: float = 1.0,
        channels: int = 3,  # noqa: ARG002  part of the interface
        downsample: bool = False,
        test_y_channel: bool = True,
        is_prod: bool = True,
        color_space: ColorSpace = "yiq",
        include_luminance: bool = False,
    ) -> None:
        super().__init__(loss_weight)
        if color_space not in get_args(ColorSpace):
            raise ValueError(
                f"MSSIMLoss: color_space must be one of {', '.join(get_args(ColorSpace))}, not '{color_space}'"
            )
        self.downsample, self.test_y_channel, self.is_prod = downsample, test_y_channel, is_prod
        self.color_space, self.include_luminance = color_space, include_luminance

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return 1 - mean MS-SSIM."""
        x, y = self._compared(prediction), self._compared(target)
        window = gaussian(WINDOW_PX, SIGMA_PX, x.device)
        contrasts = []
        for _ in SCALE_WEIGHTS:
            whole, contrast = self._similarity(x, y, window)
            contrasts.append(contrast)
            x, y = halved(x), halved(y)
        values = [*contrasts[:-1], whole]  # luminance counts at the coarsest scale alone
        if self.is_prod:
            score = torch.stack([power(value, weight) for value, weight in zip(values, SCALE_WEIGHTS, strict=True)])
            score = score.prod(dim=0)
        else:
            total = sum(SCALE_WEIGHTS)
            score = torch.stack([value * (weight / total) for value, weight in zip(values, SCALE_WEIGHTS, strict=True)])
            score = score.sum(dim=0)
        return 1 - score.clamp(0, 1).mean()

    def _similarity(self, x: Tensor, y: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
        """Return SSIM and its contrast-structure part by sample, (N,) each."""
        if self.downsample and (factor := max(1, round(min(x.shape[-2:]) / 256))) > 1:
            x, y = F.avg_pool2d(x, factor), F.avg_pool2d(y, factor)
        padding = WINDOW_PX // 2 if x.shape[-1] < WINDOW_PX else 0
        mean_x, mean_y, variance_x, variance_y, covariance = moments(x, y, window, padding)
        contrast = F.relu(structure(variance_x, variance_y, covariance))
        whole = luminance(mean_x, mean_y) * contrast if self.include_luminance else contrast
        return whole.mean(dim=(1, 2, 3)), contrast.mean(dim=(1, 2, 3))

    def _compared(self, image: Tensor) -> Tensor:
        image = image.clamp(0, 1)
        if not self.test_y_channel or image.shape[1] != 3:
            return image
        if self.color_space == "ycbcr":
            return video_luma(image)
        return luma(image) if self.color_space == "yiq" else luma(image) - 1e-4 * image[:, :1]


@LOSSES.register("MSSSIML1Loss", "msssiml1")
class MSSSIML1Loss(WeightedLoss):
    """Structural similarity under Gaussians of several widths, mixed with L1.

    Source: Zhao et al., "Loss Functions for Image Restoration with Neural Networks", 2017. As in the implementation
    that traiNNer-redux carries, each channel sees only some of the widths: of 3 n maps, map k is channel k // n under
    width k // 3. Borders see zeros beyond the image.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        gaussian_sigmas: widths in px, narrowest first; at least three. The last one sets the window's size.
        data_range: largest value of an image.
        k: the two small constants of SSIM.
        alpha: share of structural similarity; the rest is L1.
        cuda_dev: read and not used: the loss runs where its images are.

    Raises:
        ValueError: fewer than three widths.
    """

    def __init__(
        self,
        loss_weight: float = 1.0,
        gaussian_sigmas: Sequence[float] | None = None,
        data_range: float = 1.0,
        k: Sequence[float] = (0.01, 0.03),
        alpha: float = 0.1,
        cuda_dev: int = 0,  # noqa: ARG002  part of the interface
    ) -> None:
        super().__init__(loss_weight)
        self.sigmas = tuple(gaussian_sigmas or (0.5, 1.0, 2.0, 4.0, 8.0))
        if len(self.sigmas) < 3:
            raise ValueError(f"MSSSIML1Loss: gaussian_sigmas needs three widths at least, not {len(self.sigmas)}")
        self.data_range, self.alpha = data_range, alpha
        self.c1, self.c2 = ((constant * data_range) ** 2 for constant in k)

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return alpha (1 - similarity) + (1 - alpha) blurred L1, averaged over pixels."""
        require_rgb(prediction, "MSSSIML1Loss")
        count, widest = len(self.sigmas), self.sigmas[-1]
        padding = int(2 * widest)
        maps = Counter((k // count, k // 3) for k in range(3 * count))
        similarity = torch.ones_like(prediction[:, :1])
        for (channel, width), times in maps.items():
            x, y = prediction[:, channel : channel + 1], target[:, channel : channel + 1]
            window = gaussian(2 * padding + 1, self.sigmas[width], x.device)
            mean_x, mean_y, variance_x, variance_y, covariance = moments(x, y, window, padding)
            contrast = (2 * covariance + self.c2) / (variance_x + variance_y + self.c2)
            similarity = similarity * contrast**times
            if (channel, width) == (2, count - 1):  # the last three maps
                close = (2 * mean_x * mean_y + self.c1) / (mean_x.square() + mean_y.square() + self.c1)
                similarity = similarity * close**3
        window = gaussian(2 * padding + 1, widest, prediction.device)
        difference = filtered((prediction - target).abs().mean(dim=1, keepdim=True), window, padding)
        return (self.alpha * (1 - similarity) + (1 - self.alpha) * difference / self.data_range).mean()
