"""How two tensors are compared value by value, where an option file names it (``criterion``)."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

Criterion = Literal["l1", "l2", "charbonnier"]
CHARBONNIER_EPS = 1e-12
"""BasicSR's: the square of the constant of Lai et al. 2017."""


def charbonnier(prediction: Tensor, target: Tensor, eps: float = CHARBONNIER_EPS) -> Tensor:
    """Return sqrt((p - t)^2 + eps) of each value: L1 that is smooth at zero."""
    return torch.sqrt((prediction - target).square() + eps)


def criterion_named(name: str, loss: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what compares value by value.

    Args:
        name: ``l1``, ``l2`` or ``charbonnier``.
        loss: who asks, for the message.

    Raises:
        ValueError: another name.
    """
    if name == "l1":
        return lambda prediction, target: F.l1_loss(prediction, target, reduction="none")
    if name == "l2":
        return lambda prediction, target: (prediction - target).square()
    if name == "charbonnier":
        return charbonnier
    raise ValueError(f"{loss}: criterion must be one of {', '.join(get_args(Criterion))}, not '{name}'")
