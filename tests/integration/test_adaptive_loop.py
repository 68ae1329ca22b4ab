"""Loops of one's own under a memory budget that is real."""

import json
import platform
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import only_in_acceptance
from tests.integration.commands import script
from trainauto.reporting.dashboard.page_file import page_in

WORKER = Path(__file__).parent / "adaptive_worker.py"
MIB = 2**20

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="a CPU budget is enforced on Linux only")


def result_of(what: str, *arguments: str) -> tuple[dict[str, Any], str]:
    done = script(str(WORKER), what, *arguments, cwd=WORKER.parent)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("trials", [6, pytest.param(50, marks=only_in_acceptance)])
def test_steps_that_run_out_of_memory_give_the_gradients_of_those_that_do_not(trials: int) -> None:
    """A GAN's steps from equal weights, in the forward and the backward pass of either objective."""
    result, _ = result_of("failures", str(trials))
    assert len(result["errors"]) == trials
    assert max(result["errors"]) < 1e-6
    assert max(result["losses"]) < 1e-6
    assert result["counted"] == [trials, 0]  # it is one batch, stepped again and again
    places = Counter(result["where"])
    everywhere = {f"{name} {half}" for name in ("maker", "judge") for half in ("forward", "backward")}
    assert set(places) <= everywhere
    assert len(places) >= (4 if trials >= 50 else 3)  # where memory ends is the process's own affair
    assert sum(places.values()) >= trials


@only_in_acceptance
def test_a_loop_grows_to_its_memory_and_loses_nothing() -> None:
    """The first batch has the plan that fits; two epochs, through workers."""
    result, log = result_of("grown")
    assert Counter(result["numbers"]) == Counter(list(range(36000)) * 2)
    assert result["ooms"] == 0
    assert "before the first batch" in result["reasons"][0]
    assert "measured before the first batch" in log
    target = 0.85 * 192 * MIB
    assert 0.9 * target < max(result["peaks"]) < 192 * MIB
    assert result["batches"][0] > 64 * 100


def test_a_budget_of_tokens_grows_to_its_memory() -> None:
    """Part 3: the tokens of a step are an axis like the crop."""
    result, _ = result_of("tokens")
    seen = result["seen"]
    assert sum(rows for rows, *_ in seen) == 2000
    assert all(rows * width <= tokens for rows, width, tokens, *_ in seen)
    assert sum(failures for *_, failures in seen) == 0
    peaks = [peak for *_, peak, _ in seen]
    assert 0.75 * 128 * MIB < max(peaks) <= 0.9 * 128 * MIB
    assert seen[0][2] > 128 * 20
    assert result["tokens"] < 1.2 * sum(8 + 7 * number % 120 for number in range(2000))  # hardly any padding


def test_a_closure_on_the_live_network_is_measured_and_the_log_says_so() -> None:
    """Two small steps tell what plans take; neither they nor plans that are tried train anything."""
    result, log = result_of("closure")
    assert "a loss calls a model that it was not given" in log
    assert "two small steps are measured instead" in log
    assert result["untouched"]
    assert result["ooms"] == 0
    assert result["first"] > 64 * 50
    assert 0.6 * 96 * MIB < max(result["peaks"]) < 96 * MIB


PORTED = """
import sys
from pathlib import Path

halving = torch.optim.lr_scheduler.StepLR(adam, 1, 0.5)
parts = {"model": model, "optimizer": adam, "scheduler": halving}
train(loop, parts, lambda epoch: print("epoch", epoch), int(sys.argv[1]), Path("saved.pt"))
print(f"{loop.progress.samples} samples, {adam.param_groups[0]['lr']:g}")
"""


def test_the_ten_lines_of_the_page_run_as_they_stand_and_leave_a_run(tmp_path: Path) -> None:
    """With a run directory added, which the command reports on."""
    text = (WORKER.parents[2] / "docs" / "own_loop.md").read_text(encoding="utf-8")
    example, ported, *_ = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "kept.py").write_text(example.replace("dataset,\n", 'dataset,\n    run_directory="runs/mine",\n'))
    made = example[: example.index("with loop:")]
    (tmp_path / "ported.py").write_text(made + ported + PORTED)

    def said(*words: str, afresh: bool = False) -> str:
        done = script(*words, cwd=tmp_path, afresh=afresh)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert said("ported.py", "1") == "epoch 0\n4000 samples, 0.0005\n"
    assert said("ported.py", "2") == "epoch 1\n8000 samples, 0.00025\n"  # and it resumed
    assert not (tmp_path / "runs").exists()
    kept = said("kept.py", afresh=True)
    assert re.search(r"^8000 samples, batch_size \d{2,4}, loss \d\.\d{3}, \d\d MiB$", kept, re.MULTILINE)
    assert "/8000 samples" in kept
    assert "completed   the loop has ended" in kept
    report = said("-m", "trainauto", "report", "runs/mine")
    assert "limit       64.0 MiB" in report
    assert "memory never ran out in training" in report
    config = json.loads((tmp_path / "runs" / "mine" / "current" / "config.json").read_text())
    assert config["objectives"] == {"classes": {"optimizer": "AdamW", "learning_rate": 0.001}}
    assert config["axes"][0]["maximum"] == 2048
    page = page_in(tmp_path / "runs" / "mine" / "current" / "dashboard.html")
    assert page["tiles"][0]["value"] == "8,000 of 8,000 samples"


LEFT_OPEN = """
import torch
from trainauto import AdaptiveLoop, ModelObjective

class Broken(torch.utils.data.Dataset):
    def __len__(self):
        return 20
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None and index > 15:
            raise ValueError("unreadable")
        return torch.ones(2)

net = torch.nn.Linear(2, 1)
objective = ModelObjective("fit", torch.optim.SGD(net.parameters(), 0.1), lambda model, batch: model(batch).mean())
loop = AdaptiveLoop(net, objective, Broken(), batch_size=4, num_workers=1)
for batch in loop.batches(1):
    loop.step(batch)
"""


def test_a_script_that_fails_with_workers_at_work_ends(tmp_path: Path) -> None:
    """The interpreter waited for workers that ignored its signal."""
    (tmp_path / "left_open.py").write_text(LEFT_OPEN)
    done = script("left_open.py", cwd=tmp_path, afresh=True, timeout_s=100)
    assert done.returncode == 1
    assert "ValueError: unreadable" in done.stderr
