"""The self-test of traces: nothing differs here, and where torch and traces part it says in what."""

from collections.abc import Callable

import pytest
import torch

from trainauto.memory.tracing import trace_check
from trainauto.memory.tracing.trace_check import STEPS, differing_steps


def test_no_step_differs_under_this_torch() -> None:
    threads = torch.get_num_threads()
    assert differing_steps() == []
    assert torch.get_num_threads() == threads


def test_sums_that_a_trace_does_not_write_in_place_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainauto.memory.tracing.storage_tracker.sole_holders", dict)
    assert {"gradients that meet", "indexing", "gather", "a bias"} <= set(differing_steps()) < set(STEPS)


def test_a_step_that_cannot_be_traced_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Callable[[], object]:
        return lambda: torch.rand(64, 64).nonzero()

    monkeypatch.setattr(trace_check, "STEPS", {"a size that follows data": make})
    assert differing_steps() == ["a size that follows data"]
