"""The page of the comparison of loops of one's own: what it says follows from the figures."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))

from any_loop import is_kept, page

FACTS = {"command": "c", "date": "d", "machine": "m", "torch": "2", "lightning": "1", "accelerate": "1"}
FACTS |= {"note": "", "samples": 9, "budget_mib": 32, "repeats": 1}


def result(**changes: Any) -> dict[str, Any]:
    record = {
        "scene": "alone",
        "method": "ours",
        "name": "ours (AdaptiveLoop)",
        "runs": 1,
        "failures": 0,
        "failure": None,
        "batch": 74,
        "seconds": 3.0,
        "samples_per_s": 3.0,
        "ooms": 1,
        "restarts": 0,
        "thrown_away": 0,
        "twice": 0,
        "lost": 0,
        "use": 0.84,
    }
    overhead = {"ours/hand": [1.0, 1.004, 1.008], "again/hand": [0.99, 1.0, 1.01]}
    overhead |= {"pairs": 3, "block": 12, "step_ms": 90.0}
    return {"facts": FACTS, "epochs": [record | changes], "overhead": overhead}


def test_the_page_has_a_line_of_each_method() -> None:
    text = page(result())
    assert "| ours (AdaptiveLoop) | 74 | 3 | 84.0% | 1 | 0 | 0 | 0 | 0 | 0 of 1 |  |" in text
    assert "| ours/hand | 1.0040 | 1.0000 | 1.0080 |" in text


def test_a_crash_is_shown_as_one_without_a_speed() -> None:
    line = page(result(failure="RuntimeError: no memory", failures=1, lost=5, use=None))
    assert "| ours (AdaptiveLoop) | 74 |  |  | 1 | 0 | 0 | 0 | 5 | 1 of 1 | RuntimeError: no memory |" in line


@pytest.mark.parametrize("changes", [{"lost": 1}, {"twice": 1}, {"failures": 1}])
def test_a_sample_lost_or_a_crash_of_ours_is_no_success(changes: dict[str, int]) -> None:
    assert is_kept(result())
    assert not is_kept(result(**changes))
    assert is_kept(result(**changes, method="lightning"))


def test_ours_may_cost_one_per_cent() -> None:
    dear = result()
    dear["overhead"]["ours/hand"] = [1.0, 1.02, 1.03]
    assert not is_kept(dear)
