"""Giving unused memory back: to the device, or to the operating system."""

import ctypes
import gc
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from trainauto.core.units import MIB
from trainauto.memory.monitor import budget, onednn
from trainauto.memory.monitor.oom import is_out_of_memory

OLDEST_GARBAGE, YOUNG_GARBAGE = 2, 1
"""Generations of Python's garbage. To look at all of it takes .2 s where transformers is loaded, the young .01 s.

A cycle is young until some 7,000 further objects were made: a step's own mostly are."""

_LEFT_BYTES = MIB // 2

T = TypeVar("T")


def release_memory(device: torch.device, generation: int = OLDEST_GARBAGE) -> None:
    """Give cached memory back to the device, or freed memory back to the operating system.

    On the CPU, oneDNN is left aside from now on if running out of memory has broken it.

    Args:
        device: whose memory.
        generation: the oldest generation of Python's garbage that is collected first. After a failure all of it, for
            tracebacks hold tensors.
    """
    gc.collect(generation)
    if device.type == "cuda":  # pragma: no cuda
        torch.cuda.empty_cache()
        return
    trim_heap()
    onednn.leave_if_broken()


def repeatable(call: Callable[[], T], device: torch.device) -> T:
    """Call what leaves everything as it was where memory runs out in it; then once more, after memory was released."""
    try:
        return call()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # Outside the handler: the error's traceback holds what the call had made.
    release_memory(device)
    return call()


def release_between_plans(device: torch.device) -> None:
    """Give memory back where another plan begins: blocks of the old sizes would be in the way of the new ones.

    On a card all garbage goes first, for cycles that hold tensors grow old; on a CPU the young, which takes no time.
    """
    release_memory(device, YOUNG_GARBAGE if device.type == "cpu" else OLDEST_GARBAGE)


@contextmanager
def heap_trimmed_after() -> Iterator[None]:
    """Give back what the block leaves free in the heap, where it is half a MiB or more: a step's peak would include it.

    Trimming always made steps of a small language model 14 % slower, which then took the same pages anew.
    """
    before = budget.unused_heap_bytes()
    yield
    after = budget.unused_heap_bytes()
    if before is None or after is None or after - before >= _LEFT_BYTES:
        trim_heap()


def trim_heap() -> None:
    """Give what is free in the heap back to the operating system (Linux), but for the room that a budget keeps there.

    A millisecond: thousands of small samples that were made a batch had left 15 MiB.
    """
    if platform.system() == "Linux":
        ctypes.CDLL(None).malloc_trim(0)
        budget.keep_heap_room()
