"""What parts of a batch weigh, where samples have no labels or losses draw noise."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainers import Tagger, rows, tiny_model, watched, weights, without_labels
from trainauto.integrations.huggingface.loss import Weighing


@pytest.mark.parametrize("numbers", [(0,), (1, 2), (0, 1, 2)])
def test_samples_without_labels(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """Steps in four passes give the weights of steps in one, whichever samples were looked at."""
    results = []
    for size, passes in ((8, 1), (2, 4)):
        trainer = watched(
            tmp_path,
            Tagger(),
            without_labels(*numbers),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=passes,
            num_train_epochs=1,
            optim="sgd",
            learning_rate=0.5,
        )
        trainer.train()
        assert trainer.memory.loss.weighing is Weighing.ITEMS
        results.append(weights(trainer.model))
    torch.testing.assert_close(results[0], results[1])


class NoisyTagger(Tagger):
    """Its loss draws noise in evaluation as well, like that of a diffusion model."""

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        outputs = super().forward(input_ids, labels)
        return {**outputs, "loss": outputs["loss"] * (0.5 + torch.rand(()))}


@pytest.mark.parametrize("seed", range(6))
def test_losses_that_draw_noise_weigh_samples(tmp_path: Path, seed: int) -> None:
    trainer = watched(tmp_path, NoisyTagger(), rows(), max_steps=1, seed=seed)
    trainer.train()
    assert trainer.memory.loss.weighing is Weighing.SAMPLES


@pytest.mark.parametrize("seed", range(3))
def test_losses_that_draw_noise_and_divide_by_the_labels_of_a_step_sum(tmp_path: Path, seed: int) -> None:
    def loss_of(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        logits = outputs["logits"] + torch.randn_like(outputs["logits"])
        total = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)

    trainer = watched(tmp_path, tiny_model(), rows(), max_steps=1, seed=seed, more={"compute_loss_func": loss_of})
    trainer.train()
    assert trainer.memory.loss.weighing is Weighing.SUM
