"""The bench of traces measures outside of any dispatch mode, and counts from there."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import trace_accuracy as bench
from trace_cases import small_cases

from trainauto.memory.tracing.phases import BACKWARD
from trainauto.memory.tracing.profiler_events import REST, MemoryEvent


def test_peaks_are_counted_above_what_was_made_before() -> None:
    before = [MemoryEvent(1000, REST, True), MemoryEvent(500, REST, False)]
    step = [
        MemoryEvent(-400, REST, True),
        MemoryEvent(300, REST, True),
        MemoryEvent(2000, BACKWARD, False),
        MemoryEvent(-2000, BACKWARD, False),
        MemoryEvent(50, BACKWARD, True),
    ]
    peaks = bench.peaks_of(before, step)
    assert (peaks.peak_bytes, peaks.phase_peaks_bytes) == (1000, {REST: 1000, BACKWARD: 950})
    assert peaks.allocator_peak_bytes == 500 + 900 + 2000
    assert peaks.sizes == [-400, 300, 50]


def test_real_steps_run_without_a_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace whose sums are new tensors, as under a mode, is found out."""
    case = next(case for case in small_cases(tmp_path) if case.name == "RRDBNet")
    row = bench.measure(case, torch.float32)["plans"][0]
    assert row["same_events"]
    assert abs(row["error"]) < 1e-4
    assert max(map(abs, row["phase_errors"].values())) < 1e-3
    assert row["allocator_bytes"] > row["measured_bytes"]

    monkeypatch.setattr("trainauto.memory.tracing.storage_tracker.sole_holders", dict)
    assert not bench.measure(case, torch.float32)["plans"][0]["same_events"]
