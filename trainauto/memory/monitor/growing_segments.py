"""Expandable segments, where torch was loaded before anything said so in its environment."""

import logging
import os
import platform

import torch

from trainauto.core.process import GROWING, own_allocator_settings
from trainauto.core.units import MIB

logger = logging.getLogger(__name__)


def let_segments_grow(device: torch.device) -> None:
    """Have torch's CUDA allocator grow its segments in place from here on, on Linux; the user's own settings stay.

    :func:`~trainauto.core.process.use_expandable_segments` does so before torch is loaded. Here torch is loaded
    already, and its runtime setter does it: what lies on the card keeps its segments, and what comes takes such ones.
    """
    if device.type != "cuda" or platform.system() != "Linux" or own_allocator_settings(os.environ):
        return
    if settings_in_force():
        return  # the environment came in time, or code of the user was here before
    torch._C._accelerator_setAllocatorSettings(GROWING)  # from torch 2.11 on
    if before := torch.cuda.memory_reserved(device):
        logger.info(
            "torch's expandable segments are switched on; %.0f MiB of the card lie in fixed ones since before. "
            "Call trainauto.set_environment() before torch is imported to have them from the start",
            before / MIB,
        )


def settings_in_force() -> str:
    """Return what torch's allocator was set to, by the environment or at run time; empty for its defaults."""
    read = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    if read is not None:
        return str(read())
    settings = torch.cuda.memory._snapshot()["allocator_settings"]  # pragma: no cuda
    return str(settings["PYTORCH_CUDA_ALLOC_CONF"]) or (GROWING if settings["expandable_segments"] else "")
