"""Structural similarity as a loss."""

import torch
from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.local_statistics import SIGMA_PX, WINDOW_PX, gaussian, luminance, moments, structure
from trainauto.tasks.sr.losses.registry import LOSSES


@LOSSES.register("SSIMLoss", "ssim")
class SSIMLoss(WeightedLoss):
    """1 - SSIM of images with values from 0 to 1, per channel, over the region that windows fit into.

    As published (:mod:`~trainauto.tasks.sr.losses.local_statistics`); it agrees with ``calculate_ssim`` on such images.

    Images smaller than that window are compared with the largest odd window that fits, its sigma smaller in
    proportion. All images of a batch have one size, so a batch is still the mean of its parts.
    """

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return 1 - mean SSIM, (N, C, H, W) each."""
        window = gaussian_window(min(prediction.shape[-2:]), prediction.device)
        mean_x, mean_y, variance_x, variance_y, covariance = moments(prediction, target, window)
        return 1 - (luminance(mean_x, mean_y) * structure(variance_x, variance_y, covariance)).mean()


def gaussian_window(shorter_side_px: int, device: torch.device) -> Tensor:
    """Return the normalised 1-D Gaussian for images of this shorter side, (K,) with odd K of at most 11."""
    size = min(WINDOW_PX, shorter_side_px - (shorter_side_px + 1) % 2)
    return gaussian(size, SIGMA_PX * size / WINDOW_PX, device)
