"""The small model learns to name shapes, and by adapters to name them in other words (issue 20)."""

import json
import re
import resource
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from scripts.tiny_vlm import make_all
from tests.acceptance import only_in_acceptance
from tests.four_bits import has_bitsandbytes
from tests.integration.commands import command

FILES = Path(__file__).parents[2] / "options" / "finetune"
pytestmark = pytest.mark.timeout(1200)


def exact_answers(folder: Path, name: str) -> float:
    """Share of held-back pictures that a run's model names exactly."""
    done = command("test", f"training_output/{name}", "--answers", "0", cwd=folder, own_process=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"of 240 answers exact", done.stdout), done.stdout
    return float(json.loads((folder / "results" / name / "metrics.jsonl").read_text())["exact"])


@only_in_acceptance
@pytest.mark.skipif(sys.platform == "win32", reason="seconds of child processes")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_base_learns_and_adapters_teach_it_another_wording(tmp_path: Path, seed: int) -> None:
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    data = tmp_path / "tiny_vlm"
    data.mkdir()
    make_all(data, seed, 3200)
    shares = {}
    for name in ("tiny_base", "tiny_lora"):
        options = str(FILES / f"{name}.yml")
        words = ("train", "-opt", options, "--force_yml", f"manual_seed={seed}")
        done = command(*words, cwd=tmp_path, afresh=True, timeout_s=600)
        assert done.returncode == 0, done.stderr
        shares[name] = exact_answers(tmp_path, name)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    print(f"seed {seed}: {shares}, {seconds:.0f} s of CPU")
    assert shares["tiny_base"] >= 0.85
    assert shares["tiny_lora"] >= 0.9 * shares["tiny_base"]
    assert seconds <= 300


@only_in_acceptance
@pytest.mark.parametrize("name", ["fast_dev", "production", "low_memory", "debug"])
def test_the_published_examples_run(tmp_path: Path, name: str) -> None:
    """D27, D39 to D42, on the small model of the same family, with a step's figures in the log and answers at the end.

    Where bitsandbytes is installed, in 4 bits as the files say.
    """
    data = tmp_path / "tiny_vlm"
    data.mkdir()
    make_all(data, 0, 48, 24)
    aside = {"fast_dev": [], "production": ["dataset:val=tiny_vlm/val"], "low_memory": [], "debug": []}[name]
    overrides = [
        *([] if has_bitsandbytes else ["model:load_in_4bit=false"]),
        "model:name=tiny_vlm/model",
        "dataset:path=tiny_vlm/chats.jsonl",
        "device=cpu",
        "num_threads=1",
        *aside,
    ]
    options = str(FILES / f"{name}.yml")
    done = command("train", "-opt", options, "--force_yml", *overrides, cwd=tmp_path, afresh=True, timeout_s=600)
    assert done.returncode == 0, done.stderr
    is_packed = re.search(r"linear layers [\d.]+ \w+ in 4 bits", " ".join(done.stdout.split())) is not None
    assert is_packed == has_bitsandbytes
    run = tmp_path / "training_output" / name / "current"
    assert json.loads((run / "config.json").read_text())["model"]["load_in_4bit"] == has_bitsandbytes
    adapters = load_file(run / "checkpoints" / "epoch_0" / "adapter_model.safetensors")
    moved = [key for key, weight in adapters.items() if "lora_B" in key and weight.abs().max() > 0]
    assert len(moved) == len(adapters) // 2  # of each layer that was named
    log = json.loads((run / "training_log.json").read_text())
    assert log["termination_status"] == "auto_complete"
    assert all({"epoch", "step", "loss", "lr", "time"} == entry.keys() for entry in log["losses"])
    epochs = {"fast_dev": 2, "production": 5, "low_memory": 5, "debug": 1}[name]
    assert len(list((run / "checkpoints").glob("epoch_*"))) == epochs
    answered = command("test", str(run.parent), "tiny_vlm/val", "--answers", "1", cwd=tmp_path, own_process=True)
    assert answered.returncode == 0, answered.stderr
    assert "of 24 answers exact" in answered.stdout
