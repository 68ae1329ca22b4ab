"""Scaled dot product attention as CUDA computes it: which kernel, and what that keeps for backward.

The rules are torch's (``select_sdp_backend``, ATen/native/transformers/cuda/sdp_utils.cpp), for the card that is there
or is planned for. Kernels in half precision without a mask are flash attention's, others memory-efficient attention's;
what neither takes writes its matrix of weights out. Newer releases of torch prefer cuDNN's attention on Hopper in half
precision. It holds the same tensors between forward and backward; its workspace is not known, and it is counted as one
of the others.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from trainauto.memory.tracing.attention_kernels import LARGEST_FLASH_HEAD
from trainauto.memory.tracing.libraries import AMPERE, Capability, card_hardware
from trainauto.memory.tracing.reductions import HALF

_aten = torch.ops.aten
Kernel = Literal["flash", "efficient", "math"]
_KERNELS = ("flash", "mem_efficient", "cudnn", "math")
"""As ``torch.backends.cuda`` calls what code allows."""

LARGEST_CUDNN_HEAD = 128
FLASH_ALIGNMENT = 8
"""Flash attention pads heads to multiples of so many numbers."""
NO_LARGE_HEADS = ((8, 6), (8, 9), (12, 0), (12, 1))
"""Cards on which flash attention trains heads above 192 only in part."""
GROUPS_SINCE, RUNNING = (2, 14), tuple(map(int, torch.__version__.split(".")[:2]))
"""The first torch whose memory-efficient attention takes heads that share keys and values, and the one that runs."""
MASK_ALIGNMENT = 8
"""Memory-efficient attention copies masks whose rows are no multiple of so many numbers."""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    enable_gqa: bool = False,
    **settings: Any,
) -> Tensor:
    """Compute what ``torch.nn.functional.scaled_dot_product_attention`` does, on fake tensors.

    Raises:
        RuntimeError: no kernel that is allowed takes the tensors, as on CUDA.
    """
    kernel = kernel_of(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        nothing, all_of_it = torch.zeros((), dtype=query.dtype), torch.full((), float("-inf"), dtype=query.dtype)
        attn_mask = torch.where(attn_mask, nothing, all_of_it)
    given = (query, key, value)
    results: Sequence[Tensor]
    if kernel == "flash":
        padded = (_padded(tensor, FLASH_ALIGNMENT) for tensor in given)
        results = _aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, **settings)
        return results[0][..., : query.shape[-1]] if query.shape[-1] % FLASH_ALIGNMENT else results[0]
    if kernel == "efficient":
        bias = None if attn_mask is None else _laid_out(attn_mask, query, key)
        trained = [*given, *([] if attn_mask is None else [attn_mask])]
        keeps = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in trained)
        attended = _aten._scaled_dot_product_efficient_attention
        results = attended(*given, bias, keeps, dropout_p, is_causal, **settings)
    else:
        written_out = _aten._scaled_dot_product_attention_math
        results = written_out(*given, attn_mask, dropout_p, is_causal, enable_gqa=enable_gqa, **settings)
    return results[0]


def kernel_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    is_grouped: bool = False,
) -> Kernel:
    """Return the kernel that CUDA takes.

    Raises:
        RuntimeError: none that is allowed takes the tensors.
    """
    capability = card_hardware().capability
    allowed = {name for name in _KERNELS if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()}
    if _is_dense(query, key, value, mask, is_grouped):
        if "flash" in allowed and _takes_flash(capability, query, key, value, mask, dropout, is_causal):
            return "flash"
        if "mem_efficient" in allowed and _takes_efficient(capability, query, key, value, is_grouped):
            return "efficient"
        if "math" not in allowed and "cudnn" in allowed and _takes_cudnn(capability, query, key, value, mask):
            return "efficient"
    if "math" not in allowed:
        raise RuntimeError("No available kernel. Aborting execution.")
    return "math"


def _is_dense(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_grouped: bool) -> bool:
    """Say whether the tensors are as every fused kernel wants them."""
    if not query.ndim == key.ndim == value.ndim == 4 or not query.numel() or not key.numel():
        return False
    heads, key_heads, value_heads = query.shape[1], key.shape[1], value.shape[1]
    groups = is_grouped and key_heads == value_heads and heads % key_heads == 0
    along = all(tensor.stride(-1) == 1 for tensor in (query, key, value)) or query.shape[-1] == 1
    return (
        query.shape[0] == key.shape[0] == value.shape[0]
        and (groups or heads == key_heads == value_heads)
        and along
        and (mask is None or mask.stride(-1) == 1)
    )


def _takes_flash(
    capability: Capability,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
) -> bool:
    size = query.shape[-1]
    trains = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
    if trains and capability in NO_LARGE_HEADS and not (size <= 192 or (size > 224 and not dropout)):
        return False
    return (
        capability >= AMPERE
        and mask is None
        and _are_half(capability, query, key, value)
        and size == key.shape[-1] == value.shape[-1]
        and size <= LARGEST_FLASH_HEAD
        and not (is_causal and query.shape[-2] != key.shape[-2])
    )


def _takes_efficient(capability: Capability, query: Tensor, key: Tensor, value: Tensor, is_grouped: bool) -> bool:
    dtype = query.dtype
    if not dtype == key.dtype == value.dtype or dtype not in (*HALF, torch.float32):
        return False
    is_grouped = is_grouped and query.shape[1] != key.shape[1]
    if (dtype == torch.bfloat16 and capability < AMPERE) or (is_grouped and RUNNING < GROUPS_SINCE):
        return False
    multiple = 8 if dtype in HALF else 4 if capability >= AMPERE else 1  # minimum_gemm_alignment
    size, value_size = query.shape[-1], value.shape[-1]
    return size == key.shape[-1] and size % multiple == value_size % multiple == 0


def _takes_cudnn(capability: Capability, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    sizes = (query.shape[-1], value.shape[-1])
    return (
        capability >= AMPERE
        and _are_half(capability, query, key, value)
        and max(sizes) <= LARGEST_CUDNN_HEAD
        and all(size % 8 == 0 for size in sizes)
        and (mask is None or not mask.requires_grad)
    )


def _are_half(capability: Capability, query: Tensor, key: Tensor, value: Tensor) -> bool:
    halves = HALF if capability >= AMPERE else (torch.float16,)
    return query.dtype == key.dtype == value.dtype and query.dtype in halves


def _laid_out(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return a mask as memory-efficient attention reads it (``preprocess_mask``, transformers/attention.cpp)."""
    if mask.shape[-1] % MASK_ALIGNMENT:
        length = mask.shape[-1]
        mask = _padded(mask, MASK_ALIGNMENT)[..., :length]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _padded(tensor: Tensor, multiple: int) -> Tensor:
    """Return a tensor whose last dimension is a multiple of a number."""
    missing = -tensor.shape[-1] % multiple
    return functional.pad(tensor, (0, missing)) if missing else tensor
