"""Peaks of a real step, from what torch's profiler noted of its allocator."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainauto.memory.tracing.profiler_events import REST, MemoryEvent


@dataclass
class RealStep:
    """What torch's allocator gave for a step outside of any mode.

    Attributes:
        peak_bytes: highest live bytes of tensors.
        phase_peaks_bytes: the same by phase of the profiler.
        allocator_peak_bytes: highest bytes of everything that the allocator gave, kernels' own included.
        sizes: bytes of tensors in the order in which they were allocated, or freed (negative).
    """

    peak_bytes: int = 0
    phase_peaks_bytes: dict[str, int] = field(default_factory=dict)
    allocator_peak_bytes: int = 0
    sizes: list[int] = field(default_factory=list)


def peaks_of(before: Sequence[MemoryEvent], step: Sequence[MemoryEvent]) -> RealStep:
    """Return the peaks of a step, above nothing."""
    live = sum(event.size_bytes for event in before if event.is_tensor)
    taken = sum(event.size_bytes for event in before)
    real = RealStep(live, {REST: live}, taken, [event.size_bytes for event in step if event.is_tensor])
    for event in step:
        taken += event.size_bytes
        real.allocator_peak_bytes = max(real.allocator_peak_bytes, taken)
        if event.is_tensor and event.size_bytes > 0:
            # A phase may begin above all that it allocates.
            highest = max(real.phase_peaks_bytes.get(event.phase, 0), live, live + event.size_bytes)
            real.phase_peaks_bytes[event.phase] = highest
        live += event.size_bytes if event.is_tensor else 0
    real.peak_bytes = max(real.phase_peaks_bytes.values())
    return real
