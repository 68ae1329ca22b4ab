"""GradNorm in trainings of two tasks whose losses differ 1:100, beside equal weights."""

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.acceptance import only_in_acceptance
from tests.several_tasks import WIDTH, SeparateHeads
from tests.task_trainers import trainer
from trainauto.tasks.multitask.losses.gradnorm import GradNormBalancer

LOUDER = 100
"""How many times as large the second task's losses are."""


class Loud(SeparateHeads):
    """Two tasks that share 16 features, of which one is measured in other units."""

    def __init__(self, seed: int) -> None:
        super().__init__(2, seed)
        self.trunk = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh()).double()
        self.heads = nn.ModuleList([nn.Linear(16, 1).double() for _ in range(2)])

    def forward(self, x: Tensor, target: Tensor, task_ids: Tensor) -> dict[str, Tensor]:
        losses = super().forward(x, target, task_ids)["sample_losses"]
        losses = losses * torch.where(task_ids == 1, LOUDER, 1)
        return {"loss": losses.mean(), "sample_losses": losses}


def waves(seed: int, count: int = 200) -> list[dict[str, Any]]:
    """Each task learns a wave of its own; a part of it is noise, so that losses stay above 0."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, WIDTH, generator=generator, dtype=torch.float64)
    ways = torch.randn(2, WIDTH, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(count, generator=generator, dtype=torch.float64)
    return [
        {"x": x, "target": torch.sin(2 * x @ ways[number % 2]) + noise[number], "task_type": "ab"[number % 2]}
        for number, x in enumerate(rows)
    ]


def median_factor_and_progress(folder: Path, rate: float, seed: int, steps: int = 800) -> tuple[float, float]:
    """The median of gradient norms over their targets in the last 200 steps, and the sum of L_i / L_i(0)."""
    balancer = GradNormBalancer({"a": 1.0, "b": 1.0}, 1.5, learning_rate=rate)
    run = trainer(
        folder,
        Loud(seed),
        waves(seed),
        tasks=("a", "b"),
        balancer=balancer,
        per_device_train_batch_size=200,
        max_steps=steps,
        learning_rate=3e-2,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        logging_steps=steps,
        seed=seed,
        optim="adamw_torch",
    )
    run.train()
    looked_at = run.ended[steps - 200 :: balancer.every]
    factors = [math.exp(abs(math.log(factor))) for step in looked_at for factor in step["factors"].values()]
    first, last = run.ended[:1], run.ended[-4:]
    progress = sum(
        statistics.fmean(step["losses"][task] for step in last)
        / statistics.fmean(step["losses"][task] for step in first)
        for task in ("a", "b")
    )
    return statistics.median(factors), progress


@only_in_acceptance
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_norms_meet_their_targets_and_both_tasks_learn(tmp_path: Path, seed: int) -> None:
    """A24, A25, A52: within 20 % of the target, where equal weights are off by far; and both learn more together."""
    balanced, progress = median_factor_and_progress(tmp_path, 0.05, seed)
    equal, equal_progress = median_factor_and_progress(tmp_path, 0.0, seed)
    print(f"factor {balanced:.3f}, equal weights {equal:.1f}; sum of L/L0 {progress:.3f}, equal {equal_progress:.3f}")
    assert balanced < 1.2
    assert equal > 5
    assert progress < equal_progress
