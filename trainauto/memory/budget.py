"""A memory budget that is real: past it, the allocator itself refuses.

On CUDA it is a share of the card (``set_per_process_memory_fraction``). On Linux without CUDA it is ``RLIMIT_DATA``:
private writable memory beyond what the process held when training began. On other platforms it is watched only.
"""

import ctypes
import logging
import platform
from contextlib import suppress
from pathlib import Path

import torch

from trainauto.core.process import limit_private_memory

logger = logging.getLogger(__name__)

MIB = 1024**2
STATUS = Path("/proc/self/status")

# glibc's own numbers of its malloc parameters (malloc.h)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def calm_allocator() -> None:
    """Make glibc return what is freed, so that a budget speaks of memory in use; does nothing elsewhere.

    One arena, and blocks of 64 KiB and more straight from the system: with these, what training held and what the
    system counted stayed within 22 MB over 24 changes of shape.
    """
    if platform.system() != "Linux":
        return
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, 65536)
        mallopt(_M_TRIM_THRESHOLD, 65536)


def status_bytes(*names: str) -> dict[str, int]:
    """Return fields of ``/proc/self/status`` (``VmHWM``, ``RssFile``...) in bytes.

    Raises:
        OSError: this is not Linux.
    """
    wanted = {f"{name}:": name for name in names}
    found = {}
    for line in STATUS.read_text().splitlines():
        key = line.split("\t", 1)[0]
        if key in wanted:
            found[wanted[key]] = int(line.split()[1]) * 1024
    return found


def enforce(budget_bytes: int, device: torch.device) -> bool:
    """Let this process have ``budget_bytes`` more than it holds now (on CUDA: in all); return if that is enforced."""
    if device.type == "cuda":  # pragma: no cuda
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, budget_bytes / total), device)
        return True
    limit = status_bytes("VmData")["VmData"] + budget_bytes if STATUS.exists() else None
    if limit is None or not limit_private_memory(limit):
        logger.warning("this platform cannot enforce a memory budget on the CPU; it is watched only")
        return False
    return True


def renew(budget_bytes: int, baseline_bytes: int) -> None:
    """Bound what is touched, not what is reserved: set the limit to what of the budget is left (Linux, CPU).

    Libraries reserve room that they never touch, oneDNN 2 MiB of code for every new shape. It takes no memory, but the
    system counts it; without this, 40 MiB of a budget were gone after eight shapes.

    Args:
        budget_bytes: private memory this process may touch beyond the baseline.
        baseline_bytes: private memory it held when the budget began.
    """
    found = status_bytes("VmData", "RssAnon")
    limit_private_memory(found["VmData"] + budget_bytes - max(0, found["RssAnon"] - baseline_bytes))
