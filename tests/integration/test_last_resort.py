"""Gradient checkpointing when nothing else fits, under a real budget."""

import math
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.acceptance import only_in_acceptance
from tests.integration.commands import (
    latest_weights,
    merged,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from trainauto.build import build_run
from trainauto.engine.loop import train as train_run
from trainauto.engine.run import Run
from trainauto.options.load import load_options
from trainauto.tasks.sr.losses import LOSSES

BUDGET = "60MiB"
"""One crop of 96 px keeps some 80 MiB for the backward pass: 35 layers of 2.25 MiB; with checkpoints a third of it."""


def options(gt: Path, **memory: Any) -> dict[str, Any]:
    bounds = {"min_batch_size": 1, "max_batch_size": 4, "min_lq_size": 96, "max_lq_size": 96}
    return tiny_options(
        gt,
        network_g={"type": "compact", "num_feat": 64, "num_conv": 16},
        datasets={"train": {"lq_size": 96, "batch_size_per_gpu": 1}},
        train={"total_iter": 8},
        val={"val_enabled": False, "metrics": {}},
        memory={"budget": BUDGET, **memory},
        training_automations={"DynamicBatchSizeOptimizer": {"policy": "step", "adjustment_frequency": 4, **bounds}},
    )


@only_in_acceptance
@pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")
def test_proposed_or_switched_on(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    gt = write_images("gt", 2, (200, 200))
    file = write_options(tmp_path / "run.yml", options(gt))
    refused = train(file)
    assert refused.returncode == 1, refused.stdout
    assert "does not fit" in refused.stderr
    assert "`memory: allow_gradient_checkpointing: true` would continue" in refused.stderr
    assert "6 segments of a chain of 35 layers" in refused.stderr
    assert "about a third longer" in refused.stderr

    file = write_options(tmp_path / "run.yml", options(gt, allow_gradient_checkpointing=True))
    done = train(file)
    assert done.returncode == 0, done.stderr
    run = run_directory(file)
    records = step_records(run)
    assert [record["first_sample"] for record in records] == list(range(8))
    assert records[0]["ooms"] >= 1
    assert sum(record["ooms"] for record in records[1:]) == 0
    assert all(math.isfinite(loss) for record in records for loss in record["losses"].values())
    log = (run / "training.log").read_text()
    assert "gradient checkpointing is now enabled (net_g: 6 segments of a chain of 35 layers)" in log
    assert "with gradient checkpointing a step takes" in log


class FitsCheckpointed(nn.Module):
    """An L1 loss for which memory lasts only while the model of the run has gradient checkpointing on."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Run] = []

    def forward(self, output: Tensor, gt: Tensor) -> Tensor:
        if self.runs and not self.runs[-1].model.checkpoints_gradients:
            torch.empty(2**60, dtype=torch.uint8)  # the allocator's own refusal
        return (output - gt).abs().mean()


def test_weights_are_those_of_a_run_without_it_and_a_resume_keeps_it_on(
    tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loss = FitsCheckpointed()
    monkeypatch.setitem(LOSSES._entries, "l1loss", lambda: loss)
    bounds = {"min_batch_size": 4, "max_batch_size": 4, "min_lq_size": 16, "max_lq_size": 16}
    base = tiny_options(
        write_images("gt", 3, (60, 60)),
        network_g={"type": "rrdbnet", "num_feat": 8, "num_grow_ch": 4, "num_block": 2},
        val={"val_enabled": False, "metrics": {}},
        memory={"allow_gradient_checkpointing": True},
        training_automations={"DynamicBatchSizeOptimizer": {"policy": "step", **bounds}},
    )

    def trained(name: str, total_iter: int, fails: bool, **changes: Any) -> tuple[bool, list[int]]:
        """Train, or go on; return whether it began and how it was recovered from."""
        loss.runs.clear()
        file = write_options(
            Path("run.yml"), merged(base, {"name": name, "train": {"total_iter": total_iter}, **changes})
        )
        with build_run(load_options(file), auto_resume=True) as run:
            began_with = run.model.checkpoints_gradients
            if fails:
                loss.runs.append(run)
            train_run(run)
            assert run.model.checkpoints_gradients is (fails or began_with)
        return began_with, [record["ooms"] for record in step_records(run_directory(Path("run.yml").resolve(), name))]

    assert trained("failing", 2, fails=True) == (False, [1, 0])
    assert trained("failing", 4, fails=True) == (True, [1, 0, 0, 0])
    assert trained("plain", 4, fails=False) == (False, [0] * 4)
    assert trained("set", 4, fails=False, memory={"gradient_checkpointing": True}) == (True, [0] * 4)
    weights = [latest_weights(run_directory(Path("run.yml").resolve(), name)) for name in ("failing", "plain", "set")]
    assert weights[0] == weights[1] == weights[2] != {}
