"""What convolutions take from torch's allocator on CUDA: copies in one layout, and workspaces of cuDNN."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from trainauto.memory.tracing.kernel_steps import (
    RESULTS,
    Freed,
    Kernel,
    KernelStep,
    Result,
    bytes_of,
    copy_bytes,
    suggested_layout,
)
from trainauto.memory.tracing.libraries import Libraries
from trainauto.memory.tracing.reductions import sum_steps

WINOGRAD = 36 / 16
"""Numbers that a 3x3 convolution by Winograd's F(4x4, 3x3) makes of each it takes or gives: 6x6 of a tile of 4x4."""

WINOGRAD_WEIGHT = 36 / 9
"""The same of each of its weights."""


def _convolution(args: Sequence[Any], _out: Any, libraries: Libraries) -> Sequence[KernelStep]:
    image, weight, _, stride, padding, dilation, transposed, _, groups = args[:9]
    layout = _layout(image, weight)
    if _is_depthwise(image, weight, transposed, groups):
        return copy_bytes(image), copy_bytes(weight), RESULTS
    copies = (copy_bytes(image, layout), RESULTS, copy_bytes(weight, layout))
    if not _is_winograd(libraries, weight, stride, dilation, transposed, groups):
        return copies
    height, width = image.shape[-2] + 2 * padding[0] - 2, image.shape[-1] + 2 * padding[-1] - 2
    samples = image.shape[0] if image.ndim == 4 else 1
    return *copies, _winograd_bytes(weight, image.numel(), samples * weight.shape[0] * height * width)


def _convolution_backward(args: Sequence[Any], _out: Any, libraries: Libraries) -> Sequence[KernelStep]:
    gradient, image, weight, transposed, groups, wanted = *args[:3], args[7], args[9], args[10]
    if _is_depthwise(image, weight, transposed, groups):
        weights = _depthwise_backward(gradient, image, weight, wanted)
    else:
        weights = _cudnn_backward(args, libraries)
    if not wanted[2]:
        return weights
    summed = [dim for dim in range(gradient.ndim) if dim != 1]
    return *weights, Result(2), *sum_steps(gradient, summed, libraries.hardware)


def _depthwise_backward(
    gradient: Tensor, image: Tensor, weight: Tensor, wanted: Sequence[bool]
) -> Sequence[KernelStep]:
    """Return the steps of kernels that need no cuDNN (ATen/native/cuda/DepthwiseConv2d.cu)."""
    steps: list[KernelStep] = [copy_bytes(gradient)]
    if wanted[1]:
        steps += [copy_bytes(image), Result(1), Freed(1)]
    if wanted[0]:
        place = 2 if wanted[1] else 1
        steps += [copy_bytes(weight), Result(0), Freed(place)]
    return *steps, Freed(0)


def _cudnn_backward(args: Sequence[Any], libraries: Libraries) -> Sequence[KernelStep]:
    """Return the copies in one layout, and in it the gradients of image and weight, each with a workspace.

    The gradient is copied once where its layout is another than the image's, and for each of both where only its
    strides are others; a transposed convolution copies it once.
    """
    gradient, image, weight, _, stride, _, dilation, transposed, _, groups, wanted = args[:11]
    layout = _layout(image, weight)
    of_image = copy_bytes(image, layout) if wanted[1] else 0
    aimed = layout if of_image else suggested_layout(image)
    once = suggested_layout(gradient) != aimed or (transposed and copy_bytes(gradient, layout) > 0)
    held, each = (bytes_of(gradient), aimed != layout) if once else (0, copy_bytes(gradient, layout) > 0)
    copied = bytes_of(gradient) if each else 0
    room = 0
    if _is_winograd(libraries, weight, stride, dilation, transposed, groups):
        room = _winograd_bytes(weight, image.numel(), gradient.numel())
    steps: list[KernelStep] = [of_image, held]
    if wanted[0]:
        steps += [Result(0), copy_bytes(weight, layout), copied, room, Freed(4), Freed(3), Freed(2)]
    if wanted[1]:
        place = 5 if wanted[0] else 2
        steps += [copied, Result(1), room, Freed(place + 1), Freed(place)]
    return *steps, Freed(1), Freed(0)


def _is_depthwise(image: Tensor, weight: Tensor, transposed: bool, groups: int) -> bool:
    """Say whether torch's own kernel computes it, not cuDNN's (``use_depthwise``, ATen/native/Convolution.cpp).

    In float16 cuDNN computes some of them, by their sizes, which is not followed.
    """
    by_channel = image.ndim == 4 and 1 < groups == image.shape[1] and weight.shape[0] % groups == 0
    return by_channel and not transposed and _layout(image, weight) == torch.contiguous_format


def _layout(image: Tensor, weight: Tensor) -> torch.memory_format:
    """Return the layout in which cuDNN convolves: channels last where image or weight has it.

    ``cudnn_conv_suggest_memory_format``, ATen/native/ConvUtils.h.
    """
    if image.ndim != 4 or image.dtype == torch.float64:
        return torch.contiguous_format
    suggested = suggested_layout(image), suggested_layout(weight)
    return torch.channels_last if torch.channels_last in suggested else torch.contiguous_format


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


CONVOLUTION_KERNELS: Mapping[str, Kernel] = {
    "aten::convolution": _convolution,  # ATen/native/cudnn/ConvShared.cpp
    "aten::convolution_backward": _convolution_backward,  # the bias's gradient: ATen/native/Convolution.cpp
}
"""By the name of the operator's schema."""
