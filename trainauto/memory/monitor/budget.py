"""A memory budget that is real: past it, the allocator itself refuses.

On CUDA it is a share of the card (``set_per_process_memory_fraction``). On Linux without CUDA it is ``RLIMIT_DATA``:
private writable memory beyond what the process held when training began. On other platforms it is watched only.
"""

import ctypes
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch

from trainauto.core.process import limit_private_memory, memory_limit_kept
from trainauto.core.units import MIB

logger = logging.getLogger(__name__)

STATUS = Path("/proc/self/status")
_STATUS_BYTES = 1 << 14
"""More than its text takes."""

# glibc's own numbers of its malloc parameters (malloc.h)
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8

_SEPARATE_BYTES = 16 * 1024
"""Blocks from this size on come straight from the system, and go straight back to it."""
_LEAST_ROOM_BYTES, _MOST_ROOM_BYTES, _BUDGETS_PER_ROOM = 2 * MIB, 16 * MIB, 16
"""Free room kept in the heap for smaller blocks, by budget. Under a new shape, steps of small networks took up to 2 MiB
of it, those of RRDBNet with 23 blocks 10."""

_SIDE_FOR_ALL_THREADS = 256
"""Side of matrices that linear algebra shares among all its threads, each of which takes work memory of its own."""

_room_bytes = 0


class _MallocInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2`` (malloc.h): ten sizes, of mapped blocks, of those in use, of what is free."""

    _fields_ = (
        ("first_four", ctypes.c_size_t * 4),
        ("mapped_bytes", ctypes.c_size_t),
        ("next_two", ctypes.c_size_t * 2),
        ("used_bytes", ctypes.c_size_t),
        ("free_bytes", ctypes.c_size_t),
        ("top_bytes", ctypes.c_size_t),
    )


def _malloc_info() -> _MallocInfo:
    """Return what malloc holds.

    Raises:
        AttributeError: this is not glibc, or one before 2.33.
    """
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallocInfo
    info: _MallocInfo = mallinfo2()
    return info


def unused_heap_bytes() -> int | None:
    """Return how much private memory malloc does not have in use, up to a constant; ``None`` where it does not say.

    What has been freed in a heap and not been given back to the system raises it.
    """
    try:
        info = _malloc_info()
        return status_bytes("RssAnon")["RssAnon"] - int(info.mapped_bytes) - int(info.used_bytes)
    except (OSError, AttributeError):
        return None


def calm_allocator() -> None:
    """Make glibc return what is freed, so that a budget speaks of memory in use; does nothing elsewhere.

    One arena, and blocks of 16 KiB and more straight from the system: with these, what training held and what the
    system counted stayed within 24 MiB over 40 plans on each of four networks.

    The price is that pages are mapped in every step. On a virtual machine, 60 steps of a small network took 12.2 s
    instead of 5.4 s, and those of a larger one 1.9 times as long. Thresholds up to 1 MiB cost the same. A threshold of
    4 MiB costs nothing, but then 105 MiB stayed with the process after 24 shapes.
    """
    if platform.system() != "Linux":
        return
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _SEPARATE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 65536)


def keep_heap_room() -> None:
    """Have free room in the heap while a budget is in force, so that it refuses tensors and no small blocks.

    Where oneDNN gets no 2 KiB for the description of an operation, it ends the process by writing through null.
    """
    if not _room_bytes:
        return
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        if _malloc_info().free_bytes >= _room_bytes:
            return
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
        libc.mallopt(_M_TOP_PAD, _room_bytes)  # what is free at the heap's end stays up to that
        libc.mallopt(_M_MMAP_THRESHOLD, 2 * _room_bytes)
        libc.free(libc.malloc(_room_bytes))
        libc.mallopt(_M_MMAP_THRESHOLD, _SEPARATE_BYTES)


def status_bytes(*names: str) -> dict[str, int]:
    """Return fields of ``/proc/self/status`` (``VmHWM``, ``RssFile``...) in bytes.

    Raises:
        OSError: this is not Linux.
    """
    # Every step reads it once: opened as text and read line by line it would take several times as long.
    handle = os.open(STATUS, os.O_RDONLY)
    try:
        text = os.read(handle, _STATUS_BYTES).decode()
    finally:
        os.close(handle)
    return {name: _kib_after(f"\n{name}:", text) * 1024 for name in names}


def _kib_after(label: str, text: str) -> int:
    start = text.index(label) + len(label)
    return int(text[start : text.index("kB", start)])


def load_libraries() -> None:
    """Have libraries that end the process where they get no memory take theirs now, before a budget is in force (CPU).

    numpy's OpenBLAS asks for its work memory of 32 MiB when it first multiplies or solves, ten times, and then exits;
    the OpenMP runtime ends the process where it gets no stack for a thread.
    """
    limit_private_memory(None)
    torch.zeros(2**20).add_(1)
    square = np.eye(_SIDE_FOR_ALL_THREADS)
    np.linalg.lstsq(square @ square, square[:, :1], rcond=None)
    tensor = torch.eye(_SIDE_FOR_ALL_THREADS)
    torch.mm(tensor, tensor)


def enforce(budget_bytes: int, device: torch.device) -> bool:
    """Let this process have ``budget_bytes`` more than it holds now (on CUDA: in all); return if that is enforced."""
    if device.type == "cuda":  # pragma: no cuda
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, budget_bytes / total), device)
        return True
    global _room_bytes
    limit_private_memory(None)
    _room_bytes = min(_MOST_ROOM_BYTES, max(_LEAST_ROOM_BYTES, budget_bytes // _BUDGETS_PER_ROOM))
    keep_heap_room()
    limit = status_bytes("VmData")["VmData"] + budget_bytes if STATUS.exists() else None
    if limit is None or not limit_private_memory(limit):
        logger.warning("this platform cannot enforce a memory budget on the CPU; the run only measures its use")
        return False
    return True


@contextmanager
def memory_limit_restored(device: torch.device) -> Iterator[None]:
    """Have the limit that this process had before in force again after the block."""
    if device.type == "cuda":  # pragma: no cuda
        before = torch.cuda.get_per_process_memory_fraction(device)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(before, device)
        return
    with memory_limit_kept():
        yield


def renew(budget_bytes: int, baseline_bytes: int) -> None:
    """Bound what is touched, not what is reserved: set the limit to what of the budget is left (Linux, CPU).

    Libraries reserve room that they never touch, oneDNN 2 MiB of code for every new shape. It takes no memory, but the
    system counts it; without this, 40 MiB of a budget were gone after eight shapes.

    Args:
        budget_bytes: private memory this process may touch beyond the baseline.
        baseline_bytes: private memory it held when the budget began.
    """
    limit_private_memory(None)
    keep_heap_room()
    status = status_bytes("VmData", "RssAnon")
    limit_private_memory(status["VmData"] + budget_bytes - max(0, status["RssAnon"] - baseline_bytes))
