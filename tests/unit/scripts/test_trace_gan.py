"""Traces of steps with losses and a discriminator, against what torch's profiler says of real steps."""

import sys
from pathlib import Path

import pytest

from tests.seeded_towers import write_seeded_towers

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts" / "bench"))
from trace_gan import MOST_ERROR, PAIRS, rows


def test_live_bytes_of_two_combinations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole recipe, and the loss that compares with the averaged network; the script measures ten."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    write_seeded_towers(tmp_path, divisor=8)
    wanted = {("hsluvloss", "dunet"), ("ldlloss", "unetdiscriminatorsn")}
    chosen = [(losses, network_d) for losses, network_d in PAIRS if (losses[-1], network_d["type"]) in wanted]
    found = list(rows(chosen))
    assert len(found) == 2
    assert len({measured for _, _, measured, _ in found}) == 2
    assert all(abs(error) <= MOST_ERROR for *_, error in found)
