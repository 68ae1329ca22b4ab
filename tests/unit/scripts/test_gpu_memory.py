"""What the script about a card's memory makes of its figures; it was never run on a card."""

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "scripts" / "bench"))
from gpu_memory import summary_of, table_of  # noqa: E402

MIB = 2**20


def rows(workspaces: float, measured: bool = True) -> list[dict[str, Any]]:
    """Return plans of 100 MiB and 1 KiB a pixel, whose kernels take a share of it beside."""
    plans = []
    for batch, side in ((2, 32), (4, 64), (8, 64), (8, 128), (16, 128)):
        live = 100 * MIB + 1024 * batch * side**2
        figures = {"requested_bytes": live, "allocated_bytes": int(live * (1 + workspaces)), "reserved_bytes": 2 * live}
        plan = {"batch_size": batch, "lq_size": side, "micro_batches": 1}
        row = {"plan": plan, "phases": {"forward": live}, "live_bytes": live, "simulated_bytes": live}
        plans.append(row | (figures if measured else dict.fromkeys(figures)))
    return plans


def test_errors_are_told_apart() -> None:
    summary = summary_of(rows(workspaces=0.2), window_px=1)
    assert summary["live_error"] == 0
    assert summary["workspaces"] == pytest.approx(0.2, rel=1e-6)
    assert summary["reserved_error"] == pytest.approx(-0.5)
    assert -0.15 < summary["first_error"] < -0.05  # believed: at most 8 %
    assert all(abs(error) < abs(summary["first_error"]) / 2 for error in summary["corrected_errors"])


def test_what_nobody_measured_is_said_to_be_so() -> None:
    group = {"network": "SPAN", "format": "bf16", "segments": "native", "expandable_took_effect": None}
    assert summary_of(rows(0.2, measured=False), window_px=1) == {}
    dry = {"dry": True, "date": "", "machine": {}, "memory": [group | {"plans": rows(0.2, False)}], "training": []}
    page = table_of(dry)
    assert page.startswith("# DRY RUN on a CPU")
    assert page.count("not measured") == 6
    assert "%" not in page
