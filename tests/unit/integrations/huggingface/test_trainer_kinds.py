"""Kinds of models, batches and Trainers that a memory-aware Trainer trains."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import Trainer

from tests.trainers import LONGEST, VOCABULARY, Watched, arguments, rows, tiny_model, watched, weights
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.huggingface import MemoryAwareTraining
from trainauto.integrations.huggingface.loss import Weighing


def ragged_rows(samples: int = 30) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    made = []
    for number in range(samples):
        ids = torch.randint(0, VOCABULARY, (3 + number * 7 % (LONGEST - 3),), generator=generator)
        ids[0] = number
        made.append({"input_ids": ids, "labels": ids})
    return made


def padded(samples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    join, given = torch.nn.utils.rnn.pad_sequence, [sample["input_ids"] for sample in samples]
    return {
        "input_ids": join(given, batch_first=True),
        "attention_mask": join([torch.ones_like(row) for row in given], batch_first=True),
        "labels": join(given, batch_first=True, padding_value=-100),
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_budgets_of_tokens(tmp_path: Path, workers: int) -> None:
    """No batch is larger than its budget, neighbours in length share one, and each row comes once an epoch."""
    trainer = watched(
        tmp_path,
        tiny_model(),
        ragged_rows(),
        more={"data_collator": padded},
        tokens_per_batch=48,
        num_train_epochs=2,
        plans={5: Plan.of(tokens=90)},
        dataloader_num_workers=workers,
    )
    trainer.train()
    assert Counter(trainer.trained()[:30]) == Counter(trainer.trained()[30:]) == Counter(range(30))
    sizes = [part["input_ids"].numel() for _, part in trainer.parts]
    assert max(sizes[:5]) <= 48 < max(sizes[8:]) <= 90
    filled = sum(int(part["attention_mask"].sum()) for _, part in trainer.parts) / sum(sizes)
    assert filled > 0.85
    assert trainer.state.log_history[0]["tokens_per_batch"] == 45  # rows of the longest, 15


def test_tokens_and_accumulation_are_refused_together(tmp_path: Path) -> None:
    options = {"tokens_per_batch": 64, "gradient_accumulation_steps": 2}
    trainer = watched(tmp_path, tiny_model(), rows(), **options)
    with pytest.raises(InputError, match="tokens_per_batch are those of a step"):
        trainer.train()


def test_orders(tmp_path: Path) -> None:
    """Sequential ones, and those by length, which lie beside each other: the very longest first."""
    options: dict[str, Any] = {"more": {"data_collator": padded}, "per_device_train_batch_size": 3}
    one_by_one = watched(tmp_path, tiny_model(), ragged_rows(), train_sampling_strategy="sequential", **options)
    one_by_one.train()
    assert one_by_one.trained()[:30] == list(range(30))
    lengths = [len(row["input_ids"]) for row in ragged_rows()]
    grouped = watched(tmp_path, tiny_model(), ragged_rows(), group_by_length=True, num_train_epochs=2, **options)
    grouped.train()
    seen = grouped.trained()
    assert Counter(seen[:30]) == Counter(seen[30:]) == Counter(range(30))
    assert seen[:30] != seen[30:]
    assert lengths[seen[0]] == max(lengths)

    def padding(order: list[int]) -> int:
        return sum(3 * max(lengths[i] for i in order[at : at + 3]) for at in range(0, 30, 3)) - sum(lengths)

    assert padding(seen[:30]) < 0.75 * padding(one_by_one.trained()[:30])


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft's own, of transformers 5.23
def test_adapters_are_trained_and_resumed_alone(tmp_path: Path) -> None:
    """PEFT: weights of the base stay, checkpoints hold adapters."""

    def adapted() -> Any:
        torch.manual_seed(5)
        return get_peft_model(tiny_model(), LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))

    options: dict[str, Any] = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "save_strategy": "steps"}
    whole = watched(tmp_path, adapted(), rows(), save_steps=3, **options)
    before = weights(whole.model)
    whole.train()
    assert 0 < int((weights(whole.model) != before).sum()) < sum(p.numel() for p in whole.model.parameters()) / 4
    again = watched(tmp_path, adapted(), rows(), save_steps=99, **options)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert torch.equal(weights(again.model), weights(whole.model))


class OwnTrainer(Trainer):  # type: ignore[misc]
    """Like TRL's SFTTrainer: arguments of its own, and a loss that notes figures, which its log shows."""

    def __init__(self, *arguments: Any, noted: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._metrics: dict[str, list[float]] = {noted: []}

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **options: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **options)
        for figures in self._metrics.values():
            figures.append(outputs["logits"].detach().float().std().item())
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        means = {name: sum(values) / len(values) for name, values in self._metrics.items() if values}
        super().log({**logs, **means}, start_time)
        for values in self._metrics.values():
            values.clear()


class MemoryAwareOwnTrainer(MemoryAwareTraining, OwnTrainer):
    """A mixin rather than a copy."""


def test_trainers_of_others_become_memory_aware_by_a_mixin(tmp_path: Path) -> None:
    """Whose losses and logs are called; the weights are those of the class alone, where nothing changes size."""
    results = []
    for kind in (OwnTrainer, MemoryAwareOwnTrainer):
        net, given = tiny_model(), arguments(tmp_path, per_device_train_batch_size=20, max_steps=3)
        trainer = kind(model=net, args=given, train_dataset=rows(20), noted="spread")
        trainer.train()
        lines = [entry for entry in trainer.state.log_history if "loss" in entry]
        results.append((weights(net), [line["spread"] for line in lines]))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-4, atol=1e-6)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-4)


@pytest.mark.parametrize(
    ("options", "weighing"),
    [
        ({"bf16": True}, Weighing.SUM),
        ({"activation_checkpointing": True}, Weighing.SUM),
        ({"label_smoothing_factor": 0.1}, Weighing.SUM),
        ({"neftune_noise_alpha": 5.0}, Weighing.SUM),
        ({"optim": "adafactor"}, Weighing.SUM),
    ],
)
def test_settings_that_change_a_step(tmp_path: Path, options: dict[str, Any], weighing: Weighing) -> None:
    """Two steps of whole batches give the weights of the stock Trainer, to rounding: samples come in other orders."""
    results = []
    for kind in (Trainer, Watched):
        net = tiny_model()
        trainer = (
            watched(tmp_path, net, rows(20, ragged=True), kind=kind, per_device_train_batch_size=20, **options)
            if (kind is Watched)
            else Trainer(
                model=net,
                args=arguments(tmp_path, per_device_train_batch_size=20, **options),
                train_dataset=rows(20, ragged=True),
            )
        )
        trainer.train()
        results.append(weights(net))
    assert trainer.memory.loss.weighing is weighing
    if "neftune_noise_alpha" not in options:
        torch.testing.assert_close(results[0], results[1], rtol=2e-2 if "bf16" in options else 1e-3, atol=1e-3)
    assert torch.isfinite(results[1]).all()
