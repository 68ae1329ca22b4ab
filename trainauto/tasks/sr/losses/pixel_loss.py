"""Losses that compare pixel by pixel."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.registry import LOSSES


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

    def __init__(self, loss_weight: float = 1.0, reduction: Literal["mean"] = "mean", eps: float = 1e-12) -> None:
        super().__init__(loss_weight, reduction)
        if not eps > 0:
            raise ValueError(f"CharbonnierLoss: eps must be positive, not {eps}")
        self.eps = eps

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return mean sqrt((p - t)^2 + eps)."""
        return torch.sqrt((prediction - target).square() + self.eps).mean()
