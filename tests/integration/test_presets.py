"""What fills in for a controller where the option file is silent: said in the log, kept with the run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_directory, tiny_options, train, write_options
from trainauto.cli import main

Write = Callable[..., Path]
NAME = "DynamicBatchSizeOptimizer"


def options(gt: Path, **changes: Any) -> dict[str, Any]:
    """Return options of a small run under a budget whose preset goes from 8 to 24 px and from 1 to 4 samples."""
    base = tiny_options(gt, memory={"cpu_budget": "90MiB"}, val={"val_enabled": False, "metrics": {}}, **changes)
    del base["datasets"]["val"]
    return base


def test_effective_values_are_said_and_kept_and_a_resume_reports_no_change(tmp_path: Path, write_images: Write) -> None:
    given = {"policy": "step", "min_lq_size": 32, "max_batch_size": 7}
    gt = write_images("gt", 3, (100, 110))
    file = write_options(tmp_path / "run.yml", options(gt, train={"training_automations": {NAME: given}}))
    done = train(file)
    assert done.returncode == 0, done.stderr
    run = run_directory(file)
    log = (run / "training.log").read_text()
    assert "memory preset: CPU 90MiB (computed from the budget), for keys that the option file does not set" in log
    assert "min_batch_size 1 (preset), max_batch_size 7 (file)" in log
    assert "min_lq_size 32 (file), max_lq_size 32 (preset 24, moved to suit the file)" in log
    kept = json.loads((run / "config.json").read_text())["training_automations"]
    assert kept[NAME]["max_lq_size"] == 32
    assert (kept[NAME]["adjustment_frequency"], kept[NAME]["enabled"]) == (100, True)
    assert {"target_vram_usage", "safety_margin", "min_batch_size", "objective", "max_adjustments"} < kept[NAME].keys()
    resumed = train(file, "--auto_resume", "--force_yml", "train:total_iter=14", "memory:cpu_budget=256MiB")
    assert resumed.returncode == 0, resumed.stderr
    changes = [line for line in (run / "training.log").read_text().splitlines() if "changed since" in line]
    assert {line.rpartition(": ")[2] for line in changes} == {"12 -> 14", "90MiB -> 256MiB"}, resumed.stdout
    assert len(changes) == 2
    assert "memory.cpu_budget: 90MiB -> 256MiB" in " ".join(resumed.stdout.split())
    item = f"train:training_automations:{NAME}:max_lq_size=48"
    resumed = train(file, "--auto_resume", "--force_yml", "train:total_iter=14", "memory:cpu_budget=256MiB", item)
    assert resumed.returncode == 0, resumed.stderr
    assert f"training_automations.{NAME}.max_lq_size: 64 -> 48" in " ".join(resumed.stdout.split())


def test_a_controller_without_a_limit_is_said_to_have_nothing_to_fill(tmp_path: Path, write_images: Write) -> None:
    automations = {"dynamic_batch_size_optimizer": {"max_lq_size": 16, "max_batch_size": 1}}
    changed = options(write_images("gt", 2), training_automations=automations)
    changed["memory"] = {}
    file = write_options(tmp_path / "run.yml", changed)
    done = train(file)
    assert done.returncode == 0, done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert said.count(f"{NAME} has no memory limit to follow") == 1
    assert "memory: {cpu_budget: 2GiB}" in said
    kept = json.loads((run_directory(file) / "config.json").read_text())["training_automations"][NAME]
    assert (kept["min_lq_size"], kept["min_batch_size"]) == (16, 1)


@pytest.mark.parametrize("is_nested", [False, True])
def test_contradictions_are_shown_where_they_stand(
    tmp_path: Path,
    write_images: Write,
    is_nested: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    section = {"training_automations": {NAME: {"max_lq_size": 16, "min_lq_size": 64}}}
    changed = options(write_images("gt", 2), **({"train": section} if is_nested else section))
    file = write_options(tmp_path / "run.yml", changed)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "-opt", "run.yml"]) == 2
    lines = file.read_text().splitlines()
    shown = next(line for line in lines if "max_lq_size" in line)
    place = f"run.yml:{lines.index(shown) + 1}:{shown.index('16') + 1}: "
    printed = capsys.readouterr().err
    what = "max_lq_size 16 is below min_lq_size 64; were they meant the other way round?"
    assert f"{place}automation '{NAME}': {what}\n    {shown}\n" in printed
    assert not (tmp_path / "experiments").exists()
