"""Everything that is only for CUDA, over PyTorch's real allocator, on a card whose kernels do nothing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.simulated_card import PROGRAMS, ROOT, in_acceptance, on_card, simulated_card

__all__ = ["simulated_card"]

pytestmark = pytest.mark.usefixtures("simulated_card")

SMALL = {"card": "T4 16GB", "others": "15GiB"}
"""Memory runs out, and address space does not."""


def last_json(output: str) -> dict[str, float]:
    found = [line for line in output.splitlines() if line.startswith("{")]
    return json.loads(found[-1])


@pytest.mark.parametrize("expandable", [False, True], ids=["native", "expandable"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=in_acceptance) for seed in (2, 3, 4))])
def test_the_simulated_allocator_does_as_the_real_one(expandable: bool, seed: int) -> None:
    """Addresses, reserved bytes, flushes and out-of-memory errors are equal after each of 6,000 random events."""
    output = on_card("python", PROGRAMS / "random_allocations.py", str(seed), "6000", expandable=expandable, **SMALL)
    found = last_json(output)
    assert found["expandable"] is expandable
    assert min(found["out_of_memory"], found["retries"]) > 50
    assert found["allocations"] > 2000


@in_acceptance
@pytest.mark.parametrize("version", ["2.11.0", "2.12.0"])
@pytest.mark.parametrize("expandable", [False, True], ids=["native", "expandable"])
def test_older_releases_take_equal_blocks_by_other_rules(version: str, expandable: bool) -> None:
    command = ("python", PROGRAMS / "random_allocations.py", "5", "6000")
    found = last_json(on_card(*command, expandable=expandable, torch=version, **SMALL))
    assert found["torch"].startswith(version)
    assert found["retries"] > 50


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=in_acceptance) for seed in (2, 3, 4))])
def test_kernels_take_beside_their_results_what_traces_say(seed: int) -> None:
    output = on_card("python", PROGRAMS / "kernel_buffers.py", str(seed), "150", card="RTX 4090 24GB")
    assert len(last_json(output)) >= 7


def test_the_quick_start_fills_the_card_and_takes_what_was_predicted(tmp_path: Path) -> None:
    largest = "training_automations:DynamicBatchSizeOptimizer:max_batch_size=8"
    changes = ["train:total_iter=60", largest, f"path:experiments_root={tmp_path}", "logger:use_tb_logger=false"]
    options = ROOT / "options/train/quickstart.yml"
    output = on_card("python", ROOT / "train.py", "-opt", options, "--force_yml", *changes)
    assert "cuda:0 RTX 3060 (simulated) (12.0 GiB), fp32" in output
    assert re.search(r"^OOM +none$", output, re.MULTILINE)
    row = re.search(r"^ +(\d+)x(\d+) +60 +([\d.]+) MiB +([\d.]+) MiB", output, re.MULTILINE)
    assert row is not None, output[-3000:]
    assert (row[1], row[2]) == ("8", "48")
    assert float(row[3]) == pytest.approx(float(row[4]), rel=0.001)
    assert list(tmp_path.glob("quickstart/*/checkpoints/step_00000060/net_g_ema.safetensors"))


def test_a_loop_gives_way_to_another_program_and_comes_back() -> None:
    command = ("python", PROGRAMS / "loop_beside_a_neighbour.py", ROOT / "tests/simulated_card/neighbour.py")
    found = last_json(on_card(*command, card="T4 2GB"))
    assert found["beside"] < 0.7 * found["before"]
    assert found["after"] > 1.2 * found["beside"]
    assert found["errors"] <= 2


def test_the_doctor_sees_the_card_and_who_is_on_it() -> None:
    output = on_card("python", "-m", "trainauto", "doctor", card="RTX 4090 24GB", others="2GiB")
    assert "RTX 4090 (simulated)" in output
    assert re.search(r"^ok +cuda:0 memory 21\.\d+ GiB of 24\.00 GiB free", output, re.MULTILINE)


@in_acceptance
def test_text_files_train(tmp_path: Path) -> None:
    options = ROOT / "options/text/tiny_gpt.yml"
    changes = ["train:total_epochs=1", f"path:experiments_root={tmp_path}"]
    assert "completed" in on_card("python", ROOT / "train.py", "-opt", options, "--force_yml", *changes)


@in_acceptance
def test_several_tasks_train(tmp_path: Path) -> None:
    options = ROOT / "options/multitask/digits.yml"
    changes = ["train:total_epochs=1", f"path:experiments_root={tmp_path}"]
    output = on_card("python", ROOT / "train.py", "-opt", options, "--force_yml", *changes)
    assert "the model lies on cpu" not in output
    assert re.search(r"^completed ", output, re.MULTILINE)


def test_without_a_compiler_one_block_says_what_to_install(tmp_path: Path) -> None:
    """What a person sees on a fresh machine, read off the script itself: it needs no card."""
    code = (
        "import sys; sys.path.insert(0, 'scripts'); import shutil, simulated_card; "
        "shutil.which = lambda *a, **k: None; sys.exit(simulated_card.main(['run', '--here', '--', 'python']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "simulated card: the card is compiled, and g++ and nm is not here.",
        "  What to try: apt install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora), then run again.",
    ]
