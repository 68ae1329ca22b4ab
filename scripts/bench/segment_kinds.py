"""The kinds of segments that the CUDA allocator takes from a card, and how a child process is told which."""

import os

from trainauto.core.process import ALLOCATOR_SETTINGS

SEGMENTS = ("native", "expandable")


def with_segments(segments: str) -> dict[str, str]:
    """Return the environment of a child whose allocator is set before torch is loaded."""
    inherited = {name: value for name, value in os.environ.items() if name not in ALLOCATOR_SETTINGS}
    # The first of the names is the one that torch 2.13 reads first (c10/core/AllocatorConfig.h).
    return {**inherited, ALLOCATOR_SETTINGS[0]: f"expandable_segments:{segments == 'expandable'}"}
