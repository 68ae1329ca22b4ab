"""The example of the README, and those of docs/own_network.md and docs/images.md, run as they stand."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.documents import ROOT, block, read
from tests.integration.commands import run_directory, step_records, train


@pytest.fixture
def project(tmp_path: Path, write_images: Callable[..., Path]) -> Path:
    """What the stranger has: folders of images, the option file of the README at the path the README says."""
    write_images("data/train_hr", 3, (300, 320))
    write_images("data/val_hr", 1, (64, 72))
    file = tmp_path / "my_first.yml"
    file.write_text(block("README.md", "yaml").text)
    return file


SHORT = [
    "use_amp=false",  # without bfloat16 units a CPU emulates it, slowly
    "train:total_iter=3",
    "train:scheduler:milestones=[2]",
    "val:val_freq=3",
    "datasets:train:lq_size=24",
    "datasets:train:batch_size_per_gpu=2",
    "datasets:train:num_worker_per_gpu=0",
]


def test_own_folders_with_rrdbnet(project: Path) -> None:
    shallow = [*SHORT, "network_g:num_block=1"]
    done = train(project, "--force_yml", *shallow, own_process=False)
    assert done.returncode == 0, done.stderr
    assert "rrdbnet x4" in done.stdout
    run = run_directory(project, "my_first")
    assert len(step_records(run)) == 3
    for name in (
        "options.yml",
        "config.json",
        "training.log",
        "training_log.jsonl",
        "dashboard.html",
        "validation.jsonl",
        "validation",
    ):
        assert (run / name).exists(), name
    assert list((run.parent / "tb" / run.name).glob("events*"))
    weights = {path.name for path in (run / "checkpoints" / "step_00000003").iterdir()}
    assert weights == {"net_g.safetensors", "net_g_ema.safetensors", "state.pt", "sums.json"}
    more = train(project, "--auto_resume", "--force_yml", *shallow, "train:total_iter=4", own_process=False)
    assert more.returncode == 0, more.stderr
    assert len(step_records(run)) == 4


def test_a_network_of_ones_own(project: Path) -> None:
    (project.parent / "my_module.py").write_text(block("docs/own_network.md", "python").text)
    options = yaml.safe_load(project.read_text())
    options |= yaml.safe_load(block("docs/own_network.md", "yaml").text)
    options |= yaml.safe_load(block("docs/images.md", "yaml").text)
    project.write_text(yaml.safe_dump(options))
    changes = "training_automations:PlanSchedule:changes=[{step: 1, lq_size: 32, batch_size: 1}]"
    done = train(project, "--force_yml", *SHORT, changes, own_process=False)
    assert done.returncode == 0, done.stderr
    assert "my_net x4" in done.stdout
    assert "planned for step 1" in done.stdout


def test_scripts_of_the_readme_say_what_they_do() -> None:
    scripts = sorted(set(re.findall(r"python3? (scripts/\w+\.py)", read("README.md"))))
    assert len(scripts) == 4
    for script in scripts:
        done = subprocess.run(
            [sys.executable, str(ROOT / script), "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
