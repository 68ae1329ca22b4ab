"""Locally discriminative learning: artefacts of a GAN weigh, details do not.

Source: Liang et al., "Details or Artifacts: A Locally Discriminative Learning Approach to Realistic Image
Super-Resolution", CVPR 2022.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.criteria import Criterion, criterion_named
from trainauto.tasks.sr.losses.local_statistics import power
from trainauto.tasks.sr.losses.registry import LOSSES

WINDOW_PX = 7
EXPONENT = 0.2


@LOSSES.register("LDLLoss", "ldl")
class LDLLoss(WeightedLoss):
    """Differences, weighted by how much the residual varies nearby, where the averaged network is closer to the target.

    The averaged network runs on the same images, without gradients, so that ``ema_decay`` must be above 0.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        criterion: ``l1``, ``l2`` or ``charbonnier``.

    Raises:
        ValueError: another criterion.
    """

    needs_average = True
    smallest_px = WINDOW_PX // 2 + 1

    def __init__(self, loss_weight: float = 1.0, criterion: Criterion = "l1") -> None:
        super().__init__(loss_weight)
        self._compare = criterion_named(criterion, "LDLLoss")

    def compute(self, prediction: Tensor, target: Tensor, averaged: Tensor | None = None) -> Tensor:
        """Return the mean weighted difference; without an averaged prediction every pixel weighs."""
        weights = artifact_weights(prediction, target, WINDOW_PX)
        if averaged is not None:
            residual, of_average = _residual(prediction, target), _residual(averaged, target)
            weights = torch.where(residual < of_average, 0.0, weights)
        return self._compare(weights * prediction, weights * target).mean()


@LOSSES.register("LDL_Loss")
class NeosrLDLLoss(WeightedLoss):
    """neosr's variant, which knows no averaged network.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        criterion: ``l1``, ``l2`` or ``charbonnier``.
        ksize: side of the window in which the residual's variance is taken, odd, in px.

    Raises:
        ValueError: another criterion, or an even window.
    """

    def __init__(self, loss_weight: float = 1.0, criterion: Criterion = "l1", ksize: int = WINDOW_PX) -> None:
        super().__init__(loss_weight)
        if ksize < 3 or not ksize % 2:
            raise ValueError(f"ldl_loss: ksize must be odd and at least 3, not {ksize}")
        self.window_px, self.smallest_px = ksize, ksize // 2 + 1
        self._compare = criterion_named(criterion, "ldl_loss")

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean weighted difference."""
        weights = artifact_weights(prediction, target, self.window_px)
        return self._compare(weights * prediction, weights * target).mean()


def artifact_weights(prediction: Tensor, target: Tensor, window_px: int) -> Tensor:
    """Return the local variance of the residual times that of the whole sample to the power of 0.2, (N, 1, H, W).

    Variances are unbiased, windows mirrored at the border. Gradients go through the weights, as in the authors' code.
    """
    residual = _residual(prediction, target)
    whole = power(residual.var(dim=(1, 2, 3), keepdim=True), EXPONENT)
    edge, count = window_px // 2, window_px**2
    padded = F.pad(residual, [edge] * 4, mode="reflect")
    mean = F.avg_pool2d(padded, window_px, stride=1)
    # Taken off first: the difference of two large means would lose what small variances are.
    centred = padded.unfold(2, window_px, 1).unfold(3, window_px, 1) - mean[..., None, None]
    return whole * centred.square().sum(dim=(-1, -2)) / (count - 1)


def _residual(image: Tensor, target: Tensor) -> Tensor:
    return (target - image).abs().sum(dim=1, keepdim=True)
