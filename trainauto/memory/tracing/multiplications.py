"""How much a traced step computes: the multiplications of its matrix products, convolutions and attention."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

Count = Callable[[Sequence[Any], Any], int]
"""Multiplications of a call, by its arguments and what it gave."""


FUSED = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")
"""Kernels that write no matrix of weights out."""


def _product(left: int) -> Count:
    """Return the count of a product whose left matrix is that argument."""
    return lambda args, out: int(out.numel() * args[left].shape[-1])


def _attention(first: int, products: int) -> Count:
    """Return the count of so many products, each of all queries with all keys; queries are that argument."""

    def count(args: Sequence[Any], _out: Any) -> int:
        query: Tensor = args[first]
        key: Tensor = args[first + 1]
        return products * query.numel() * int(key.shape[-2])

    return count


def _convolved(image: Tensor, weight: Tensor, out: Tensor, *, transposed: bool) -> int:
    """Return the count of a convolution: each number it gives, or of a transposed one takes, meets a filter."""
    return int((image if transposed else out).numel() * weight.numel() // max(1, weight.shape[0]))


def _convolution(args: Sequence[Any], out: Any) -> int:
    return _convolved(args[0], args[1], out, transposed=args[6])


def _convolution_backward(args: Sequence[Any], _out: Any) -> int:
    """Return the count of the gradients that are asked for: the input's and the weights' take as much as forward."""
    gradient, image, weight, wanted = args[0], args[1], args[2], args[10]
    return int(sum(wanted[:2])) * _convolved(image, weight, gradient, transposed=args[7])


COUNTS: Mapping[str, Count] = {
    **{f"aten::{name}": _product(0) for name in ("mm", "bmm", "mv", "dot", "vdot")},
    **{f"aten::{name}": _product(1) for name in ("addmm", "baddbmm", "addmv", "_addmm_activation")},
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    # Scores and what is mixed by them; backward computes the scores again, and gradients of two products.
    **{f"aten::_scaled_dot_product_{kernel}": _attention(0, 2) for kernel in FUSED},
    **{f"aten::_scaled_dot_product_{kernel}_backward": _attention(1, 5) for kernel in FUSED},
}
"""By the name of the operator."""
