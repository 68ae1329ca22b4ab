"""Operators of a CPU that keep what their CUDA kernels keep, for traces of a GPU's step on a machine without one.

The same call saves other tensors for backward where another kernel computes it:

- ``dropout`` keeps a mask of one byte an element (``native_dropout``, ATen/native/Dropout.cpp), on a CPU one of its
  input's type: BERT-large came out 12 % too large;
- ``scaled_dot_product_attention`` takes other kernels, see ``cuda_attention.py``;
- ``batch_norm`` of an input that is not contiguous works on, and keeps, a copy (``_batch_norm_impl_index`` for cuDNN,
  ATen/native/Normalization.cpp).

:func:`compute_as_cuda` changes the dispatcher for the whole process and for good: only a process of its own should do
that. ``cuda_in_thread.py`` does so for one thread, and for a while.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from trainauto.memory.tracing.cuda_attention import attention

_aten = torch.ops.aten
_installed: list[torch.library.Library] = []


def compute_as_cuda() -> None:
    """Let those operators of this process keep on the CPU what they keep on CUDA."""
    if _installed:
        return
    library = torch.library.Library("aten", "IMPL", "AutogradCPU")  # type: ignore[no-untyped-call]
    _installed.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are replaced is the purpose
        for name, kernel in KERNELS.items():
            library.impl(name, kernel, allow_override=True)  # type: ignore[no-untyped-call]


def _dropout(given: Tensor, p: float, train: bool) -> Any:
    if train and 0 < p < 1:
        return _aten.native_dropout.default(given, p, train)[0]
    if not train or p == 0:
        return _aten.alias.default(given)  # torch clones what a kernel in Python gives back as it was given
    return _aten.dropout.default.decompose(given, p, train)


def _attention(query: Tensor, *given: Any, **settings: Any) -> Tensor:
    if isinstance(query, FakeTensor):
        return attention(query, *given, **settings)
    attended: Tensor = _aten.scaled_dot_product_attention.default.decompose(query, *given, **settings)
    return attended


def _batch_norm(given: Tensor, weight: Tensor | None, bias: Tensor | None, *others: Any) -> Tensor:
    by_channel = {4: torch.channels_last, 5: torch.channels_last_3d}.get(given.ndim, torch.contiguous_format)
    is_cudnn = weight is not None and bias is not None and given.ndim >= 3
    if is_cudnn and not (given.is_contiguous() or given.is_contiguous(memory_format=by_channel)):
        given = given.contiguous()
    normed: Tensor = _aten.batch_norm.default.decompose(given, weight, bias, *others)
    return normed


KERNELS: Mapping[str, Callable[..., Any]] = {
    "dropout": _dropout,
    "scaled_dot_product_attention": _attention,
    "batch_norm": _batch_norm,
}
"""By the name of the operator."""
