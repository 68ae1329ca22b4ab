"""The page of the comparison of fine-tuning: what it says follows from the figures (finetune.py runs for minutes)."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))

from finetune_page import furthest, is_kept, page, roughness, steady_rate

FACTS = {"command": "c", "date": "d", "machine": "m", "torch": "2", "transformers": "5", "trl": "1", "note": ""}
FACTS |= {"samples": 64, "held_back": 9, "step": 16, "budget_mib": 144, "words": 4096, "weights_m": 1.6, "repeats": 3}


def record(method: str, **changes: Any) -> dict[str, Any]:
    figures = {
        "method": method,
        "batch": int(method.split()[1]),
        "failure": None,
        "runs": 3,
        "failures": 0,
        "lost": 0,
        "ooms": 0,
        "samples_per_s": 5.0,
        "steady_per_s": 20.0,
        "steady_range": [19.0, 21.0],
        "start_s": 3.0,
        "use": 0.5,
        "most_use": 0.6,
        "padded": 1.0,
        "loss": 1.25,
        "loss_difference": 1e-7,
        "roughness": 0.5,
        "wall_s": 9.0,
        "cpu_s": 8.0,
    }
    return {**figures, **changes}


def result(*records: dict[str, Any]) -> dict[str, Any]:
    alone = [record("plain 1 1"), record("plain 4 4", steady_per_s=30.0, roughness=0.25)]
    return {"facts": FACTS, "records": list(records), "alone": alone}


def test_each_method_has_a_line_with_its_figures() -> None:
    text = page(result(record("plain 4 16", ooms=2), record("ours 1 16", batch=4)))
    assert "| Trainer, 4 a pass | 4 | 5.0 | 20.0 (19.0 to 21.0) | 50% | 60% | 2 | 0 of 3 | 1.2500 | 1.0e-07 |" in text
    assert "ours ran passes with room for 4 of the largest, out of memory 0 times" in text


def test_a_method_that_died_has_no_speed_and_no_loss_and_is_named() -> None:
    died = record("plain 8 16", failure="RuntimeError: no memory. More", failures=3, lost=40, use=None, most_use=0.0)
    text = page(result(died, record("ours 1 16")))
    assert "| Trainer, 8 a pass | 8 |  |  |  |  | 0 | 3 of 3 |  |  | 9.0 | 8.0 |" in text
    assert "- Trainer, 8 a pass: 40 conversations untrained, RuntimeError: no memory\n" in text


def test_whoever_was_faster_is_named() -> None:
    faster = record("trl 4 16", samples_per_s=6.0)
    text = page(result(faster, record("ours 1 16", start_s=8.0), record("plain 1 16", steady_per_s=25.0)))
    assert (
        "Over the whole run, ours trained 5.0 conversations a second; faster were SFTTrainer, 4 a pass (6.0)." in text
    )
    assert (
        "In the steady state, ours trained 20.0 conversations a second; faster were Trainer, 1 a pass (25.0)." in text
    )
    assert "ours took 8.0 s of CPU, the Trainer 3.0" in text


def test_the_claim_stands_beside_what_was_measured() -> None:
    whole = (record("plain 1 16"), record("plain 4 16", steady_per_s=15.0, padded=1.5), record("ours 1 16"))
    text = page(result(*whole))
    assert "| steady samples/s, steps of 16 | 20.0 | 15.0 | 0.75 |" in text
    assert "| steady samples/s, a step each pass | 20.0 | 30.0 | 1.50 |" in text
    assert "| tokens computed for each that is there | 1.00 | 1.50 | 1.50 |" in text
    assert "| loss from step to step, root mean square change | 0.500 | 0.250 | 0.50 |" in text


@pytest.mark.parametrize("changes", [{"failures": 1}, {"lost": 16}, {"loss_difference": 0.01}])
def test_an_end_a_loss_or_another_lesson_of_ours_is_no_success(changes: dict[str, Any]) -> None:
    assert is_kept(result(record("ours 1 16"), record("plain 4 16", **changes)))
    assert not is_kept(result(record("ours 1 16", **changes)))


def test_the_page_says_that_nobody_imports_torchvision() -> None:
    assert not is_kept(result(record("ours 1 16"), record("trl 4 16", torchvision=True)))


def test_figures_of_a_curve() -> None:
    assert steady_rate([0.0, 9.0, 10.0, 11.0, 12.0], 16) == pytest.approx(16.0)  # the first quarter is left out
    assert roughness([9.0, 9.0, 1.0, 2.0, 0.0]) == pytest.approx(((1 + 4) / 2) ** 0.5)
    assert furthest([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)
