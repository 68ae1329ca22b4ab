"""Giving memory back that nobody uses: to the device, or to the operating system."""

import ctypes
import gc
import platform

import torch

from trainauto.memory.monitor import budget, onednn


def release_memory(device: torch.device) -> None:
    """Give cached memory back to the device, or freed memory back to the operating system.

    On the CPU, oneDNN is left aside from now on if running out of memory has broken it.
    """
    gc.collect()
    if device.type == "cuda":  # pragma: no cuda
        torch.cuda.empty_cache()
        return
    trim_heap()
    onednn.leave_if_broken()


def trim_heap() -> None:
    """Give what is free in the heap back to the operating system (Linux), but for the room that a budget keeps there.

    A millisecond: thousands of small samples that were made a batch had left 15 MiB.
    """
    if platform.system() == "Linux":
        ctypes.CDLL(None).malloc_trim(0)
        budget.keep_heap_room()
