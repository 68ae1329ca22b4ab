"""A memory budget that is real: past it, the allocator itself refuses.

On CUDA it is a share of the card (``set_per_process_memory_fraction``). On Linux without CUDA it is ``RLIMIT_DATA``: private
writable memory beyond what the process held when training began. On other platforms it is watched, not enforced.
"""

import ctypes
import logging
import os
import platform
import re
from contextlib import suppress
from pathlib import Path

import torch

logger = logging.getLogger(__name__)

MIB = 1024**2
STATUS = Path("/proc/self/status")

# glibc's own numbers of its malloc parameters (malloc.h)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8

ENVIRONMENT = {
    # Read when torch is loaded. oneDNN's cache of primitives reserves memory it never touches: with its default of 1024
    # entries the data segment grew by 300 MB over twenty shapes, with 64 by 22 MB (and no entries at all is slower).
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
}

_UNITS = {"b": 1, "kib": 1024, "mib": MIB, "gib": 1024**3, "kb": 1000, "mb": 1000**2, "gb": 1000**3}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?b|b)\s*", re.IGNORECASE)


def parse_size_bytes(text: str) -> int:
    """Read ``"600MiB"``, ``"1.5 GiB"`` or ``"12GB"`` (GiB is binary, GB decimal).

    Raises:
        ValueError: it is not a size.
    """
    found = _SIZE.fullmatch(text)
    if found is None or not (size := int(float(found[1]) * _UNITS[found[2].lower()])):
        raise ValueError(f"'{text}' is no size; write it like 600MiB, 1.5GiB or 12GB")
    return size


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
    """Let this process have ``budget_bytes`` more than it holds now (on CUDA: in all); return whether that is enforced."""
    if device.type == "cuda":  # pragma: no cuda
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, budget_bytes / total), device)
        return True
    if platform.system() != "Linux":
        logger.warning("this platform cannot enforce a memory budget on the CPU; it is watched only")
        return False
    import resource

    limit = status_bytes("VmData")["VmData"] + budget_bytes
    # The soft limit only, so that worker processes and a later run can lift it again.
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    return True


def lift() -> None:
    """Take the CPU budget off this process: in workers, which inherit it, and when a run ends."""
    if platform.system() == "Linux":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def set_environment() -> None:
    """Set what must be set before torch is loaded; a value the user has set stays."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
