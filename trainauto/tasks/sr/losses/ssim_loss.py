"""Structural similarity as a loss."""

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.registry import LOSSES

WINDOW_PX = 11
SIGMA_PX = 1.5


@LOSSES.register("SSIMLoss", "ssim")
class SSIMLoss(WeightedLoss):
    """1 - SSIM of images with values from 0 to 1, per channel, over the region that windows fit into.

    Source: Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity", 2004: Gaussian
    window of 11 x 11 px with sigma 1.5 px, K1 = 0.01, K2 = 0.03. It agrees with ``calculate_ssim`` on such images.

    Images smaller than that window are compared with the largest odd window that fits, its sigma smaller in
    proportion. All images of a batch have one size, so a batch is still the mean of its parts.
    """

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return 1 - mean SSIM, (N, C, H, W) each."""
        height, width = prediction.shape[-2:]
        window = gaussian_window(min(height, width), prediction.device)
        x, y = prediction.reshape(-1, 1, height, width), target.reshape(-1, 1, height, width)
        # All local means in one convolution; its channels are x, y, x^2, y^2, xy.
        means = _blur(torch.cat((x, y, x * x, y * y, x * y), dim=1), window)
        mean_x, mean_y, mean_xx, mean_yy, mean_xy = means.unbind(dim=1)
        return 1 - _similarity(mean_x, mean_y, mean_xx, mean_yy, mean_xy).mean()


def gaussian_window(shorter_side_px: int, device: torch.device) -> Tensor:
    """Return the normalised 1-D Gaussian for images of this shorter side, (K,) with odd K of at most 11."""
    size = min(WINDOW_PX, shorter_side_px - (shorter_side_px + 1) % 2)
    sigma = SIGMA_PX * size / WINDOW_PX
    distance = torch.arange(size, device=device, dtype=torch.float32) - size // 2
    window = torch.exp(-distance.square() / (2 * sigma**2))
    return window / window.sum()


def _blur(images: Tensor, window: Tensor) -> Tensor:
    """Blur each channel where the whole window fits: first down, then across."""
    channels, size = images.shape[1], len(window)
    down = window.view(1, 1, size, 1).expand(channels, -1, -1, -1)
    across = window.view(1, 1, 1, size).expand(channels, -1, -1, -1)
    return F.conv2d(F.conv2d(images, down, groups=channels), across, groups=channels)


def _similarity(mean_x: Tensor, mean_y: Tensor, mean_xx: Tensor, mean_yy: Tensor, mean_xy: Tensor) -> Tensor:
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x.square() + mean_y.square() + c1)
    covariance = mean_xy - mean_x * mean_y
    variances = (mean_xx - mean_x.square()) + (mean_yy - mean_y.square())
    return luminance * (2 * covariance + c2) / (variances + c2)
