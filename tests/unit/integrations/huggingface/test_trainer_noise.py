"""The gradient noise scale in a Trainer whose causal language model divides its loss by the labels of the step."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from tests.trainers import rows, tiny_model, watched
from trainauto.core.noise_scale import NoiseSample
from trainauto.integrations.huggingface.loss import Weighing


class Noting(TrainerCallback):
    """Keeps what each step says of its noise."""

    def __init__(self, trainer: Any, samples: list[dict[str, NoiseSample]]) -> None:
        self.trainer, self.samples = trainer, samples

    def on_step_end(self, *_others: Any, **_more: Any) -> None:
        self.samples.append(self.trainer.memory.record.noise)


def labels_of(part: dict[str, Tensor]) -> int:
    """Labels that count: the first place of a row has none before it."""
    return int((part["labels"][:, 1:] != -100).sum())


def squared_norm(model: nn.Module, part: dict[str, Tensor]) -> float:
    """Return that of the gradient of the mean over a part's labels."""
    model.zero_grad()
    model(**part).loss.backward()
    square = sum(float(weight.grad.square().sum()) for weight in model.parameters() if weight.grad is not None)
    model.zero_grad()
    return square


def test_parts_of_unequal_labels_weigh_by_their_share_of_the_step(tmp_path: Path) -> None:
    model = tiny_model()
    samples: list[dict[str, NoiseSample]] = []
    trainer = watched(
        tmp_path,
        model,
        rows(40, ragged=True),
        per_device_train_batch_size=4,
        max_batch_size=4,
        max_steps=6,
        learning_rate=0.0,
        optim="sgd",
        memory_settings={"objective": "goodput"},
    )
    trainer.add_callback(Noting(trainer, samples))
    trainer.train()
    assert trainer.memory.loss.weighing is Weighing.SUM
    measured = [(number, sample) for number, noise in enumerate(samples) for sample in noise.values()]
    assert measured
    for number, noise in measured:
        parts = trainer.steps()[number]
        assert len(parts) == noise.parts == 2
        labels = [labels_of(part) for part in parts]
        whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        expected = sum(
            share / sum(labels) * squared_norm(model, part) for share, part in zip(labels, parts, strict=True)
        )
        assert noise.parts_square == pytest.approx(expected, rel=1e-4)
        assert noise.square == pytest.approx(squared_norm(model, whole), rel=1e-4)
