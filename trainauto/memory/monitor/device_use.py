"""What everybody uses of a card, us included: NVML's word, or the driver's where NVML has none.

The caching allocator knows only this process. NVML counts every process on the card, and needs no context of its own.
"""

import logging
from functools import cache
from typing import Any

import pynvml
import torch

from trainauto.core.units import MIB

logger = logging.getLogger(__name__)

HEADROOM_BYTES = 256 * MIB
"""Left free of a card: libraries load kernels and take workspaces outside of torch's allocator, when they like."""


def used_bytes(device: torch.device) -> int:
    """Return the bytes in use on a CUDA device by all processes, contexts included."""
    handle = nvml_handle(device)
    if handle is not None:
        try:
            # The second version counts what the driver keeps for itself apart; CUDA's total leaves it out, too.
            return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)
        except pynvml.NVMLError as error:
            logger.debug("NVML does not report the memory use of %s: %s", device, error)
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def available_bytes(used: int, own_reserved: int, total: int, limit: int | None) -> int:
    """Return what this process's allocator may hold in all, so that no process spills or fails.

    Args:
        used: bytes in use on the card by all processes.
        own_reserved: bytes of them that this process's allocator holds.
        total: memory of the card.
        limit: bytes this process may use of it; ``None`` if unbounded.
    """
    others_bytes = max(0, used - own_reserved)
    free_bytes = max(0, total - others_bytes - HEADROOM_BYTES)
    return free_bytes if limit is None else min(free_bytes, limit)


def driver_version() -> str | None:
    """Return the version of NVIDIA's driver; ``None`` where NVML does not tell."""
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def nvml_handle(device: torch.device) -> Any | None:
    """Return NVML's handle of a CUDA device; ``None`` where NVML is unavailable."""
    return _handle(_uuid(device))


def _uuid(device: torch.device) -> str:
    """Return the name by which NVML knows a device; its own numbers ignore ``CUDA_VISIBLE_DEVICES``."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


@cache
def _handle(uuid: str) -> Any | None:
    """Return NVML's handle; ``None`` where there is no NVML (Jetson) or it does not know the card (MIG)."""
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError as error:
        logger.info("NVML is unavailable (%s); memory use of the GPU comes from the driver", error)
        return None
