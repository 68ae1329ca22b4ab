"""A run that cannot begin is told so before it tries."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import tiny_options, write_options
from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.core.plan import BATCH_SIZE, Axis, Plan, shape_of
from trainauto.forecast import feasibility
from trainauto.forecast.feasibility import what_fits
from trainauto.forecast.traced_run import FakeRun
from trainauto.memory.cost.cost_model import CostModel
from trainauto.memory.cost.memory_forecast import MemoryForecast, PlanBytes
from trainauto.options.load import LoadedOptions, load_options

AXES = (Axis(LQ_SIZE, "px", 64, 128, power=2), Axis(BATCH_SIZE, "samples", 2, 8))
SMALLEST = Plan.of(batch_size=1, lq_size=64)


def options(folder: Path, **memory: Any) -> LoadedOptions:
    network = {"type": "compact", "num_feat": 32, "num_conv": 12}
    return load_options(write_options(folder / "run.yml", tiny_options(folder, network_g=network, memory=memory)))


def traced(loaded: LoadedOptions) -> PlanBytes:
    trace = FakeRun.of(loaded).trace(SMALLEST)
    return PlanBytes(trace.persistent_bytes, trace.peak_bytes, trace.phase_peaks_bytes, None, seconds=0.0)


class TracesHere:
    """What the process does, without the seconds that it takes to start one."""

    def __init__(
        self, file: Path, overrides: Sequence[str], *, segments: str | None, world_size: int, known: object
    ) -> None:
        assert not known
        self._loaded = load_options(file, overrides)

    def __enter__(self) -> "TracesHere":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def trace(self, plan: Plan) -> PlanBytes:
        assert plan == SMALLEST
        return traced(self._loaded)


def warned(loaded: LoadedOptions, share: float, caplog: pytest.LogCaptureFixture) -> str:
    """Return what is said under a limit of that share of what is expected."""
    foresight = MemoryForecast.of({(1, 64): traced(loaded)}, 1, 0.0)
    limit_bytes = int(share * CostModel(*foresight.peaks_on("cpu")).predict(shape_of(SMALLEST)))
    caplog.clear()
    answer = what_fits(loaded, foresight, AXES, "cpu", limit_bytes)
    warning = " ".join(message for message in caplog.messages if message.startswith("one sample of 64 px"))
    assert answer.fits is not bool(warning)
    assert answer.with_checkpointing is not ("does not fit either" in warning or "is already enabled" in warning)
    return warning


def test_nothing_is_said_where_it_fits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert warned(options(tmp_path), 1.01, caplog) == ""


def test_what_gradient_checkpointing_would_leave_is_traced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = warned(options(tmp_path), 0.99, caplog)
    assert "is expected to peak at" in warning
    assert "`memory: gradient_checkpointing: true` does that" in warning
    before, after = (float(warning.split(words)[1].split()[0]) for words in ("to peak at ", "checkpointing it is "))
    assert after < 0.8 * before
    monkeypatch.setattr(feasibility, "TraceProcess", TracesHere)
    warning = warned(options(tmp_path, allow_gradient_checkpointing=True), 0.99, caplog)
    assert "it is switched on when memory runs out" in warning
    assert "which does not fit either. Take a smaller network" in warned(options(tmp_path), 0.2, caplog)


def test_where_it_is_on_or_impossible_it_says_that(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert "is already enabled" in warned(options(tmp_path, gradient_checkpointing=True), 0.99, caplog)
    loaded = options(tmp_path)
    loaded.path.write_text(loaded.path.read_text().replace("num_conv: 12", "num_conv: 1"))
    assert "is not known (" in warned(loaded, 0.99, caplog)
