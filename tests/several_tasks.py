"""Samples of several tasks, and small models that train them: numbers instead of images and texts."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

TASKS = ("a", "b", "c")
WIDTH = 4


def samples(count: int = 24, tasks: Sequence[str] = TASKS, scales: Sequence[float] = ()) -> list[dict[str, Any]]:
    """Vectors with a number to learn, of tasks in turn; the first entry names the sample."""
    generator = torch.Generator().manual_seed(3)
    made = []
    for number in range(count):
        task = number % len(tasks)
        x = torch.randn(WIDTH, generator=generator, dtype=torch.float64)
        x[0] = number / count
        target = (x.sum() + task) * (scales[task] if scales else 1.0)
        made.append({"x": x, "target": target, "task_type": tasks[task]})
    return made


class Collate:
    """Makes batches with ``task_ids``, and with what they say for people."""

    def __init__(self, tasks: Sequence[str] = TASKS) -> None:
        self.tasks = tuple(tasks)

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "x": torch.stack([row["x"] for row in rows]),
            "target": torch.stack([row["target"] for row in rows]),
            "task_ids": torch.tensor([self.tasks.index(row["task_type"]) for row in rows]),
            "metadata": [{"task_type": row["task_type"]} for row in rows],
        }


class Heads(nn.Module):
    """A trunk that all tasks train, and a head for each; it says the loss of each sample."""

    def __init__(self, tasks: int = 3, seed: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.trunk = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Dropout(dropout)).double()
        self.heads = nn.Linear(8, tasks).double()

    def forward(self, x: Tensor, target: Tensor, task_ids: Tensor) -> dict[str, Tensor]:
        predicted = self.heads(self.trunk(x)).gather(1, task_ids.unsqueeze(1)).squeeze(1)
        losses = (predicted - target).square()
        return {"loss": losses.mean(), "sample_losses": losses, "logits": predicted}


class SeparateHeads(Heads):
    """Heads of a layer each, so that the last layer in common is the trunk's."""

    def __init__(self, tasks: int = 3, seed: int = 0, dropout: float = 0.0) -> None:
        super().__init__(tasks, seed, dropout)
        self.heads = nn.ModuleList([nn.Linear(8, 1).double() for _ in range(tasks)])  # type: ignore[assignment]

    def forward(self, x: Tensor, target: Tensor, task_ids: Tensor) -> dict[str, Tensor]:
        hidden = self.trunk(x)
        every = torch.cat([head(hidden) for head in self.heads], 1)  # type: ignore[attr-defined]
        losses = (every.gather(1, task_ids.unsqueeze(1)).squeeze(1) - target).square()
        return {"loss": losses.mean(), "sample_losses": losses}
