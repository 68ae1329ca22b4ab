"""What every loss here has in common: a weight, float32, and a mean over the micro-batch."""

from math import isfinite
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Terms = dict[str, Tensor]
"""Parts of a loss by name, each a scalar."""


def checked_weight(loss_weight: float) -> float:
    """Return a factor of a loss.

    Raises:
        ValueError: it is negative, so that the loss would rise without a bound, or no finite number.
    """
    if not (isfinite(loss_weight) and loss_weight >= 0):
        enlarged = "; comparing with the enlarged input, traiNNer-redux's meaning of it, is not offered"
        raise ValueError(
            f"loss_weight must be a finite number, 0 or more, got {loss_weight}{enlarged if loss_weight < 0 else ''}"
        )
    return loss_weight


class WeightedLoss(nn.Module):
    """A loss ``(prediction, target) -> scalar`` times its weight; one of several parts gives each by its name.

    It is a mean over samples, each counted alike, so that the loss of a batch is the mean of the losses of its parts,
    weighted by their samples: the engine may run a batch in pieces. It is computed in float32, outside of autocast:
    half precision would round away the last, small differences that are left to learn.

    Attributes:
        couples_samples: whether samples depend on each other, so that it is no such mean: a batch that does not fit is
            then given back, or its samples are cut, and never run in pieces.
        half_precision: whether it runs under autocast where its network does.
        smallest_px: side that images need. The border of smaller ones is continued to the right and downwards: a run's
            first step is on the smallest crop there is, which may be one pixel.
        needs_average: whether it also compares with what the averaged network makes, a third argument.
        compares_features: whether it compares features of another network, about which BasicSR's percep_gt_usm is.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        reduction: only ``mean``, the key that option files of BasicSR carry; any other would break the above.

    Raises:
        ValueError: another reduction is asked for, or a weight that would have the loss rise.
    """

    couples_samples: bool = False
    half_precision: bool = False
    needs_average: bool = False
    compares_features: bool = False
    smallest_px: int = 1

    def __init__(self, loss_weight: float = 1.0, reduction: Literal["mean"] = "mean") -> None:
        super().__init__()
        if reduction != "mean":
            raise ValueError(
                f"{type(self).__name__}: reduction must be 'mean', not '{reduction}': a batch is trained in pieces of "
                "any size, and only means can be put together again"
            )
        self.loss_weight = checked_weight(loss_weight)

    def forward(self, prediction: Tensor, target: Tensor, *further: Tensor) -> Tensor | Terms:
        """Return the weighted loss, or its weighted parts.

        Args:
            prediction: (N, C, H, W), 0 to 1.
            target: the same shape.
            further: what the averaged network makes of the same images, where the loss ``needs_average``.

        Raises:
            ValueError: the shapes differ; broadcasting would hide the mistake.
        """
        if prediction.shape != target.shape:
            raise ValueError(
                f"{type(self).__name__}: prediction {tuple(prediction.shape)} and target {tuple(target.shape)} differ "
                "in shape"
            )
        half = torch.is_autocast_enabled(prediction.device.type) and self.half_precision
        with torch.autocast(prediction.device.type, enabled=half):
            images = [self._extended(image.float()) for image in (prediction, target, *further)]
            value = self.compute(*images)
        if isinstance(value, dict):
            return {name: self.loss_weight * part for name, part in value.items()}
        return self.loss_weight * value

    def _extended(self, image: Tensor) -> Tensor:
        """Return images with both sides at least :attr:`smallest_px`."""
        down, across = (max(0, self.smallest_px - side) for side in image.shape[-2:])
        return F.pad(image, (0, across, 0, down), mode="replicate") if down or across else image

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor | Terms:
        """Return the unweighted loss of float32 images, (N, C, H, W), or its parts."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Show the weight where the module is printed."""
        return f"loss_weight={self.loss_weight:g}"
