"""What CUDA's libraries take from torch's allocator for themselves, and keep."""

import os
import re

import torch

KIB = 1024

CUBLAS_CONFIG = "CUBLAS_WORKSPACE_CONFIG"
"""Where people set the workspaces of cuBLAS: pairs of KiB and count, like ``:4096:2:16:8``."""

CUBLAS_BYTES = (2 * 4096 + 8 * 16) * KIB
"""Its default, seen in fifteen recorded steps on cards before Hopper."""

CUBLAS_HOPPER_BYTES = 8 * 4096 * KIB
"""The default from compute capability 9.0 on."""

_PAIR = re.compile(r":(\d+):(\d+)")


def cublas_workspace_bytes(capability: tuple[int, int] | None = None) -> int:
    """Return the bytes of one workspace of cuBLAS (``parseChosenWorkspaceSize``, ATen/cuda/CublasHandlePool.cpp).

    There are two in a training step: that of the thread which runs forward, and that of backward's.

    Args:
        capability: the card's; ``None`` for the one that is there, or where there is none for one before Hopper.
    """
    chosen = os.environ.get(CUBLAS_CONFIG, "")
    if pairs := _PAIR.findall(chosen):
        return sum(int(size_kib) * int(number) * KIB for size_kib, number in pairs)
    if capability is None and torch.cuda.is_available():  # pragma: no cuda
        capability = torch.cuda.get_device_capability(torch.cuda.current_device())
    return CUBLAS_HOPPER_BYTES if capability is not None and capability >= (9, 0) else CUBLAS_BYTES
