"""What an answer about cards says beside its figures."""

from pathlib import Path

import pytest
import torch

from tests.integration.commands import tiny_options, write_options
from trainauto.commands import run_plan
from trainauto.forecast.memory_forecast import MemoryForecast
from trainauto.forecast.trace_process import PlanBytes, TraceProcess
from trainauto.options.load import load_options


def traced() -> MemoryForecast:
    found = {}
    for batch, side in ((1, 8), (1, 64), (64, 8), (64, 64)):
        peak = 2**20 + 3000 * batch * side**2
        found[batch, side] = PlanBytes(2**20, peak, {"step": peak}, peak, 0.1)
    return MemoryForecast.of(found, 1, 0.4)


@pytest.mark.parametrize(("version", "notes"), [("2.13.0", 0), ("2.99.0", 1)])
def test_a_torch_that_predictions_were_not_checked_with_is_a_note(
    version: str, notes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_plan, "foresee", lambda *_: traced())
    monkeypatch.setattr(TraceProcess, "start", lambda _: None)
    monkeypatch.setattr(torch, "__version__", version)
    loaded = load_options(write_options(tmp_path / "run.yml", tiny_options(tmp_path / "none")))
    found = run_plan.answer(loaded, run_plan.chosen_cards(["T4"], []))
    said = [note for note in found.notes if note.startswith("Predictions were checked with torch")]
    assert len(said) == notes
    assert all(version in note for note in said)
