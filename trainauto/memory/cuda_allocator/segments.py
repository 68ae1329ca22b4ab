"""Whether torch's CUDA allocator took up expandable segments, as was asked before it was loaded."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from trainauto.core.process import ALLOCATOR_SETTINGS

logger = logging.getLogger(__name__)

Segments = Literal["native", "expandable"]
"""How torch's allocator takes memory from a card: piece by piece, or in segments that grow."""


def uses_expandable_segments(device: torch.device) -> bool:
    """Look at the segments of a CUDA device; the question takes 2 MiB of it where nothing is there yet.

    A driver or a platform without virtual memory management (Windows, some containers) ignores the setting.
    """
    if device.type == "cuda":  # pragma: no cuda
        if not torch.cuda.memory_reserved(device):
            torch.empty(1, device=device)
        segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        return any_expandable(segments, device.index or 0)
    return False


def any_expandable(segments: Sequence[Mapping[str, Any]], device_index: int) -> bool:
    """Say whether a snapshot of the allocator shows an expandable segment on a device."""
    return any(segment.get("device") == device_index and segment.get("is_expandable") for segment in segments)


def segments_of(device: torch.device) -> Segments | None:
    """Say how the allocator takes memory from a card, and warn where segments that grow were asked for in vain."""
    if device.type != "cuda":
        return None
    expandable = uses_expandable_segments(device)
    requested = any("expandable_segments:True" in os.environ.get(name, "") for name in ALLOCATOR_SETTINGS)
    if requested and not expandable:
        logger.warning("expandable segments were asked for, but this driver or platform does not give them")
    return "expandable" if expandable else "native"
