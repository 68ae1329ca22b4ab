"""Reading memory: of the CUDA caching allocator, or of this process where there is none."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from trainauto.core.records import PeakReading


class Window:
    """A span of the run whose peak is wanted; ``reading`` is there once it has ended."""

    reading: PeakReading | None = None


class MemoryMeter:
    """Peaks of named windows on one device.

    Args:
        device: the device this process trains on.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @contextmanager
    def window(self) -> Iterator[Window]:
        """Measure what the block takes. On CUDA the peak counters start afresh, so windows must not nest."""
        window = Window()
        if self.device.type == "cuda":  # pragma: no cuda
            torch.cuda.reset_peak_memory_stats(self.device)
            retries = torch.cuda.memory_stats(self.device).get("num_alloc_retries", 0)
            yield window
            window.reading = self._cuda_reading(retries)
        else:
            yield window
            resident = resident_bytes()
            window.reading = PeakReading(allocated=resident) if resident is not None else None

    def _cuda_reading(self, retries_before: int) -> PeakReading:
        statistics = torch.cuda.memory_stats(self.device)
        free, total = torch.cuda.mem_get_info(self.device)
        return PeakReading(
            allocated=statistics["allocated_bytes.all.peak"],
            reserved=statistics["reserved_bytes.all.peak"],
            device_used=total - free,
            limit=total,
            alloc_retries=statistics.get("num_alloc_retries", 0) - retries_before,
        )


def resident_bytes() -> int | None:
    """Return the resident memory of this process: now on Linux, its peak so far on macOS, ``None`` elsewhere."""
    if platform.system() == "Linux":
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if platform.system() == "Darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None
