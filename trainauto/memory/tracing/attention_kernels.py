"""What kernels of attention take from torch's allocator on CUDA."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainauto.memory.tracing.kernel_steps import FLOAT_BYTES, RESULTS, Freed, Kernel, KernelStep, bytes_of
from trainauto.memory.tracing.libraries import AMPERE, Libraries, attention_of

FLASH_ROWS, FLASH_HEAD, LARGEST_FLASH_HEAD = 128, 32, 256
"""Backward of flash attention rounds lengths and sizes of heads up to multiples of these."""
KEY_TILE, TILE_LOCKS = 64, 4
"""Keys of a tile of memory-efficient attention, and the numbers' worth of locks that each tile begins with."""
MOST_SPLITS = 200
"""Of keys of all heads together, where the gradients of each are summed apart."""


def _safe_softmax(args: Sequence[Any], _out: Tensor, _libraries: Libraries) -> Sequence[KernelStep]:
    """Return what finds rows that a mask leaves empty."""
    source, dim = args[:2]
    return source.numel(), source.numel() // max(1, source.shape[dim]), source.element_size()


def _flash_attention(args: Sequence[Any], _out: Any, libraries: Libraries) -> Sequence[KernelStep]:
    """Return what flash attention takes where it divides keys among blocks, because queries alone leave many idle."""
    query, key = args[:2]
    has_dropout = len(args) > 3 and args[3] > 0
    if has_dropout or not query.numel() or not key.numel():
        return ()
    batch, heads, length, size = query.shape
    keys_a_block = 256 if size <= 64 else 128 if size <= 128 else 64
    parts = _flash_splits(
        batch * heads * ceil(length / 64), 2 * libraries.hardware.processors.number, ceil(key.shape[-2] / keys_a_block)
    )
    numbers = parts * batch * heads * length * FLOAT_BYTES if parts > 1 else 0
    return (numbers, numbers * _flash_head(size), Freed(0)) if numbers else ()


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


def _flash_attention_backward(args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    """Return copies that put rows before heads, of the gradient and of the result laid out as the queries; and sums."""
    gradient, query, key = args[:3]
    laid_out = (gradient, torch.empty_like(query, device="meta"))
    copies = [bytes_of(query) for tensor in laid_out if not tensor.transpose(1, 2).is_contiguous()]
    batch, heads, length, size = query.shape  # mha_bwd, flash_attn/flash_api.cpp
    rows = FLOAT_BYTES * batch * heads * _rounded(length, FLASH_ROWS)
    return *copies, RESULTS, rows, rows * _flash_head(size), *_of_every_head(query, key, key)


def _efficient_attention_backward(args: Sequence[Any], _out: Any, libraries: Libraries) -> Sequence[KernelStep]:
    """Return what is taken in order: gradients of every head, the rows' sums, and a workspace.

    A gradient that has not rows before heads is copied first; the result has. float32 sums the product of gradient and
    result, and lays the sums out anew, before the workspace is taken.
    """
    gradient, query, key, value = args[:4]
    copy = 0 if gradient.transpose(1, 2).is_contiguous() else bytes_of(gradient)
    batch, heads, length, _ = query.shape
    sums = FLOAT_BYTES * batch * heads * length
    dropout = args[9] if len(args) > 9 else 0.0
    workspace = batch * heads * FLOAT_BYTES * _efficient_workspace(query, key, value, dropout, libraries)
    of_heads = _of_every_head(query, key, value)
    product = FLOAT_BYTES * query.numel()
    first = 1 + len(of_heads)  # the place of what follows
    if query.dtype != torch.float32:
        return copy, RESULTS, *of_heads, sums, workspace, Freed(first)
    freed = Freed(first + 1), Freed(first)
    return copy, RESULTS, *of_heads, product, sums, sums, *freed, workspace, Freed(first + 2)


def _of_every_head(query: Tensor, key: Tensor, value: Tensor) -> Sequence[KernelStep]:
    """Return gradients of keys and values for each head of the queries, where heads share keys and values."""
    if query.shape[1] == key.shape[1]:
        return ()
    groups = query.shape[1] // key.shape[1]
    return tuple(groups * bytes_of(tensor) for tensor in (key, value))


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


def _efficient_workspace(query: Tensor, key: Tensor, value: Tensor, dropout: float, libraries: Libraries) -> int:
    """Return the numbers, of float32, that a head's workspace holds (mem_eff_attention/kernel_backward.h)."""
    length, size = query.shape[-2:]
    tiles = _tiles_of(query.dtype, max(size, value.shape[-1]), dropout, libraries)
    numbers = ceil(length / tiles.rows) * ceil(size / tiles.columns) * (tiles.rows * tiles.columns + TILE_LOCKS)
    if tiles.head:
        sizes = (_rounded(tensor.shape[-1], tiles.head) for tensor in (key, value))
        splits = max(1, min(ceil(key.shape[-2] / KEY_TILE), MOST_SPLITS // max(1, query.shape[0] * query.shape[1])))
        numbers += splits * KEY_TILE * sum(sizes)
    return numbers


def _tiles_of(dtype: torch.dtype, size: int, dropout: float, libraries: Libraries) -> _Tiles:
    """Return what torch takes: the first of its kernels whose head is large enough and that a block has memory for."""
    if size <= 64:
        return _Tiles(64, 64)
    _, is_large = attention_of(libraries.hardware.capability)
    if dtype == torch.float32:
        return _Tiles(128 if is_large else 64, 64)
    if size > 128:
        return _Tiles(128, 64, head=128)
    if is_large:
        return _Tiles(128, 128)
    if libraries.hardware.capability < AMPERE or (size <= 96 and not dropout):
        return _Tiles(128, 64)
    return _Tiles(64, 64, head=64)


def _rounded(number: int, multiple: int) -> int:
    return ceil(number / multiple) * multiple


ATTENTION_KERNELS: Mapping[str, Kernel] = {
    "aten::_safe_softmax": _safe_softmax,  # ATen/native/transformers/attention.cpp
    # ATen/native/transformers/cuda/attention.cu, attention_backward.cu
    "aten::_scaled_dot_product_flash_attention": _flash_attention,
    "aten::_scaled_dot_product_flash_attention_backward": _flash_attention_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_attention_backward,
}
"""By the name of the operator's schema."""
