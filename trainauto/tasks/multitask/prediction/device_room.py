"""The device that is asked for, or the one there is, and the memory it has."""

import logging
from functools import cache

import torch

from trainauto.core.errors import InputError
from trainauto.core.free_memory import free_memory_bytes
from trainauto.memory.monitor import device_use

logger = logging.getLogger(__name__)


def usable_device(name: str) -> torch.device:
    """Return the device of a name; the CPU in place of a CUDA device on a machine without any, which is said once.

    Raises:
        InputError: it is the name of no device, or of a card beyond those there are.
    """
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError(f"device: '{name}' is none; write 'cuda:0' or 'cpu'") from None
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        _say_that_the_cpu_is_taken(name)
        return torch.device("cpu")
    count = torch.cuda.device_count()  # pragma: no cuda
    if (device.index or 0) >= count:  # pragma: no cuda
        raise InputError(f"device: '{name}' is not there; this machine has cuda:0 to cuda:{count - 1}")
    return torch.device("cuda", device.index or 0)  # pragma: no cuda


@cache
def _say_that_the_cpu_is_taken(name: str) -> None:
    logger.warning("%s is not there: memory is predicted and watched on the CPU instead. This is logged once.", name)


def obtainable_bytes(device: torch.device) -> int | None:
    """Return what this process may still take of a device's memory and what it holds already; ``None`` if unknown.

    Of a card, what other processes use is left out, and some headroom with it. On the CPU it is what the machine and
    the process's control group can still give (Linux), and what the process holds does not count.
    """
    if device.type == "cuda":  # pragma: no cuda
        total = torch.cuda.get_device_properties(device).total_memory
        reserved = torch.cuda.memory_reserved(device)
        return device_use.available_bytes(device_use.used_bytes(device), reserved, total, None)
    return free_memory_bytes()
