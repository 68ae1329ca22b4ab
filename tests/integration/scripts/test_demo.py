"""scripts/demo.py: a fixed batch that dies, a run that survives, is killed, and resumes to equal weights."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import demo
import demo_picture
import pytest

from tests.acceptance import only_in_acceptance
from tests.documents import ROOT
from trainauto.options.load import load_options


def plain_loop(folder: Path, batch_size: int) -> subprocess.CompletedProcess[str]:
    options = demo.OPTIONS.replace("batch_size_per_gpu: 32 ", f"batch_size_per_gpu: {batch_size} ")
    (folder / "demo.yml").write_text(options)
    command = [sys.executable, str(ROOT / "scripts" / "plain_loop.py"), "demo.yml", "3"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_fixed_batch_dies_of_its_budget_and_a_smaller_one_does_not(tmp_path: Path) -> None:
    large = plain_loop(tmp_path, 32)
    assert large.returncode == 1
    assert "can't allocate memory" in large.stderr
    assert "1/3" not in large.stdout
    small = plain_loop(tmp_path, 8)
    assert small.returncode == 0, small.stderr
    assert len(small.stdout.splitlines()) == 3


def test_the_option_file_of_the_demo_has_the_controller(tmp_path: Path) -> None:
    (tmp_path / "demo.yml").write_text(demo.OPTIONS)
    options: Any = load_options(tmp_path / "demo.yml").options
    assert options.training_automations.DynamicBatchSizeOptimizer
    assert options.datasets.train.batch_size_per_gpu == 32


@pytest.mark.parametrize(("resumed", "said"), [("ab", "the same"), ("cd", "different")])
def test_the_picture_shows_what_happened(resumed: str, said: str) -> None:
    whole = [{"step": step, "peak_mib": 50.0 + step, "plan": "batch 13 x 48 px"} for step in range(1, 7)]
    happened = {
        "budget_mib": 64,
        "steps": 6,
        "fixed": {"plan": "batch 32 x 48 px", "steps": 0},
        "killed": whole[:5],
        "whole": whole,
        "resumed_from": 4,
        "digests": (resumed * 32, "ab" * 32),
    }
    picture = demo_picture.draw(happened)
    assert said in picture
    assert "kill -9 after step 5" in picture
    assert "batch 32 x 48 px, fixed: out of memory in step 1" in picture
    assert picture.count("<polyline") == 3


@only_in_acceptance
def test_the_demo(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "demo.py"), "--here", "--picture", str(tmp_path / "demo.svg")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "the same" in (tmp_path / "demo.svg").read_text()
