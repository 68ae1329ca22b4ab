"""Whether torch's CUDA allocator took up expandable segments, and whether it will on a card that is not here."""

import logging
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from trainauto.core.process import ALLOCATOR_SETTINGS, GROWING, own_allocator_settings

logger = logging.getLogger(__name__)

Segments = Literal["native", "expandable"]
"""How torch's allocator takes memory from a card: piece by piece, or in segments that grow."""


def uses_expandable_segments(device: torch.device) -> bool:
    """Say whether new segments of a CUDA device grow; the question takes 2 MiB of it where none shows.

    A driver or a platform without virtual memory management (Windows, some containers) ignores the setting.
    """
    if device.type == "cuda":  # pragma: no cuda
        if not torch.cuda.memory_reserved(device):
            torch.empty(1, device=device)
        elif not _shows_expandable(device):  # what is there may be older than the setting: a new stream finds no cache
            with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
                torch.empty(1, device=device)
        return _shows_expandable(device)
    return False


def _shows_expandable(device: torch.device) -> bool:  # pragma: no cuda
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return any_expandable(segments, device.index or 0)


def any_expandable(segments: Sequence[Mapping[str, Any]], device_index: int) -> bool:
    """Say whether a snapshot of the allocator shows an expandable segment on a device."""
    return any(segment.get("device") == device_index and segment.get("is_expandable") for segment in segments)


def segments_of(device: torch.device) -> Segments | None:
    """Say how the allocator takes memory from a card, and warn where segments that grow were asked for in vain."""
    if device.type != "cuda":
        return None
    expandable = uses_expandable_segments(device)
    requested = any(GROWING in os.environ.get(name, "") for name in ALLOCATOR_SETTINGS)
    if requested and not expandable:
        logger.warning("expandable segments were asked for, but this driver or platform does not give them")
    return "expandable" if expandable else "native"


def planned_segments(environment: Mapping[str, str] | None = None, system: str | None = None) -> Segments:
    """Say how the allocator will take memory from a card that is not here: as settings and platform of here say.

    Args:
        environment: of the process; by default that of this one.
        system: as ``platform.system()`` says, which it is by default.
    """
    own = own_allocator_settings(os.environ if environment is None else environment)
    grows = GROWING in own if own else (system or platform.system()) == "Linux"
    return "expandable" if grows else "native"
