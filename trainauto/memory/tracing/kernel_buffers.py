"""What kernels of CUDA take from torch's allocator behind their results, and give back before they return."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

import torch
from torch import Tensor

from trainauto.memory.tracing.reductions import Processors, reduction_buffers

Buffers = Callable[[Sequence[Any], Any, Processors], Sequence[int]]
"""The buffers of a kernel, in bytes and in order, by its operator's arguments and results; zeros are none."""

HALF = (torch.float16, torch.bfloat16)
FLOAT_BYTES = 4
INDEX_BYTES = 8

LAYER_NORM_ROWS, LAYER_NORM_PART, LAYER_NORM_BLOCKS = 64 * 1024, 32, 32 * 1024
"""Above so many rows the gradients of layer norm's weights are sums of parts of so many, of so many blocks at most."""
EMBEDDING_SORTS = 3072
"""Above so many indices the gradient of an embedding sorts them."""
EMBEDDING_PART = 10
ONE_PASS = 256
"""CUB sorts numbers below this in one pass, and larger ones between two more arrays of keys and values."""
FLASH_ROWS, FLASH_HEAD = 128, 32
"""Backward of flash attention rounds lengths and sizes of heads up to multiples of these."""
EFFICIENT_TILE = 64
"""Side of the tiles that memory-efficient attention sums gradients of queries in, in float32."""


def _sum(args: Sequence[Any], out: Tensor, processors: Processors) -> Sequence[int]:
    source: Tensor = args[0]
    if source.dtype == out.dtype or (source.dtype in HALF and out.dtype == torch.float32):
        return _summed(source, _dims_of(args), processors)
    converted = torch.empty_like(source, dtype=out.dtype, device="meta")  # make_reduction_from_out_ty, ReduceOpsUtils.h
    return [converted.numel() * converted.element_size(), *_summed(converted, _dims_of(args), processors)]


def _summed(source: Tensor, dims: Sequence[int], processors: Processors) -> Sequence[int]:
    return reduction_buffers(source, dims, processors, reads=8 if source.element_size() == 2 else 4)


def _mean(args: Sequence[Any], _out: Tensor, processors: Processors) -> Sequence[int]:
    return reduction_buffers(args[0], _dims_of(args), processors)


def _extreme(args: Sequence[Any], _out: Tensor, processors: Processors) -> Sequence[int]:
    return reduction_buffers(args[0], _dims_of(args), processors, sums=False)


def _dims_of(args: Sequence[Any]) -> Sequence[int]:
    dims = args[1] if len(args) > 1 else None
    return [dims] if isinstance(dims, int) else dims or ()


def _convolution_backward(args: Sequence[Any], _out: Any, processors: Processors) -> Sequence[int]:
    gradient, wanted = args[0], args[10]
    if not wanted[2]:
        return ()
    return _summed(gradient, [dim for dim in range(gradient.ndim) if dim != 1], processors)


def _layer_norm_backward(args: Sequence[Any], _out: Any, processors: Processors) -> Sequence[int]:
    given, shape, wanted = args[1], args[2], args[7]
    columns = torch.Size(shape).numel()
    rows = given.numel() // columns if columns else 0
    if not any(wanted[1:]) or rows <= LAYER_NORM_ROWS or columns // 32 >= processors.number // 2:
        return ()
    number = min(ceil(rows / LAYER_NORM_PART), LAYER_NORM_BLOCKS // ceil(columns / 32))
    parts = torch.empty((number, columns), dtype=given.dtype, device="meta")
    sums = [parts.numel() * parts.element_size()] * sum(map(bool, wanted[1:]))
    return [*sums, *_summed(parts, (0,), processors)]


def _embedding_backward(args: Sequence[Any], _out: Tensor, _processors: Processors) -> Sequence[int]:
    gradient, indices, rows = args[:3]
    number = indices.numel()
    by_frequency = len(args) > 4 and args[4]
    if not number or (number <= EMBEDDING_SORTS and not by_frequency):
        return ()
    segments = min(number, rows)
    parts = number // EMBEDDING_PART + segments
    sorting = [INDEX_BYTES * number] * 3
    return [*sorting, *[INDEX_BYTES * segments] * 2, INDEX_BYTES * parts, FLOAT_BYTES * parts * gradient.shape[-1]]


def _index_put(args: Sequence[Any], _out: Tensor, _processors: Processors) -> Sequence[int]:
    """Return what sums of numbers at equal indices take to sort them: the backward of ``table[indices]`` is one.

    Masks become indices first, of as many numbers as there are values.
    """
    table, indices, values = args[:3]
    if len(args) < 4 or not args[3]:
        return ()
    first = next(place for place, index in enumerate(indices) if index is not None)
    chosen = [(size, index) for size, index in zip(table.shape, indices, strict=False) if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for _, index in chosen):
        numbers, rows = (values.shape[first] if values.ndim > first else 0), table.numel()
    else:
        numbers = torch.broadcast_shapes(*(index.shape for _, index in chosen)).numel()  # type: ignore[no-untyped-call]
        rows = torch.Size([size for size, _ in chosen]).numel()
    return [*[INDEX_BYTES * numbers] * 4, *([2 * INDEX_BYTES * numbers] if rows > ONE_PASS else [])]


def _flash_attention(args: Sequence[Any], _out: Any, processors: Processors) -> Sequence[int]:
    """Return what flash attention takes where it divides keys among blocks, because queries alone leave many idle.

    With a mask CUDA takes memory-efficient attention instead, which does not; that is not told apart.
    """
    query, key = args[:2]
    has_dropout = len(args) > 3 and args[3] > 0
    if query.dtype not in HALF or has_dropout or not query.numel() or not key.numel():
        return ()
    batch, heads, length, size = query.shape
    keys_a_block = 256 if size <= 64 else 128 if size <= 128 else 64
    parts = _flash_splits(batch * heads * ceil(length / 64), 2 * processors.number, ceil(key.shape[-2] / keys_a_block))
    numbers = parts * batch * heads * length * FLOAT_BYTES if parts > 1 else 0
    return (numbers, numbers * _rounded(size, FLASH_HEAD)) if numbers else ()


def _flash_splits(blocks: int, processors: int, most: int) -> int:
    """Return into how many parts keys are divided (``num_splits_heuristic``, flash_attn/flash_api.cpp)."""
    if blocks >= 0.8 * processors:
        return 1
    useful = [
        parts
        for parts in range(1, min(128, processors, most) + 1)
        if parts == 1 or ceil(most / parts) != ceil(most / (parts - 1))
    ]
    waves = [blocks * parts / processors for parts in useful]
    efficiency = [wave / ceil(wave) for wave in waves]
    enough = 0.85 * max(efficiency, default=0)
    return next((parts for parts, reached in zip(useful, efficiency, strict=True) if reached >= enough), 1)


def _fused_attention_backward(args: Sequence[Any], out: Any, processors: Processors) -> Sequence[int]:
    """Return what CUDA's kernels take, of which half precision has flash attention."""
    kernel = _flash_attention_backward if args[1].dtype in HALF else _efficient_attention_backward
    return kernel(args, out, processors)


def _flash_attention_backward(args: Sequence[Any], _out: Any, _processors: Processors) -> Sequence[int]:
    batch, heads, length, size = args[1].shape  # mha_bwd, flash_attn/flash_api.cpp
    rows = FLOAT_BYTES * batch * heads * _rounded(length, FLASH_ROWS)
    return rows, rows * _rounded(size, FLASH_HEAD)


def _efficient_attention_backward(args: Sequence[Any], _out: Any, _processors: Processors) -> Sequence[int]:
    """Return the product of gradient and result with its sums, or the sums and a workspace: whichever is more.

    The workspace is that of float32, which sums gradients of queries in tiles (mem_eff_attention/kernel_backward.h).
    """
    query: Tensor = args[1]
    if query.dtype != torch.float32:
        return ()
    batch, heads, length, size = query.shape
    sums = FLOAT_BYTES * batch * heads * length
    tiles = ceil(length / EFFICIENT_TILE) * ceil(size / EFFICIENT_TILE)
    workspace = FLOAT_BYTES * batch * heads * tiles * (EFFICIENT_TILE**2 + 4)
    product = FLOAT_BYTES * query.numel()
    return (sums, workspace) if workspace >= product + sums else (product, sums, sums)


def _rounded(number: int, multiple: int) -> int:
    return ceil(number / multiple) * multiple


BUFFERS: Mapping[str, Buffers] = {
    "aten::sum": _sum,
    "aten::mean": _mean,
    **dict.fromkeys(("aten::amax", "aten::amin"), _extreme),
    "aten::convolution_backward": _convolution_backward,  # the bias's gradient, ATen/native/Convolution.cpp
    "aten::native_layer_norm_backward": _layer_norm_backward,  # ATen/native/cuda/layer_norm_kernel.cu
    "aten::embedding_dense_backward": _embedding_backward,  # ATen/native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu
    # ATen/native/cuda/Indexing.cu: index_put_with_sort_kernel
    **dict.fromkeys(("aten::index_put", "aten::index_put_", "aten::_index_put_impl_"), _index_put),
    **dict.fromkeys(
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_scaled_dot_product_flash_attention"),
        _flash_attention,
    ),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _fused_attention_backward,
    "aten::_scaled_dot_product_flash_attention_backward": _flash_attention_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_attention_backward,
}
"""By the name of the operator's schema."""
