"""What kernels of CUDA take from torch's allocator beside their results: copies, sums in parts, sorted indices."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import torch
from torch import Tensor

from trainauto.memory.tracing.attention_kernels import ATTENTION_KERNELS
from trainauto.memory.tracing.convolution_kernels import CONVOLUTION_KERNELS
from trainauto.memory.tracing.kernel_steps import (
    FLOAT_BYTES,
    RESULTS,
    Freed,
    Kernel,
    KernelStep,
    Result,
    bytes_of,
    copy_bytes,
    suggested_layout,
)
from trainauto.memory.tracing.libraries import AMPERE, HOPPER, TURING, Capability, Libraries
from trainauto.memory.tracing.reductions import HALF, reduction_buffers, sum_steps

INDEX_BYTES = 8

LAYER_NORM_ROWS, LAYER_NORM_PART, LAYER_NORM_BLOCKS = 64 * 1024, 32, 32 * 1024
"""Above so many rows the gradients of layer norm's weights are sums of parts of so many, of so many blocks at most."""
EMBEDDING_SORTS = 3072
"""Above so many indices the gradient of an embedding sorts them."""
EMBEDDING_PART = 10
ONE_BLOCK, BINS, ALIGNED = 2304, 256, 256
"""CUB sorts so many keys of 8 bytes with one block of threads, and more of them in parts, each with so many counters.

Its arrays begin at multiples of so many bytes.
"""
SORTED_PARTS = ((HOPPER, 4608), (AMPERE, 3840), (TURING, 2816))
"""Keys of a part, by the capability that a card has at least."""
SORTED_BY_WARP, SORTED_BY_BLOCK = 32, 4096
"""Rows up to these lengths are each sorted by one warp or one block of threads."""
VECTOR_CHANNELS = 4
"""From so many channels on, upsampling's backward works in channels last."""
NOT_REDUCED = 0
"""A loss's ``reduction`` that leaves its elements."""
NORM_CHUNK = 64 * 1024
"""Elements of a tensor whose norm one block of threads sums."""


def _sum(args: Sequence[Any], out: Tensor, libraries: Libraries) -> Sequence[int]:
    source: Tensor = args[0]
    if source.dtype == out.dtype or (source.dtype in HALF and out.dtype == torch.float32):
        return sum_steps(source, _dims_of(args), libraries.hardware)
    converted = torch.empty_like(source, dtype=out.dtype, device="meta")  # make_reduction_from_out_ty, ReduceOpsUtils.h
    return [bytes_of(converted), *sum_steps(converted, _dims_of(args), libraries.hardware)]


def _mean(args: Sequence[Any], _out: Tensor, libraries: Libraries) -> Sequence[int]:
    return reduction_buffers(args[0], _dims_of(args), libraries.hardware.processors)


def _extreme(args: Sequence[Any], _out: Tensor, libraries: Libraries) -> Sequence[int]:
    return reduction_buffers(args[0], _dims_of(args), libraries.hardware.processors, sums=False)


def _dims_of(args: Sequence[Any]) -> Sequence[int]:
    dims = args[1] if len(args) > 1 else None
    return [dims] if isinstance(dims, int) else dims or ()


def _vector_norm(args: Sequence[Any], _out: Tensor, libraries: Libraries) -> Sequence[int]:
    dims = args[2] if len(args) > 2 else None
    return reduction_buffers(args[0], dims or (), libraries.hardware.processors)


def _layer_norm_backward(args: Sequence[Any], _out: Any, libraries: Libraries) -> Sequence[KernelStep]:
    gradient, given, shape, wanted = *args[:3], args[7]
    copies = copy_bytes(given), RESULTS, copy_bytes(gradient)
    columns = torch.Size(shape).numel()
    rows = given.numel() // columns if columns else 0
    if not any(wanted[1:]) or rows <= LAYER_NORM_ROWS or columns // 32 >= libraries.hardware.processors.number // 2:
        return copies
    number = min(ceil(rows / LAYER_NORM_PART), LAYER_NORM_BLOCKS // ceil(columns / 32))
    parts = torch.empty((number, columns), dtype=given.dtype, device="meta")
    steps: list[KernelStep] = [*copies, *[bytes_of(parts)] * sum(map(bool, wanted[1:]))]
    for _ in filter(None, wanted[1:]):  # one after the other, each with a buffer and a counter
        place = sum(isinstance(step, int) for step in steps)
        buffers = sum_steps(parts, (0,), libraries.hardware)
        steps += [*buffers, *(Freed(place + number) for number in reversed(range(len(buffers))))]
    return steps


def _embedding_backward(args: Sequence[Any], _out: Tensor, libraries: Libraries) -> Sequence[KernelStep]:
    gradient, indices, rows = args[:3]
    number = indices.numel()
    by_frequency = len(args) > 4 and args[4]
    copies = copy_bytes(gradient), copy_bytes(indices)
    if not number or (number <= EMBEDDING_SORTS and not by_frequency):
        return *copies, RESULTS
    array, segments = INDEX_BYTES * number, min(number, rows)
    parts = number // EMBEDDING_PART + segments
    sorting = *[array] * 3, _sorting_bytes(number, rows, libraries.hardware.capability), Freed(5), Freed(4)
    numbering = array, array, Freed(7)
    summing = *[INDEX_BYTES * segments] * 2, INDEX_BYTES * parts, FLOAT_BYTES * parts * gradient.shape[-1]
    return *copies, *sorting, RESULTS, *numbering, *summing


def _index_put(args: Sequence[Any], _out: Tensor, libraries: Libraries) -> Sequence[KernelStep]:
    """Return what sums of numbers at equal indices take to sort them: the backward of ``table[indices]`` is one.

    Masks become indices first, of as many numbers as there are values.
    """
    table, indices, values = args[:3]
    if len(args) < 4 or not args[3]:
        return ()
    first = next(place for place, index in enumerate(indices) if index is not None)
    chosen = [(size, index) for size, index in zip(table.shape, indices, strict=False) if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for _, index in chosen):
        number, rows = (values.shape[first] if values.ndim > first else 0), table.numel()
    else:
        number = torch.broadcast_shapes(*(index.shape for _, index in chosen)).numel()  # type: ignore[no-untyped-call]
        rows = torch.Size([size for size, _ in chosen]).numel()
    array = INDEX_BYTES * number
    return (
        array,
        array,
        Freed(0),
        copy_bytes(values),
        *[array] * 3,
        _sorting_bytes(number, rows, libraries.hardware.capability),
    )


def _sorting_bytes(number: int, rows: int, capability: Capability) -> int:
    """Return what CUB takes to sort so many keys below ``rows``, each with an index (cub/device/device_radix_sort.cuh).

    Several passes go between two more arrays of keys and indices.
    """
    if number <= ONE_BLOCK:
        return 0
    passes = ceil((rows - 1).bit_length() / 8)
    arrays = 2 * ceil(INDEX_BYTES * number / ALIGNED) * ALIGNED if passes > 1 else 0
    part = next((keys for least, keys in SORTED_PARTS if capability >= least), SORTED_PARTS[-1][1])
    return arrays + BINS * (ceil(number / part) * FLOAT_BYTES + passes * INDEX_BYTES) + 2 * ALIGNED - 1


def _sort(_args: Sequence[Any], out: Sequence[Tensor], _libraries: Libraries) -> Sequence[KernelStep]:
    """Return the places of a row's numbers, which a sort of many rows repeats for each."""
    length = out[1].shape[-1] if out[1].ndim else 0
    return (INDEX_BYTES * length if SORTED_BY_WARP < length <= SORTED_BY_BLOCK else 0,)


def _layer_norm(args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    return copy_bytes(args[0]), RESULTS


def _copied_after(args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    """Return the steps of a kernel that wants what it is given contiguous, and looks once its results are there."""
    return (copy_bytes(args[0]),)


def _pool(args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    return (copy_bytes(args[0], suggested_layout(args[0])),)


def _pool_backward(args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    gradient, image = args[:2]
    layout = suggested_layout(image)
    return copy_bytes(gradient, layout), copy_bytes(image, layout)


def _adaptive_pool(args: Sequence[Any], out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    return *map(copy_bytes, out), copy_bytes(args[0])


def _adaptive_pool_backward(args: Sequence[Any], out: Tensor, _libraries: Libraries) -> Sequence[KernelStep]:
    gradient, _, indices = args[:3]
    return copy_bytes(gradient), copy_bytes(indices), copy_bytes(out)


def _upsample_backward(args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    gradient = args[0]
    plain = gradient.shape[1] < VECTOR_CHANNELS
    return (copy_bytes(gradient, torch.contiguous_format if plain else suggested_layout(gradient)),)


def _converted(args: Sequence[Any], out: Tensor, _libraries: Libraries) -> Sequence[KernelStep]:
    return (0 if args[0].dtype == out.dtype else bytes_of(out),)


def _columns(args: Sequence[Any], out: Tensor, _libraries: Libraries) -> Sequence[KernelStep]:
    """Return what is made as large as the images, and becomes the result only where that is not larger."""
    images = args[0]
    if bytes_of(out) <= bytes_of(images):
        return RESULTS, copy_bytes(images)
    return bytes_of(images), copy_bytes(images), RESULTS, Freed(0)


def _roll(args: Sequence[Any], _out: Tensor, _libraries: Libraries) -> Sequence[KernelStep]:
    """Roll one dimension after another; what was made for all but the last is freed at the end."""
    source, shifts = args[:2]
    between = len(shifts) - 1 if isinstance(shifts, list | tuple) else 0
    copy = copy_bytes(source)
    if not between:
        return copy, RESULTS
    size = bytes_of(source)
    return copy, size, Freed(0), *[size] * (between - 1), RESULTS


def _loss(number: int, reduction_at: int, *, results_first: bool) -> Kernel:
    """Return the steps of a loss that makes so many tensors of its input's size, and reduces the last of them."""

    def steps(args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
        given, target = args[:2]
        reduces = len(args) <= reduction_at or args[reduction_at] != NOT_REDUCED
        elements: int = torch.broadcast_shapes(given.shape, target.shape).numel()  # type: ignore[no-untyped-call]
        size = elements * torch.promote_types(given.dtype, target.dtype).itemsize
        taken = [size] * (number if reduces else number - 1)
        return (RESULTS, *taken) if results_first else (*taken, RESULTS)

    return steps


def _soft_margin_backward(args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    return *[bytes_of(args[1])] * 3, Freed(1), Freed(0), RESULTS


def _softmax_backward(args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    gradient, output = args[:2]
    product = torch.empty_like(gradient, device="meta") * torch.empty_like(output, device="meta")
    return bytes_of(product), copy_bytes(product)


def _dropout(_args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    return Result(1), Result(0)


def _embedding(args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    return copy_bytes(args[1]), RESULTS


def _norms(args: Sequence[Any], _out: Any, _libraries: Libraries) -> Sequence[KernelStep]:
    """Return the norms of parts of tensors, of which those of the tensors follow."""
    tensors = args[0]
    parts = max(ceil(tensor.numel() / NORM_CHUNK) for tensor in tensors)
    return FLOAT_BYTES * len(tensors) * parts, RESULTS


_PADS = [f"aten::reflection_pad{sides}d{end}" for sides in (1, 2, 3) for end in ("", "_backward")]

KERNELS: Mapping[str, Kernel] = {
    **ATTENTION_KERNELS,
    **CONVOLUTION_KERNELS,
    "aten::sum": _sum,
    "aten::mean": _mean,
    **dict.fromkeys(("aten::amax", "aten::amin"), _extreme),
    "aten::linalg_vector_norm": _vector_norm,
    **dict.fromkeys(_PADS, _copied_after),  # ATen/native/cuda/ReflectionPad.cu
    "aten::native_layer_norm": _layer_norm,  # ATen/native/cuda/layer_norm_kernel.cu
    "aten::native_layer_norm_backward": _layer_norm_backward,
    "aten::roll": _roll,  # ATen/native/TensorTransformations.h
    "aten::native_dropout": _dropout,  # ATen/native/cuda/Dropout.cu
    "aten::embedding": _embedding,  # ATen/native/Embedding.cpp: index_select of flattened indices
    "aten::embedding_dense_backward": _embedding_backward,  # ATen/native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu
    # ATen/native/cuda/Indexing.cu: index_put_with_sort_kernel
    **dict.fromkeys(("aten::index_put", "aten::index_put_", "aten::_index_put_impl_"), _index_put),
    "aten::_foreach_norm": _norms,  # ATen/native/cuda/ForeachReduceOp.cu
    # ATen/native/Loss.cpp
    "aten::mse_loss": _loss(1, 2, results_first=True),
    "aten::smooth_l1_loss": _loss(1, 2, results_first=True),
    "aten::huber_loss": _loss(1, 2, results_first=False),
    "aten::binary_cross_entropy_with_logits": _loss(2, 4, results_first=False),
    "aten::soft_margin_loss_backward": _soft_margin_backward,
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax"), _copied_after),  # ATen/native/cuda/SoftMax.cu
    "aten::_softmax_backward_data": _softmax_backward,
    "aten::max_pool2d_with_indices": _pool,  # ATen/native/cuda/DilatedMaxPool2d.cu
    "aten::max_pool2d_with_indices_backward": _pool_backward,
    "aten::adaptive_max_pool2d": _adaptive_pool,  # ATen/native/cuda/AdaptiveMaxPooling2d.cu
    "aten::adaptive_max_pool2d_backward": _adaptive_pool_backward,
    "aten::upsample_nearest2d_backward": _upsample_backward,  # ATen/native/cuda/UpSampleNearest2d.cu
    "aten::im2col": _columns,  # ATen/native/cuda/Im2Col.cu
    "aten::cumsum": _converted,  # ATen/native/cuda/ScanKernels.cpp
    "aten::sort": _sort,  # ATen/native/cuda/Sort.cpp
}
"""By the name of the operator's schema."""
