"""Values of tensors and arrays that other code may change: copies of them, comparing, putting back."""

import mmap
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from trainauto.memory.monitor.oom import is_out_of_memory

LEAST_MAPPED_BYTES = 64 * 1024
"""Smaller copies are not worth pages of their own."""


def arrays_in(leaf: Any) -> Sequence[Any]:
    """Return the tensors and arrays of a leaf of a batch: itself, or those of a list; none of other values."""
    if isinstance(leaf, Tensor | np.ndarray):
        return (leaf,)
    if isinstance(leaf, list | tuple):
        return [entry for entry in leaf if isinstance(entry, Tensor | np.ndarray)]
    return ()


def can_be_copied(value: Any) -> bool:
    """Say whether a value can be copied and compared as a whole: no shard, no lazy or sparse tensor."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype != object)
    return value.layout == torch.strided and not (hasattr(value, "full_tensor") or torch.nn.parameter.is_lazy(value))


def copy_of(value: Any) -> Any:
    """Return a copy where the value is: memory of the step, which traces count."""
    return value.detach().clone() if isinstance(value, Tensor) else value.copy()


def copy_aside(value: Any) -> Any:
    """Return a copy on the host that is not memory of the step: on a CPU in shared pages, which no budget counts.

    What is copied once, to learn what changes, must not change the peak of the step. Fake tensors are copied in place.
    """
    if not isinstance(value, Tensor) or isinstance(value, FakeTensor):
        return copy_of(value)
    if value.device.type != "cpu":  # pragma: no cuda
        return value.detach().to("cpu", copy=True)
    if value.nbytes < LEAST_MAPPED_BYTES:
        return copy_of(value)
    copy = torch.frombuffer(mmap.mmap(-1, value.nbytes), dtype=value.dtype, count=value.numel()).view(value.shape)
    copy.copy_(value.detach())
    return copy


def versions_of(tensors: Collection[Tensor]) -> list[int]:
    """Return how often each tensor has been changed in place, apart from ``.data``, NumPy and kernels.

    Tensors of inference mode do not count: 0.
    """
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:
        return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def is_same(value: Any, copy: Any) -> bool:
    """Say whether a value is known to still be what its copy holds; NaN is the same as NaN.

    Where there is no memory to compare them it is not known: one more copy a step, and one more put back, do no harm.
    """
    try:
        return _is_same(value, copy)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    return False


def _is_same(value: Any, copy: Any) -> bool:
    if value.shape != copy.shape or value.dtype != copy.dtype:
        return False
    if isinstance(value, np.ndarray):
        return np.array_equal(value, copy) or (value.dtype.kind in "fc" and np.array_equal(value, copy, equal_nan=True))
    value = value.detach().to(copy.device)
    if torch.equal(value, copy):
        return True
    if isinstance(value, FakeTensor) or not (value.is_floating_point() or value.is_complex()):
        return False
    return bool((value.isnan() == copy.isnan()).all()) and torch.equal(value.nan_to_num(), copy.nan_to_num())


def put_back(value: Any, copy: Any) -> None:
    """Give a value what its copy holds."""
    if isinstance(value, np.ndarray):
        np.copyto(value, copy)
        return
    with torch.no_grad():
        if value.shape != copy.shape or value.dtype != copy.dtype:  # it was resized in place
            value.data = copy.to(value.device, copy=True)
        else:
            value.detach().copy_(copy)
