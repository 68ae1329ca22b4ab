"""The comparison of plans by seconds: the option files of its runs, and its page."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))

from time_to_quality import OBJECTIVES, TASKS, Task, options_of, page

from trainauto.options.load import load_options

FILES = [task for task in TASKS if not task.is_script]


@pytest.mark.parametrize("task", FILES, ids=[task.name for task in FILES])
def test_every_run_has_options_that_can_be_read(task: Task, tmp_path: Path) -> None:
    for variant in ("file", f"batch {task.grid[-1]}", *OBJECTIVES):
        options = options_of(task, variant, 2, 1000, tmp_path / "cache", "cpu")
        file = tmp_path / "run.yml"
        file.write_text(yaml.safe_dump(options))
        loaded = load_options(file).options.model_dump(mode="json")
        assert loaded["manual_seed"] == 2
        assert loaded["memory"]["cpu_budget"] == task.budget, "one budget for all"
        controller = loaded["training_automations"].get("DynamicBatchSizeOptimizer", {})
        assert controller.get("objective") == (variant if variant in OBJECTIVES else None)
        batch = task.grid[-1] if variant.startswith("batch") else task.batch
        train = loaded["train"] if task.is_text else loaded["datasets"]["train"]
        assert train["tokens_per_batch" if task.is_text else "batch_size_per_gpu"] == batch


def test_the_page_pairs_goodput_with_the_others_by_seed() -> None:
    def run(variant: str, seed: int, score: float) -> dict[str, Any]:
        plan = {"batch_size": 4, "lq_size": 32, "micro_batches": 1}
        figures = {"samples": 9, "trained": 9, "seconds": 12.0, "steps": 3, "plan": plan, "peak_share": 0.5, "ooms": 0}
        return {"task": TASKS[0].name, "variant": variant, "seed": seed, "score": score, "baseline": 33.0, **figures}

    results = [run("file", 1, 34.0), run("file", 2, 34.5), run("goodput", 1, 34.2), run("goodput", 2, 34.4)]
    text = page(results, TASKS, dict.fromkeys(("command", "date", "machine", "python", "torch"), "x"))
    assert "+0.050 to `file` (better in 1 of 2)" in text
    assert "| goodput | 2 | 12.0 | 3 | batch 4 x 32 px | 9 | 50% | +1.300 (+1.200..+1.400) |" in text


def test_a_loop_of_its_own_is_given_what_it_is_to_train() -> None:
    (digits,) = (task for task in TASKS if task.is_script)
    options = options_of(digits, "goodput", 2, 1000, Path("cache"), "cpu")
    assert options == {
        "batch": digits.batch,
        "objective": "goodput",
        "samples": 1000,
        "seed": 2,
        "budget": digits.budget,
        "device": "cpu",
    }
    assert options_of(digits, "batch 16", 2, 1000, Path("cache"), "cpu")["objective"] is None
