"""The process meter and its budget, in a process of their own."""

import json
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")

CHILD = """
import json, mmap
import torch
from trainauto.memory.monitor.budget import calm_allocator
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.oom import is_out_of_memory

MIB = 2**20
figures = {}
calm_allocator()
torch.ones(MIB).sum()  # threads and scratch space are there
meter = MemoryMeter(torch.device("cpu"))
figures["enforced"] = meter.set_budget(100 * MIB)


def peak_mib(size_mib, times=1):
    with meter.window() as window:
        for _ in range(times):
            torch.ones(size_mib * MIB, dtype=torch.uint8)
    return window.reading.allocated / MIB


def fits(size_mib):
    with meter.window():
        try:
            torch.ones(size_mib * MIB, dtype=torch.uint8)
        except RuntimeError as error:
            assert is_out_of_memory(error), error
            return False
    return True


figures["peaks"] = [peak_mib(40), peak_mib(10), peak_mib(20, times=5), peak_mib(80)]
figures["fits"] = [fits(90), fits(110)]
reserved = mmap.mmap(-1, 60 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # room that nobody touches
figures["fits beside untouched"] = [fits(90), fits(110)]
held = torch.ones(50 * MIB, dtype=torch.uint8)
figures["fits beside touched"] = [fits(40), fits(60)]
with meter.window() as window:
    pass
figures["current"] = window.reading.current / MIB
print(json.dumps(figures))
"""


def test_peaks_are_of_their_window_and_the_budget_is_of_what_is_touched() -> None:
    """Fault 5: a stale peak is not carried into the next window (C05, E02, E08)."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["enforced"]
    # Each window begins afresh: a small peak after a large one is small.
    assert figures["peaks"] == pytest.approx([40, 10, 20, 80], abs=3)
    assert figures["fits"] == [True, False]
    assert figures["fits beside untouched"] == [True, False]
    assert figures["fits beside touched"] == [True, False]
    assert figures["current"] == pytest.approx(50, abs=3)
