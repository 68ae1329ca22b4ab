"""Results whose storage their shape does not tell.

A loss that torch reduces within its kernel is computed element by element into its result, which is then made a scalar
in place: its storage stays as large as the input, until the loss is let go of. So do the kernels of CPUs and of CUDA
(ATen/native/Loss.cpp, ATen/native/cuda/Loss.cu); those of fake tensors give a scalar of 4 bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

Settle = Callable[[Sequence[Any], Any, bool], None]
"""Gives the storages of results their bytes, by the arguments of an operator, its results, and whether on a card."""


def _keep_elements(args: Sequence[Any], out: Any, _on_card: bool) -> None:
    elements = torch.broadcast_shapes(args[0].shape, args[1].shape).numel()  # type: ignore[no-untyped-call]
    _resize(out, elements * out.element_size())


def _drop_buffer(_args: Sequence[Any], out: Any, on_card: bool) -> None:
    """Only the kernel of a CPU has use for it (``log_sigmoid_forward_cuda``, ATen/native/cuda/Activation.cpp)."""
    if on_card:
        _resize(out[1], 0)


def _resize(tensor: Tensor, size_bytes: int) -> None:
    if isinstance(tensor, FakeTensor) and tensor.untyped_storage().nbytes() != size_bytes:
        tensor.untyped_storage().resize_(size_bytes)


SETTLES: Mapping[str, Settle] = {
    **dict.fromkeys(
        ("aten::mse_loss", "aten::smooth_l1_loss", "aten::binary_cross_entropy", "aten::soft_margin_loss"),
        _keep_elements,
    ),
    "aten::log_sigmoid_forward": _drop_buffer,
}
"""By the name of the operator's schema."""
