"""The page of the comparison of batch finders: what it says follows from the figures (autobatch.py runs for hours)."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))

from autobatch_table import page, targets, with_references

FACTS = {"command": "c", "date": "d", "machine": "m", "torch": "2", "lightning": "1", "accelerate": "1"}
MIB = 2**20


def cell(method: str, **changes: Any) -> dict[str, Any]:
    figures = {
        "method": method,
        "network": "compact",
        "budget_mib": 100,
        "seed": 1,
        "failure": None,
        "batch": 9,
        "lq_size": 32,
        "ooms": 0,
        "ooms_after": 0,
        "changes": 1,
        "steps": 8,
        "seconds": 10.0,
        "lost_steps": 0,
        "typical_bytes": 80 * MIB,
        "largest_bytes": 81 * MIB,
    }
    return {**figures, **changes}


def test_every_column_says_who_is_ahead() -> None:
    peer = cell("bisection", ooms=3, changes=7, steps=5, seconds=9.0, lost_steps=12, typical_bytes=96 * MIB)
    text = page([cell("best"), cell("jump"), peer], FACTS)
    ahead = text.split("Where a peer is ahead")[1].split("##")[0]
    assert "- steps until settled: bisection (5)" in ahead
    assert "- use of the budget: bisection (96.0%)" in ahead
    for column in ("OOMs", "changes or trials", "steps lost"):
        assert column not in ahead
    assert "- in no column" in page([cell("best"), cell("jump")], FACTS)


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, 0),
        ({"changes": 4}, 2),
        ({"changes": 2}, 1),
        ({"steps": 13}, 1),
        ({"typical_bytes": 77 * MIB}, 1),
        ({"typical_bytes": 70 * MIB}, 2),
        ({"ooms": 1}, 1),
        ({"seconds": 12.0}, 1),
        ({"failure": "not settled"}, 1),
    ],
)
def test_a_missed_target_is_said(changes: dict[str, Any], missed: int) -> None:
    cells = [cell("best"), cell("jump", **changes), cell("bisection", seconds=11.0)]
    found = targets(with_references(cells))
    assert sum(not met for _, _, met in found) == missed
    assert page(cells, FACTS).count("| missed |") == missed  # a free crop: no cell


def test_a_method_that_died_is_no_success() -> None:
    text = page([cell("best"), cell("jump"), {**cell("accelerate"), "failure": "boom", "typical_bytes": 0}], FACTS)
    assert "| of them ended by an error | 0 | 1 |" in text
    assert "- accelerate: boom" in text
