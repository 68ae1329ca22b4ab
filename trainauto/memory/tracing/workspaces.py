"""What CUDA's kernels take from torch's allocator before their results, until they end: copies and workspaces."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from trainauto.memory.tracing.libraries import Libraries

WINOGRAD = 36 / 16
"""Numbers that a 3x3 convolution by Winograd's F(4x4, 3x3) makes of each it takes or gives: 6x6 of a tile of 4x4."""

WINOGRAD_WEIGHT = 36 / 9
"""The same of each of its weights."""

Scratch = Callable[[Sequence[Any], Libraries], int]
"""Bytes that a kernel takes while it runs, by the arguments of its operator."""


def _copies_of_strided(number: int) -> Scratch:
    """Return what a kernel copies that wants so many of its first arguments contiguous."""
    return lambda args, _libraries: sum(_bytes(source) for source in args[:number] if not source.is_contiguous())


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _roll(args: Sequence[Any], _libraries: Libraries) -> int:
    source, shifts = args[:2]
    several = isinstance(shifts, list | tuple) and len(shifts) > 1  # one dimension after another
    return _bytes(source) if several or not source.is_contiguous() else 0


def _convolution(args: Sequence[Any], libraries: Libraries) -> int:
    image, weight, _, stride, padding, dilation, transposed, _, groups = args[:9]
    copied = _copies_in_layout((image, weight), image, weight)
    if not _is_winograd(libraries, weight, stride, dilation, transposed, groups):
        return copied
    height, width = image.shape[-2] + 2 * padding[0] - 2, image.shape[-1] + 2 * padding[-1] - 2
    samples = image.shape[0] if image.ndim == 4 else 1
    return copied + _winograd_bytes(weight, image.numel(), samples * weight.shape[0] * height * width)


def _convolution_backward(args: Sequence[Any], libraries: Libraries) -> int:
    gradient, image, weight, _, stride, _, dilation, transposed, _, groups = args[:10]
    # A copy of the weight is gone again when the weight's own gradient, which is as large, is made.
    copied = _copies_in_layout((gradient, image), image, weight)
    if not _is_winograd(libraries, weight, stride, dilation, transposed, groups):
        return copied
    return copied + _winograd_bytes(weight, image.numel(), gradient.numel())


def _copies_in_layout(given: Sequence[Tensor], image: Tensor, weight: Tensor) -> int:
    """Return what cuDNN's convolution copies to have all in one layout: channels last where image or weight has it.

    ``cudnn_conv_suggest_memory_format``, ATen/native/ConvUtils.h.
    """
    layout = torch.contiguous_format
    if image.ndim == 4 and image.dtype != torch.float64:
        suggested = suggest_memory_format(image), suggest_memory_format(weight)
        layout = torch.channels_last if torch.channels_last in suggested else layout
    return sum(
        tensor.numel() * tensor.element_size() for tensor in given if not tensor.is_contiguous(memory_format=layout)
    )


def _is_winograd(
    libraries: Libraries,
    weight: Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> bool:
    """Say whether cuDNN's fastest kernel is taken to be Winograd's in separate passes.

    Published peaks of 72 networks in that mode (V100) lie at 0.942 to 1.008 of traces that count it, at 0.95 to 1.27 of
    those that do not (docs/benchmarks/published_gpu.md). Cards that compute fp32 in TF32 may take other kernels.
    """
    plain = not transposed and prod(stride) == prod(dilation) == groups == 1
    return libraries.benchmark and plain and weight.dtype == torch.float32 and tuple(weight.shape[2:]) == (3, 3)


def _winograd_bytes(weight: Tensor, inputs: int, outputs: int) -> int:
    numbers = WINOGRAD * (inputs + outputs) + WINOGRAD_WEIGHT * weight.numel()
    return int(numbers) * weight.element_size()


NOT_REDUCED = 0
"""A loss's ``reduction`` that leaves its elements."""


def _elements(number: int, reduction_at: int) -> Scratch:
    """Return what a loss takes that computes so many tensors of its input's size before it reduces the last of them."""

    def scratch(args: Sequence[Any], _libraries: Libraries) -> int:
        given, target = args[:2]
        reduces = len(args) <= reduction_at or args[reduction_at] != NOT_REDUCED
        elements: int = torch.broadcast_shapes(given.shape, target.shape).numel()  # type: ignore[no-untyped-call]
        return (number if reduces else number - 1) * elements * torch.promote_types(given.dtype, target.dtype).itemsize

    return scratch


def _soft_margin_backward(args: Sequence[Any], _libraries: Libraries) -> int:
    given: Tensor = args[1]
    return 2 * given.numel() * given.element_size()  # three at a time, of which the last is freed for the result


def _softmax_backward(args: Sequence[Any], _libraries: Libraries) -> int:
    gradient, output = args[:2]
    product_bytes: int = output.numel() * torch.promote_types(gradient.dtype, output.dtype).itemsize
    return product_bytes


def _flash_backward(args: Sequence[Any], _libraries: Libraries) -> int:
    """Return the copies that put rows before heads: of the gradient and of the result, laid out as the queries are."""
    gradient, query = args[:2]
    laid_out = (gradient, torch.empty_like(query, device="meta"))
    return sum(not tensor.transpose(1, 2).is_contiguous() for tensor in laid_out) * _bytes(query)


def _efficient_backward(args: Sequence[Any], _libraries: Libraries) -> int:
    """Return the copy of a gradient that has not rows before heads; the result has."""
    gradient = args[0]
    return 0 if gradient.transpose(1, 2).is_contiguous() else _bytes(gradient)


def _embedding(args: Sequence[Any], _libraries: Libraries) -> int:
    indices = args[1]
    return 0 if indices.is_contiguous() else _bytes(indices)


_PADS = [f"aten::reflection_pad{sides}d{end}" for sides in (1, 2, 3) for end in ("", "_backward")]

SCRATCH: Mapping[str, Scratch] = {
    **dict.fromkeys(_PADS, _copies_of_strided(1)),  # ATen/native/cuda/ReflectionPad.cu
    "aten::native_layer_norm": _copies_of_strided(1),  # ATen/native/cuda/layer_norm_kernel.cu
    "aten::native_layer_norm_backward": _copies_of_strided(2),
    "aten::roll": _roll,  # ATen/native/TensorTransformations.h
    "aten::embedding": _embedding,  # ATen/native/Embedding.cpp: index_select of flattened indices
    # ATen/native/Loss.cpp
    "aten::mse_loss": _elements(1, 2),
    "aten::smooth_l1_loss": _elements(1, 2),
    "aten::huber_loss": _elements(1, 2),
    "aten::binary_cross_entropy_with_logits": _elements(2, 4),
    "aten::soft_margin_loss_backward": _soft_margin_backward,
    "aten::_softmax_backward_data": _softmax_backward,  # ATen/native/cuda/SoftMax.cu
    # ATen/native/transformers/cuda/attention_backward.cu
    "aten::_scaled_dot_product_flash_attention_backward": _flash_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
}
"""By the name of the operator's schema."""
