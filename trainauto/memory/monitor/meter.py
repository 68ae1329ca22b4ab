"""Reading memory: of the CUDA caching allocator, or of this process where there is none.

There is one true window a step. What it read travels in the step's record, and every consumer (controller, console,
curves) takes its own maxima from the records: none can disturb another.
"""

import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from trainauto.core.process import GROWING, limit_private_memory, own_allocator_settings, without_memory_limit
from trainauto.core.records import PeakReading
from trainauto.core.units import MIB
from trainauto.memory.monitor import budget, device_use

CLEAR_REFS = Path("/proc/self/clear_refs")


class Window:
    """A span of the run whose peak is wanted; ``reading`` is there once it has ended."""

    reading: PeakReading | None = None


class MemoryMeter:
    """Peaks of windows on one device. On a card, segments of torch's allocator grow in place from here on.

    On the CPU, use is counted from :meth:`set_baseline` on, as the budget is; before, and without one, it is that of
    the whole process.

    Args:
        device: the device this process trains on.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.limit_bytes: int | None = None
        self.total_bytes: int | None = None
        self.is_enforced = False
        self.baseline_bytes = 0
        self.baseline_data_bytes = 0
        self._retries = 0
        let_segments_grow(device)
        if device.type == "cuda":  # pragma: no cuda
            self.limit_bytes = self.total_bytes = torch.cuda.get_device_properties(device).total_memory

    @classmethod
    def of_this_process(cls) -> "MemoryMeter":
        """Return a meter of the card that this process computes on now; of the CPU where there is none."""
        if torch.cuda.is_available():  # pragma: no cuda
            return cls(torch.device("cuda", torch.cuda.current_device()))
        return cls(torch.device("cpu"))

    def set_budget(self, budget_bytes: int) -> bool:
        """Let this process use so much and no more; return whether that is enforced.

        On the CPU it is counted from what is held now.
        """
        if self.device.type == "cpu":
            budget.load_libraries()
        self.set_baseline()
        self.limit_bytes = budget_bytes
        self.is_enforced = budget.enforce(budget_bytes, self.device)
        return self.is_enforced

    def cap_at_available(self) -> None:
        """Have the allocator refuse what other processes do not leave, on CUDA.

        A driver that spills to system memory instead of failing makes a run slower by tens, without a message; what the
        allocator refuses is an ordinary failure, which the step recovers from. Call it when plans change.
        """
        if self.device.type == "cuda":  # pragma: no cuda
            statistics = torch.cuda.memory_stats(self.device)
            reserved_bytes = statistics["reserved_bytes.all.current"]
            available_bytes = device_use.available_bytes(
                device_use.used_bytes(self.device), reserved_bytes, self.total_bytes or 0, self.limit_bytes
            )
            torch.cuda.set_per_process_memory_fraction(available_bytes / (self.total_bytes or 1), self.device)

    def lift_limit(self) -> None:
        """Take back what :meth:`set_budget` and :meth:`cap_at_available` refuse.

        On the CPU the next window puts the budget in force again.
        """
        if self.device.type == "cuda":  # pragma: no cuda
            torch.cuda.set_per_process_memory_fraction(1.0, self.device)
        elif self.is_enforced:
            limit_private_memory(None)

    def set_baseline(self) -> None:
        """Count from what is held now (CPU)."""
        if self.device.type == "cpu" and platform.system() == "Linux":
            status = budget.status_bytes("RssAnon", "VmData")
            self.baseline_bytes, self.baseline_data_bytes = status["RssAnon"], status["VmData"]

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Lift a CPU's budget within the block; what the block leaves held is no part of it afterwards."""
        if self.device.type != "cpu" or platform.system() != "Linux":
            yield
            return
        before = budget.status_bytes("RssAnon", "VmData")
        with without_memory_limit():
            yield
        after = budget.status_bytes("RssAnon", "VmData")
        self.baseline_bytes += max(0, after["RssAnon"] - before["RssAnon"])
        self.baseline_data_bytes += max(0, after["VmData"] - before["VmData"])
        if self.is_enforced and self.limit_bytes is not None:
            budget.renew(self.limit_bytes, self.baseline_bytes)

    @contextmanager
    def window(self) -> Iterator[Window]:
        """Measure what the block takes. Windows must not nest: each starts the peak afresh."""
        window = Window()
        self.start_window()
        yield window
        window.reading = self.end_window()

    def start_window(self) -> None:
        """Start the peak afresh."""
        if self.device.type == "cuda":  # pragma: no cuda
            torch.cuda.reset_peak_memory_stats(self.device)
            self._retries = torch.cuda.memory_stats(self.device).get("num_alloc_retries", 0)
        elif platform.system() == "Linux":
            if self.is_enforced and self.limit_bytes is not None:
                budget.renew(self.limit_bytes, self.baseline_bytes)
            _lower_high_water_mark()

    def end_window(self) -> PeakReading | None:
        """Return what was read since :meth:`start_window`; ``None`` where the platform cannot tell."""
        if self.device.type == "cuda":  # pragma: no cuda
            return self._cuda_reading(self._retries)
        if platform.system() == "Linux":
            return self._process_reading()
        resident = resident_bytes()
        return PeakReading(resident, limit=self.limit_bytes, current=resident) if resident is not None else None

    def now_bytes(self) -> int:
        """Return what is held at this moment, counted as peaks are."""
        if self.device.type == "cuda":  # pragma: no cuda
            return torch.cuda.memory_allocated(self.device)
        if platform.system() == "Linux":
            return _private_now() - self.baseline_bytes
        return resident_bytes() or 0

    def _process_reading(self) -> PeakReading:
        status = budget.status_bytes("VmHWM", "RssAnon", "RssFile", "RssShmem", "VmData")
        # Pages of mapped files and of batches that workers share are not the step's; the budget does not count them.
        private = status["VmHWM"] - status["RssFile"] - status["RssShmem"]
        return PeakReading(
            allocated=max(0, private - self.baseline_bytes),
            reserved=max(0, status["VmData"] - self.baseline_data_bytes),
            limit=self.limit_bytes,
            current=max(0, status["RssAnon"] - self.baseline_bytes),
        )

    def _cuda_reading(self, retries_before: int) -> PeakReading:  # pragma: no cuda
        statistics = torch.cuda.memory_stats(self.device)
        used = device_use.used_bytes(self.device)
        return PeakReading(
            allocated=statistics["allocated_bytes.all.peak"],
            reserved=statistics["reserved_bytes.all.peak"],
            device_used=used,
            limit=self.limit_bytes,
            alloc_retries=statistics.get("num_alloc_retries", 0) - retries_before,
            current=statistics["allocated_bytes.all.current"],
            available=device_use.available_bytes(
                used, statistics["reserved_bytes.all.current"], self.total_bytes or 0, self.limit_bytes
            ),
        )


def _lower_high_water_mark() -> None:
    """Set the high-water mark of this process back to the present; it walks no pages. Some sandboxes refuse."""
    with suppress(OSError):
        handle = os.open(CLEAR_REFS, os.O_WRONLY)
        try:
            os.write(handle, b"5")
        finally:
            os.close(handle)


def _private_now() -> int:
    return budget.status_bytes("RssAnon")["RssAnon"]


def resident_bytes() -> int | None:
    """Return the resident memory of this process: now on Linux, its peak so far on macOS, ``None`` elsewhere."""
    if platform.system() == "Linux":
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if platform.system() == "Darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None


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
            "torch's expandable segments are enabled, but %.0f MiB of GPU memory were reserved in fixed segments "
            "before. Call trainauto.set_environment() before torch is imported to have them from the start",
            before / MIB,
        )


def settings_in_force() -> str:
    """Return what torch's allocator was set to, by the environment or at run time; empty for its defaults."""
    read = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    if read is not None:
        return str(read())
    settings = torch.cuda.memory._snapshot()["allocator_settings"]  # pragma: no cuda
    return str(settings["PYTORCH_CUDA_ALLOC_CONF"]) or (GROWING if settings["expandable_segments"] else "")
