"""How it is written down what a kernel of CUDA takes from torch's allocator, and in which order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from trainauto.memory.tracing.libraries import Libraries

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Result:
    """A result of the operator that its kernel allocates now, by its place; ``None`` stands for all, in order."""

    place: int | None = None


@dataclass(frozen=True)
class Freed:
    """A buffer that the kernel frees before it ends, by its place among the buffers that it takes."""

    place: int


RESULTS = Result()

KernelStep = int | Result | Freed
"""A number takes a buffer of so many bytes; 0 takes none, but counts as a place."""

Kernel = Callable[[Sequence[Any], Any, Libraries], Sequence[KernelStep]]
"""Steps of a kernel, by its operator's arguments and results and the card's libraries.

Where no step is a result, all results come first. Buffers that are left are freed when the kernel ends, the last one
first.
"""


def bytes_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def suggested_layout(tensor: Tensor) -> torch.memory_format:
    """Return the layout that a tensor's strides suggest: contiguous or channels last."""
    layout: torch.memory_format = suggest_memory_format(tensor)
    return layout


def copy_bytes(tensor: Tensor, layout: torch.memory_format = torch.contiguous_format) -> int:
    """Return the bytes of a tensor's copy in a layout; 0 where it has that layout."""
    return 0 if tensor.is_contiguous(memory_format=layout) else bytes_of(tensor)
