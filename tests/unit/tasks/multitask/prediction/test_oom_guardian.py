"""Batches that fit, and recovery from those that did not."""

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from trainauto.core.errors import InputError
from trainauto.core.units import GIB, MIB
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.tasks.multitask.batches.collated_batch import CollatedBatch
from trainauto.tasks.multitask.prediction import oom_guardian
from trainauto.tasks.multitask.prediction.memory_predictor import MemoryPredictor
from trainauto.tasks.multitask.prediction.oom_guardian import OOMGuardian

CPU = torch.device("cpu")


class Held(MemoryMeter):
    """A meter of a process that holds so much."""

    def __init__(self, held_bytes: int = 0) -> None:
        super().__init__(CPU)
        self.held_bytes = held_bytes

    def now_bytes(self) -> int:
        return self.held_bytes


def run_out() -> None:
    """Ask for more than any machine has: what torch says then is the real thing."""
    torch.empty(2**50, dtype=torch.uint8)


@pytest.fixture
def guardian(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ten GiB, a tenth of which stays free, nothing in use."""
    monkeypatch.setattr(oom_guardian, "obtainable_bytes", lambda _device: 64 * GIB)
    return OOMGuardian("cpu", max_memory_mb=10 * 1024, predictor=MemoryPredictor("cpu"), meter=Held())


def test_a_batch_passes_if_it_leaves_the_margin_free(guardian: OOMGuardian) -> None:
    """A44: what is in use counts."""
    assert guardian.preflight_check(8.99)
    assert not guardian.preflight_check(9.01)
    guardian.meter.held_bytes = 2 * GIB  # type: ignore[attr-defined]
    assert guardian.preflight_check(6.99)
    assert not guardian.preflight_check(7.01)


def test_margins_are_shares() -> None:
    """A48: the source compared per cent with a share of 0.85, and warned from one per cent on."""
    with pytest.raises(InputError, match=r"a share from 0 to below 1 is needed, got 10\n.*10 per cent are 0.1"):
        OOMGuardian("cpu", memory_margin_percent=10)


@pytest.mark.parametrize("held", [0, 3 * GIB])
def test_the_safe_size_is_the_largest_whose_upper_quantile_fits(guardian: OOMGuardian, held: int) -> None:
    """A43: it needs no card, and counts what is in use."""
    guardian.meter.held_bytes = held  # type: ignore[attr-defined]
    safe = guardian.estimate_safe_batch_size("T1")

    def upper(samples: int) -> int:
        tasks = {"T1": samples}
        return guardian.predictor.predict_bytes(guardian.predictor.shape_of(tasks), tasks, quantile=0.99)

    assert safe > 0
    assert upper(safe) <= guardian.room_bytes() < upper(safe + 1)


def test_where_nothing_fits_that_is_said(guardian: OOMGuardian, caplog: pytest.LogCaptureFixture) -> None:
    guardian.meter.held_bytes = 9 * GIB - MIB  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING, "trainauto.tasks.multitask.prediction.oom_guardian"):
        assert guardian.estimate_safe_batch_size("T2") == 0
    assert "no batch of task 'T2' is safe: one sample may take" in caplog.text
    with pytest.raises(InputError, match="no sample is of task 'T7'"):
        guardian.estimate_safe_batch_size("T7")


def test_more_memory_than_there_is_counts_as_what_there_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(oom_guardian, "obtainable_bytes", lambda _device: 512 * MIB)
    with caplog.at_level(logging.WARNING):
        guardian = OOMGuardian("cpu", max_memory_mb=30000, meter=Held())
    assert guardian.limit_bytes == 512 * MIB
    assert "max_memory_mb=30000 is more than there is: 512 MiB count instead" in caplog.text
    assert OOMGuardian("cpu", meter=Held()).limit_bytes == 512 * MIB
    monkeypatch.setattr(oom_guardian, "obtainable_bytes", lambda _device: None)
    with pytest.raises(InputError, match="give a limit"):
        OOMGuardian("cpu", meter=Held())


@pytest.mark.parametrize("arguments", [{"max_memory_mb": 0}, {"max_reduction_steps": -1}])
def test_numbers_out_of_range_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        OOMGuardian("cpu", **arguments)


def test_only_running_out_of_memory_is_survived(guardian: OOMGuardian) -> None:
    """A46: the source swallowed every RuntimeError."""

    def faulty(forward: Callable[[], None]) -> None:
        try:
            forward()
        except RuntimeError:
            return

    def wrong_shapes() -> None:
        torch.ones(2, 3) @ torch.ones(2, 3)

    with guardian.protected_forward() as forward:
        run_out()
    assert forward.ran_out_of_memory
    assert "MiB more were refused" in forward.message
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), guardian.protected_forward() as forward:
        wrong_shapes()
    assert not forward.ran_out_of_memory
    faulty(wrong_shapes)  # goes on as if nothing were wrong
    with pytest.raises(KeyboardInterrupt), guardian.protected_forward():
        raise KeyboardInterrupt


def test_what_the_model_was_working_on_is_gone_after_recovery(guardian: OOMGuardian) -> None:
    seen: list[weakref.ref[Tensor]] = []

    def model() -> None:
        hidden = torch.ones(1000)
        seen.append(weakref.ref(hidden))
        run_out()

    gc.disable()
    try:
        with guardian.protected_forward():
            model()
        assert seen[0]() is None
    finally:
        gc.enable()


def test_a_batch_runs_in_halves_until_it_fits(guardian: OOMGuardian, caplog: pytest.LogCaptureFixture) -> None:
    sizes: list[int] = []

    def forward(part: dict[str, Any]) -> float:
        sizes.append(len(part["x"]))
        assert len(part["names"]) == len(part["x"])
        assert part["scale"] == 2
        if len(part["x"]) > 3:
            run_out()
        return float(part["x"].sum())

    batch = {"x": torch.arange(10), "names": list("abcdefghij"), "scale": 2}
    with caplog.at_level(logging.WARNING):
        parts = guardian.run_in_parts(forward, batch)
    assert sizes == [10, 5, 3, 3, 3, 1]
    assert [part.samples for part in parts] == [3, 3, 3, 1]
    assert sum(part.result for part in parts) == 45
    assert "10 samples at a time ran out of memory" in caplog.text


def test_parts_of_a_collated_batch_are_collated_batches(guardian: OOMGuardian) -> None:
    """What a loop does with its batches works for parts, too, and not only until memory runs out."""
    seen: list[str] = []

    def forward(part: CollatedBatch) -> None:
        moved = part.to("cpu")
        if len(moved["x"]) > 2:
            run_out()
        seen.extend(entry["name"] for entry in moved.metadata)

    batch = CollatedBatch({"x": torch.arange(4)}, [{"name": name} for name in "abcd"])
    guardian.run_in_parts(forward, batch)
    assert seen == list("abcd")
    assert len(batch.metadata) == len(batch["x"]) == 4


def test_a_batch_that_never_fits_fails_as_it_is(guardian: OOMGuardian) -> None:
    sizes: list[int] = []

    def forward(part: Tensor) -> None:
        sizes.append(len(part))
        run_out()

    with pytest.raises(RuntimeError, match="can't allocate memory"):
        guardian.run_in_parts(forward, torch.zeros(16))
    assert sizes == [16, 8, 4, 2]  # three halvings and no more
    with pytest.raises(ZeroDivisionError):
        guardian.run_in_parts(lambda part: 1 / 0, torch.zeros(16))
    with pytest.raises(InputError, match="one row a sample, not str"):
        guardian.run_in_parts(print, "batch")


def test_cleaning_up_frees_what_only_a_collection_finds() -> None:
    """A45: objects that hold each other, as tracebacks and frames do."""

    class Holder:
        def __init__(self) -> None:
            self.itself, self.tensor = self, torch.zeros(1024)

    guardian = OOMGuardian("cpu")
    gc.disable()
    try:
        held = weakref.ref(Holder())
        assert held() is not None
        assert guardian.emergency_cleanup() >= 0
        assert held() is None
    finally:
        gc.enable()
    assert guardian.predictor.tasks == ["T1", "T2", "T3"]  # README: without any, by the published figures
