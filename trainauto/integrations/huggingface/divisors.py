"""What a loss is divided by, read from the graph of its computation."""

import math
from typing import Any

from torch import Tensor

MEAN = 1
"""``reduction="mean"`` as torch's kernels count reductions."""

PASSED = tuple(
    f"{name}Backward"
    for name in ("Mul", "Neg", "Sum", "ToCopy", "View", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "Clone")
)
"""Operations that divide by nothing, by the beginnings of their names: what they get may be divided."""


def divisor_of(loss: Tensor) -> float | None:
    """Return what a loss is divided by, up to a constant factor: its samples, its labels, the sum of their weights.

    The loss of a batch is then the mean over its parts, weighted by the divisor of each. That a loss can be read so is
    no proof of it: compare some losses before you rely on it.

    Args:
        loss: (), from a forward pass with gradients, before its backward pass.

    Returns:
        ``None`` where nothing is divided, where terms are divided by different things, and where the divisor has
        gradients of its own. A term that is not divided is passed over, as that of weights is (weight decay).
    """
    if loss.grad_fn is None:
        return None
    by = _divisor(loss.grad_fn)
    # Masks that let nothing through are divided by a floor (clamp), which they do not weigh.
    is_masked = by is not None and loss.grad_fn.name().startswith("DivBackward") and float(loss.detach()) == 0
    return 0.0 if is_masked else by


def _divisor(node: Any) -> float | None:
    name = node.name()
    below = [other for other, _ in node.next_functions if other is not None]
    if hasattr(node, "_saved_reduction"):
        return _of_kernel(node) if node._saved_reduction == MEAN else None
    if name.startswith(("AddBackward", "SubBackward")):
        return _common([by for other in below if (by := _divisor(other)) is not None])
    if len(below) != 1:  # a divisor with gradients, too, makes no mean
        return None
    if name.startswith("MeanBackward"):
        return _times(_mean_of(node), below[0])
    if name.startswith("DivBackward"):
        by = node._saved_other
        return _times(float(by), below[0]) if not isinstance(by, Tensor) or by.numel() == 1 else None
    return _divisor(below[0]) if name.startswith(PASSED) else None


def _of_kernel(node: Any) -> float:
    """Return what a loss of torch's is a mean over."""
    weight = getattr(node, "_saved_total_weight", None)
    return float(node._saved_self.numel() if weight is None else weight)


def _times(by: float, below: Any) -> float:
    """Return a divisor with that of what is divided, where this is divided already."""
    inner = _divisor(below)
    return by if inner is None else by * inner


def _mean_of(node: Any) -> float:
    """Return how many values a mean is over."""
    sizes, dimensions = node._saved_self_sym_sizes, getattr(node, "_saved_dim", ())
    if not dimensions:
        return float(math.prod(sizes))
    wrapped = (dimension - 2**64 if dimension >= 2**63 else dimension for dimension in dimensions)
    return float(math.prod(sizes[dimension] for dimension in wrapped))


def _common(divisors: list[float]) -> float | None:
    """Return what all terms are divided by; ``None`` where they are not divided by the same."""
    alike = all(math.isclose(divisors[0], other, rel_tol=1e-6) for other in divisors)
    return divisors[0] if divisors and alike else None
