"""Trainings on several tasks under a memory budget that is real."""

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import only_in_acceptance
from tests.integration.commands import script

WORKER = Path(__file__).parent / "multitask_worker.py"
BUDGET_MIB = 96

pytestmark = [
    pytest.mark.skipif(platform.system() != "Linux", reason="a CPU budget is enforced on Linux only"),
    only_in_acceptance,
]


def result_of(what: str, folder: Path) -> dict[str, Any]:
    done = script(str(WORKER), what, str(folder), cwd=WORKER.parent, timeout_s=600)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_a_pipeline_grows_survives_and_leaves_its_files(tmp_path: Path) -> None:
    """A28, A42, A53, A60 to A64: passes grow to the budget, a step that runs out of memory counts once."""
    result = result_of("grown", tmp_path)
    assert set(result["samples"]) == {192}
    assert len(result["samples"]) == 15
    assert result["by_task"] == dict.fromkeys(("T1", "T2", "T3"), 960)
    assert max(result["passes"]) > 60
    assert result["ooms"] == [1]
    assert result["recoveries"] == [4]
    whole = [peak for place, peak in enumerate(result["peaks_mib"]) if place != 4]
    assert 0.5 * BUDGET_MIB < max(whole) <= 0.92 * BUDGET_MIB
    assert {"batch_metrics.json", "epoch_metrics.json", "training_report.json"} <= set(result["paths"])
    assert {"training_curves.png", "task_comparison.png"} <= set(result["paths"])
    assert set(result["accuracy"]) == {"T1", "T2", "T3"}
    assert sum(result["weights"].values()) == pytest.approx(3)
    assert {"eval_loss_T1", "eval_loss_T2", "eval_loss_T3"} <= result["metrics"].keys()


def test_a_pipeline_resumes_to_the_bit(tmp_path: Path) -> None:
    """Weights of the model and of tasks, and the metrics' files, which go on where they were."""
    whole = result_of("whole", tmp_path)
    assert len(whole["losses"]) == 18
    assert result_of("resumed", tmp_path) == whole
