"""What kernels of CUDA take from torch's allocator behind their results, and give back before they return."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainauto.memory.tracing.libraries import AMPERE, Hardware, attention_of
from trainauto.memory.tracing.reductions import reduction_buffers

Buffers = Callable[[Sequence[Any], Any, Hardware], Sequence[int]]
"""The buffers of a kernel, in bytes and in order, by its operator's arguments and results; zeros are none.

A negative number frees the first buffer of that size. What is left is freed when the kernel ends, the last one first.
"""

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
FLASH_ROWS, FLASH_HEAD, LARGEST_FLASH_HEAD = 128, 32, 256
"""Backward of flash attention rounds lengths and sizes of heads up to multiples of these."""
KEY_TILE, TILE_LOCKS = 64, 4
"""Keys of a tile of memory-efficient attention, and the numbers' worth of locks that each tile begins with."""
MOST_SPLITS = 200
"""Of keys of all heads together, where the gradients of each are summed apart."""


def _sum(args: Sequence[Any], out: Tensor, card: Hardware) -> Sequence[int]:
    source: Tensor = args[0]
    if source.dtype == out.dtype or (source.dtype in HALF and out.dtype == torch.float32):
        return _summed(source, _dims_of(args), card)
    converted = torch.empty_like(source, dtype=out.dtype, device="meta")  # make_reduction_from_out_ty, ReduceOpsUtils.h
    return [converted.numel() * converted.element_size(), *_summed(converted, _dims_of(args), card)]


def _summed(source: Tensor, dims: Sequence[int], card: Hardware) -> Sequence[int]:
    return reduction_buffers(source, dims, card.processors, reads=8 if source.element_size() == 2 else 4)


def _mean(args: Sequence[Any], _out: Tensor, card: Hardware) -> Sequence[int]:
    return reduction_buffers(args[0], _dims_of(args), card.processors)


def _extreme(args: Sequence[Any], _out: Tensor, card: Hardware) -> Sequence[int]:
    return reduction_buffers(args[0], _dims_of(args), card.processors, sums=False)


def _dims_of(args: Sequence[Any]) -> Sequence[int]:
    dims = args[1] if len(args) > 1 else None
    return [dims] if isinstance(dims, int) else dims or ()


def _convolution_backward(args: Sequence[Any], _out: Any, card: Hardware) -> Sequence[int]:
    gradient, wanted = args[0], args[10]
    if not wanted[2]:
        return ()
    return _summed(gradient, [dim for dim in range(gradient.ndim) if dim != 1], card)


def _layer_norm_backward(args: Sequence[Any], _out: Any, card: Hardware) -> Sequence[int]:
    given, shape, wanted = args[1], args[2], args[7]
    columns = torch.Size(shape).numel()
    rows = given.numel() // columns if columns else 0
    if not any(wanted[1:]) or rows <= LAYER_NORM_ROWS or columns // 32 >= card.processors.number // 2:
        return ()
    number = min(ceil(rows / LAYER_NORM_PART), LAYER_NORM_BLOCKS // ceil(columns / 32))
    parts = torch.empty((number, columns), dtype=given.dtype, device="meta")
    sums = [parts.numel() * parts.element_size()] * sum(map(bool, wanted[1:]))
    return [*sums, *_summed(parts, (0,), card)]


def _embedding_backward(args: Sequence[Any], _out: Tensor, _card: Hardware) -> Sequence[int]:
    gradient, indices, rows = args[:3]
    number = indices.numel()
    by_frequency = len(args) > 4 and args[4]
    if not number or (number <= EMBEDDING_SORTS and not by_frequency):
        return ()
    segments = min(number, rows)
    parts = number // EMBEDDING_PART + segments
    sorting = [INDEX_BYTES * number] * 3
    return [*sorting, *[INDEX_BYTES * segments] * 2, INDEX_BYTES * parts, FLOAT_BYTES * parts * gradient.shape[-1]]


def _index_put(args: Sequence[Any], _out: Tensor, _card: Hardware) -> Sequence[int]:
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


def _safe_softmax(args: Sequence[Any], _out: Tensor, _card: Hardware) -> Sequence[int]:
    """Return what finds rows that a mask leaves empty."""
    source, dim = args[:2]
    return source.numel(), source.numel() // max(1, source.shape[dim]), source.element_size()


def _flash_attention(args: Sequence[Any], _out: Any, card: Hardware) -> Sequence[int]:
    """Return what flash attention takes where it divides keys among blocks, because queries alone leave many idle."""
    query, key = args[:2]
    has_dropout = len(args) > 3 and args[3] > 0
    if has_dropout or not query.numel() or not key.numel():
        return ()
    batch, heads, length, size = query.shape
    keys_a_block = 256 if size <= 64 else 128 if size <= 128 else 64
    parts = _flash_splits(
        batch * heads * ceil(length / 64), 2 * card.processors.number, ceil(key.shape[-2] / keys_a_block)
    )
    numbers = parts * batch * heads * length * FLOAT_BYTES if parts > 1 else 0
    return (numbers, numbers * _flash_head(size)) if numbers else ()


def _flash_head(size: int) -> int:
    return _rounded(size, FLASH_HEAD) if size <= 192 else LARGEST_FLASH_HEAD


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


def _flash_attention_backward(args: Sequence[Any], _out: Any, _card: Hardware) -> Sequence[int]:
    query, key = args[1:3]
    batch, heads, length, size = query.shape  # mha_bwd, flash_attn/flash_api.cpp
    rows = FLOAT_BYTES * batch * heads * _rounded(length, FLASH_ROWS)
    return rows, rows * _flash_head(size), *_of_every_head(query, key, key)


def _efficient_attention_backward(args: Sequence[Any], _out: Any, card: Hardware) -> Sequence[int]:
    """Return what is taken in order: gradients of every head, the rows' sums, and a workspace.

    float32 sums the product of gradient and result, and lays the sums out anew, before the workspace is taken.
    """
    query, key, value = args[1:4]
    batch, heads, length, _ = query.shape
    sums = FLOAT_BYTES * batch * heads * length
    dropout = args[9] if len(args) > 9 else 0.0
    workspace = batch * heads * FLOAT_BYTES * _efficient_workspace(query, key, value, dropout, card)
    of_heads = _of_every_head(query, key, value)
    product = FLOAT_BYTES * query.numel()
    if query.dtype != torch.float32:
        return *of_heads, sums, workspace
    return *of_heads, product, sums, sums, -sums, -product, workspace, -sums


def _of_every_head(query: Tensor, key: Tensor, value: Tensor) -> Sequence[int]:
    """Return gradients of keys and values for each head of the queries, where heads share keys and values."""
    if query.shape[1] == key.shape[1]:
        return ()
    groups = query.shape[1] // key.shape[1]
    return tuple(groups * tensor.numel() * tensor.element_size() for tensor in (key, value))


class _Tiles(NamedTuple):
    """How a kernel of memory-efficient attention divides its work; numbers of rows, columns and sizes of heads.

    Attributes:
        rows: queries of a tile.
        columns: of the gradients of queries that a tile sums in float32.
        head: multiple that sizes of heads are rounded to where gradients of keys and values are summed in float32,
            too; 0 where they are not.
    """

    rows: int
    columns: int
    head: int = 0


def _efficient_workspace(query: Tensor, key: Tensor, value: Tensor, dropout: float, card: Hardware) -> int:
    """Return the numbers, of float32, that a head's workspace holds (mem_eff_attention/kernel_backward.h)."""
    length, size = query.shape[-2:]
    tiles = _tiles_of(query.dtype, max(size, value.shape[-1]), dropout, card)
    numbers = ceil(length / tiles.rows) * ceil(size / tiles.columns) * (tiles.rows * tiles.columns + TILE_LOCKS)
    if tiles.head:
        sizes = (_rounded(tensor.shape[-1], tiles.head) for tensor in (key, value))
        splits = max(1, min(ceil(key.shape[-2] / KEY_TILE), MOST_SPLITS // max(1, query.shape[0] * query.shape[1])))
        numbers += splits * KEY_TILE * sum(sizes)
    return numbers


def _tiles_of(dtype: torch.dtype, size: int, dropout: float, card: Hardware) -> _Tiles:
    """Return what torch takes: the first of its kernels whose head is large enough and that a block has memory for."""
    if size <= 64:
        return _Tiles(64, 64)
    _, is_large = attention_of(card.capability)
    if dtype == torch.float32:
        return _Tiles(128 if is_large else 64, 64)
    if size > 128:
        return _Tiles(128, 64, head=128)
    if is_large:
        return _Tiles(128, 128)
    if card.capability < AMPERE or (size <= 96 and not dropout):
        return _Tiles(128, 64)
    return _Tiles(64, 64, head=64)


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
    "aten::_safe_softmax": _safe_softmax,  # ATen/native/transformers/attention.cpp
    "aten::_scaled_dot_product_flash_attention": _flash_attention,
    "aten::_scaled_dot_product_flash_attention_backward": _flash_attention_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_attention_backward,
}
"""By the name of the operator's schema."""
