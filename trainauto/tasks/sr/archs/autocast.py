"""Computing in full precision inside of autocast."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """Switch autocast off on devices that have it (the meta device has none and refuses)."""
    if torch.amp.is_autocast_available(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
