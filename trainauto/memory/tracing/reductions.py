"""What CUDA's sums and means take from torch's allocator while several blocks of threads work on one result.

A block of threads that reduces a part of a result's numbers leaves what it found in a buffer, and a counter says which
block is the last. Both are allocated after the result. How many blocks share a result follows from shapes, strides and
the card. The rules are those of ``setReduceConfig`` (ATen/native/cuda/Reduce.cuh, torch 2.11 to 2.14) and of the
dimensions that ``TensorIterator`` merges before (ATen/TensorIterator.cpp).
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from trainauto.memory.tracing.libraries import Hardware, Processors

HALF = (torch.float16, torch.bfloat16)

WARP = 32
MAX_THREADS = 512
FEWEST_VALUES, MOST_VALUES = 16, 256
"""Numbers that one thread reduces: fewer are not worth another block, more are divided among blocks."""
MOST_OUTPUTS = 4
"""Neighbouring results that one thread may work on."""
COUNTER_BYTES = 4


class Reduction(NamedTuple):
    """One reduction's input with its dimensions as the kernel sees them, fastest first.

    Attributes:
        reduced: extent and stride, in numbers, of each dimension that is reduced.
        kept: the same of the others.
        offset: number of the first element.
        itemsize: bytes of a number.
    """

    reduced: Sequence[tuple[int, int]]
    kept: Sequence[tuple[int, int]]
    offset: int
    itemsize: int


def reduction_buffers(
    source: Tensor, dims: Sequence[int], processors: Processors, *, sums: bool = True, reads: int = 4
) -> list[int]:
    """Return the bytes of the buffer and of the counters that a reduction takes; empty where one block suffices.

    CUDA reduces more than 2 GiB in several parts, one after another, whose buffers are smaller than what is returned.

    Args:
        source: what is reduced, of any shape.
        dims: the dimensions; none of them means all.
        processors: the card's.
        sums: it adds, at least in float32; maxima stay in the type of what is reduced.
        reads: numbers that it reads at once.
    """
    if not source.ndim or not source.numel() or source.dtype.is_complex:
        return []
    reduction = _merged(source, {dim % source.ndim for dim in dims} or set(range(source.ndim)))
    return _buffers(reduction, processors, max(4, reduction.itemsize) if sums else reduction.itemsize, reads)


def sum_steps(source: Tensor, dims: Sequence[int], hardware: Hardware) -> list[int]:
    """Return what a sum takes; it reads more numbers at once where they are of two bytes."""
    return reduction_buffers(source, dims, hardware.processors, reads=8 if source.element_size() == 2 else 4)


def _merged(source: Tensor, reduced: set[int]) -> Reduction:
    """Order dimensions by stride, and merge those that lie behind each other (``reorder_dimensions``, ``coalesce``)."""
    kept = [dim for dim in range(source.ndim) if dim not in reduced]
    result_strides = {dim: prod(source.shape[other] for other in kept if other > dim) for dim in kept}

    def swaps(first: int, second: int) -> int:
        if (first in reduced) != (second in reduced):
            return 1 if second in reduced else -1
        for strides in (result_strides, source.stride()):
            if strides is result_strides and first in reduced:
                continue
            one, other = strides[first], strides[second]
            if not one or not other:
                continue
            if one != other:
                return -1 if one < other else 1
            if source.shape[first] > source.shape[second]:
                return 1
        return 0

    order = list(reversed(range(source.ndim)))
    for place in range(1, source.ndim):
        moving = place
        for before in range(place - 1, -1, -1):
            comparison = swaps(order[before], order[moving])
            if comparison > 0:
                order[before], order[moving] = order[moving], order[before]
                moving = before
            elif comparison < 0:
                break

    dims = [(dim in reduced, source.shape[dim], source.stride(dim)) for dim in order]
    return Reduction(
        _coalesced([(extent, stride) for is_reduced, extent, stride in dims if is_reduced]),
        _coalesced([(extent, stride) for is_reduced, extent, stride in dims if not is_reduced]),
        int(source.storage_offset()),
        source.element_size(),
    )


def _coalesced(dims: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged = list(dims[:1])
    for extent, stride in dims[1:]:
        last_extent, last_stride = merged[-1]
        if last_extent == 1:
            merged[-1] = (extent, stride)
        elif extent == 1 or last_extent * last_stride == stride:
            merged[-1] = (last_extent * extent, last_stride)
        else:
            merged.append((extent, stride))
    return merged


def _buffers(reduction: Reduction, processors: Processors, found_bytes: int, reads: int) -> list[int]:
    inputs, outputs = (prod(extent for extent, _ in dims) for dims in (reduction.reduced, reduction.kept))
    along = not reduction.kept or (bool(reduction.reduced) and reduction.reduced[0][1] < reduction.kept[0][1])
    wide, high = (inputs, outputs) if along else (outputs, inputs)
    fastest = (reduction.reduced if along else reduction.kept)[:1]
    together = 1
    if fastest and fastest[0][1] == 1:
        if along and wide >= 128 and len(reduction.reduced) == 1:
            wide //= reads
        elif not along:
            together = _outputs_together(reduction)
            wide //= together
    width, height = _block(wide, high, MAX_THREADS // together)
    inputs_a_step, outputs_a_step = (width, 1) if along else (1, width)
    if -(-inputs // inputs_a_step) < min(height * FEWEST_VALUES, MOST_VALUES):
        return []
    values = -(-inputs // (inputs_a_step * height))
    grid = -(-(outputs // together) // outputs_a_step)
    blocks = processors.number * (processors.threads // (width * height))
    if values < MOST_VALUES or grid > blocks:
        return []
    sharing = min(max(-(-blocks // grid), -(-values // MOST_VALUES)), -(-values // FEWEST_VALUES))
    if sharing == 1:
        return []
    return [found_bytes * outputs * sharing * (1 if along else width * together), COUNTER_BYTES * grid]


def _outputs_together(reduction: Reduction) -> int:
    """Return how many neighbouring results a thread may work on: what divides all strides (``get_output_vec_size``)."""
    together = MOST_OUTPUTS
    strides = [stride for _, stride in (*reduction.reduced, *reduction.kept[1:])]
    for number in (reduction.offset, reduction.kept[0][0], *strides):
        while number % together:
            together //= 2
    return together


def _block(wide: int, high: int, threads: int) -> tuple[int, int]:
    """Return a block's width and height in threads (``set_block_dimension``)."""
    widest, highest = (_power_of_two(side) if side < threads else threads for side in (wide, high))
    width = min(widest, WARP)
    height = min(highest, threads // width)
    return min(widest, threads // height), height


def _power_of_two(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)
