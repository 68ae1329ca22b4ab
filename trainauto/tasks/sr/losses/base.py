"""What every loss here has in common: a weight, float32, and a mean over the micro-batch."""

from math import isfinite
from typing import Literal

import torch
from torch import Tensor, nn


def checked_weight(loss_weight: float) -> float:
    """Return a factor of a loss.

    Raises:
        ValueError: it is negative, so that the loss would rise without a bound, or no finite number.
    """
    if not (isfinite(loss_weight) and loss_weight >= 0):
        raise ValueError(f"loss_weight must be a finite number, 0 or more, got {loss_weight}")
    return loss_weight


class WeightedLoss(nn.Module):
    """A loss ``(prediction, target) -> scalar`` times its weight.

    It is a mean over samples, each counted alike, so that the loss of a batch is the mean of the losses of its parts,
    weighted by their samples: the engine may run a batch in pieces. It is computed in float32, outside of autocast:
    half precision would round away the last, small differences that are left to learn.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        reduction: only ``mean``, the key that option files of BasicSR carry; any other would break the above.

    Raises:
        ValueError: another reduction is asked for, or a weight that would have the loss rise.
    """

    def __init__(self, loss_weight: float = 1.0, reduction: Literal["mean"] = "mean") -> None:
        super().__init__()
        if reduction != "mean":
            raise ValueError(
                f"{type(self).__name__}: reduction must be 'mean', not '{reduction}': a batch is trained in pieces of "
                "any size, and only means can be put together again"
            )
        self.loss_weight = checked_weight(loss_weight)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the weighted loss.

        Args:
            prediction: (N, C, H, W), 0 to 1.
            target: the same shape.

        Raises:
            ValueError: the shapes differ; broadcasting would hide the mistake.
        """
        if prediction.shape != target.shape:
            raise ValueError(
                f"{type(self).__name__}: prediction {tuple(prediction.shape)} and target {tuple(target.shape)} differ "
                "in shape"
            )
        with torch.autocast(prediction.device.type, enabled=False):
            return self.loss_weight * self.compute(prediction.float(), target.float())

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the unweighted loss of float32 images, (N, C, H, W)."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Show the weight where the module is printed."""
        return f"loss_weight={self.loss_weight:g}"
