"""Losses that compare pixel by pixel."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.color_spaces import require_rgb, video_luma
from trainauto.tasks.sr.losses.criteria import CHARBONNIER_EPS, charbonnier
from trainauto.tasks.sr.losses.registry import LOSSES

PSNR_EPS = 1e-8
"""Added to the mean squared error, whose logarithm has no value at zero: equal images have -80."""


@LOSSES.register("L1Loss", "l1")
class L1Loss(WeightedLoss):
    """Mean absolute difference."""

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return mean |p - t|."""
        return F.l1_loss(prediction, target)


@LOSSES.register("MSELoss", "mse")
class MSELoss(WeightedLoss):
    """Mean squared difference."""

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return mean (p - t)^2."""
        return F.mse_loss(prediction, target)


@LOSSES.register("HuberLoss", "huber")
class HuberLoss(WeightedLoss):
    """Squared where the difference is at most ``delta``, absolute beyond (Huber 1964).

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        reduction: only ``mean``.
        delta: difference up to which it is squared.

    Raises:
        ValueError: ``delta`` is not positive.
    """

    def __init__(self, loss_weight: float = 1.0, reduction: Literal["mean"] = "mean", delta: float = 1.0) -> None:
        super().__init__(loss_weight, reduction)
        if not delta > 0:
            raise ValueError(f"HuberLoss: delta must be positive, not {delta}")
        self.delta = delta

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean of d^2 / 2, or delta (|d| - delta / 2), of d = p - t."""
        return F.huber_loss(prediction, target, delta=self.delta)


@LOSSES.register("CharbonnierLoss", "charbonnier")
class CharbonnierLoss(WeightedLoss):
    """L1 that is smooth at zero: mean sqrt((p - t)^2 + eps).

    Source: Lai et al., "Deep Laplacian Pyramid Networks for Fast and Accurate Super-Resolution", CVPR 2017, with the
    square of its constant as ``eps``, which is how BasicSR spells it.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        reduction: only ``mean``.
        eps: keeps the root smooth; the loss of identical images is sqrt(eps).

    Raises:
        ValueError: ``eps`` is not positive: the gradient at zero would not be finite.
    """

    def __init__(
        self, loss_weight: float = 1.0, reduction: Literal["mean"] = "mean", eps: float = CHARBONNIER_EPS
    ) -> None:
        super().__init__(loss_weight, reduction)
        if not eps > 0:
            raise ValueError(f"CharbonnierLoss: eps must be positive, not {eps}")
        self.eps = eps

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return mean sqrt((p - t)^2 + eps)."""
        return charbonnier(prediction, target, self.eps).mean()


@LOSSES.register("PSNRLoss", "psnr")
class PSNRLoss(WeightedLoss):
    """Minus the PSNR of each image in dB, averaged: its value is below zero, and falls as images come closer.

    A mean over samples of 10 log10(mean squared error + 1e-8), as in NAFNet (Chen et al. 2022) and traiNNer-redux.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        reduction: only ``mean``.
        to_y: compare Y of BT.601 with the range of video instead of RGB.
    """

    def __init__(self, loss_weight: float = 1.0, reduction: Literal["mean"] = "mean", to_y: bool = False) -> None:
        super().__init__(loss_weight, reduction)
        self.to_y = to_y

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean over samples of 10 log10(MSE + 1e-8)."""
        if self.to_y:
            require_rgb(prediction, "PSNRLoss with to_y")
            prediction, target = video_luma(prediction), video_luma(target)
        errors = (prediction - target).square().mean(dim=(1, 2, 3))
        return 10 / math.log(10) * torch.log(errors + PSNR_EPS).mean()
