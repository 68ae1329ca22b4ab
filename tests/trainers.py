"""Trainers of transformers on tiny models made of configurations: nothing from a hub."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback

from trainauto.core.plan import Plan
from trainauto.huggingface import MemoryAwareTrainer, MemoryAwareTrainingArguments

VOCABULARY, LONGEST = 40, 16


def tiny_model(dropout: float = 0.0, seed: int = 0, layers: int = 1) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": layers, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **sizes, attention_dropout=dropout))


def rows(samples: int = 20, *, ragged: bool = False) -> list[dict[str, Tensor]]:
    """Rows of tokens whose first names the sample; of ragged ones, some labels do not count."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for number in range(samples):
        ids = torch.randint(0, VOCABULARY, (LONGEST,), generator=generator)
        ids[0], labels = number, ids.clone()
        labels[0] = number
        if ragged:
            labels[2 + number % 12 :] = -100
        made.append({"input_ids": ids, "labels": labels})
    return made


class Regression(nn.Module):
    """Takes ``num_items_in_batch`` as transformers' own models for regression do, and no notice of it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def forward(self, x: Tensor, labels: Tensor | None = None, **_more: Any) -> dict[str, Tensor]:
        prediction = self.net(x)
        if labels is None:
            return {"logits": prediction}
        return {"loss": nn.functional.mse_loss(prediction, labels), "logits": prediction}


class Tagger(nn.Module):
    """A mean over labels, of a model that takes no ``num_items_in_batch``."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Embedding(VOCABULARY, 8), nn.Linear(8, VOCABULARY)).double()

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.net(input_ids)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Masked(Regression):
    """A mean over what its mask lets through, with a head that has learned nothing."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.net[-1].weight)

    def forward(self, x: Tensor, labels: Tensor | None = None, mask: Tensor | None = None, **_more: Any) -> Any:
        prediction = self.net(x)
        if labels is None or mask is None:
            return {"logits": prediction}
        return {"loss": ((prediction - labels) ** 2 * mask).sum() / mask.sum().clamp(min=1), "logits": prediction}


def masked_points(samples: int = 20) -> list[dict[str, Tensor]]:
    return [{**point, "mask": torch.ones(1) * (number % 4 % 3)} for number, point in enumerate(points(samples))]


def without_labels(*numbers: int) -> list[dict[str, Tensor]]:
    """Rows of which some have no label that counts."""
    made = rows(24, ragged=True)
    for number in numbers:
        made[number]["labels"] = torch.full_like(made[number]["labels"], -100)
    return made


def points(samples: int = 20) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(samples, 4, generator=generator, dtype=torch.float64)
    return [{"x": row, "labels": row[:1] * 3 + number} for number, row in enumerate(features)]


class Planned(TrainerCallback):
    """Asks for plans after steps, as a controller would."""

    def __init__(self, plans: dict[int, Plan]) -> None:
        self.plans = plans
        self.trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        if state.global_step in self.plans:
            self.trainer.memory.running.loader.update_plan(self.plans[state.global_step])


class Watched(MemoryAwareTrainer):
    """Notes every part of every step."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parts: list[tuple[int, dict[str, Tensor]]] = []

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        if model.training and torch.is_grad_enabled():
            kept = {name: leaf.clone() for name, leaf in inputs.items()}
            self.parts.append((self.state.global_step, kept))
        return super().compute_loss(model, inputs, *arguments, **options)

    def steps(self) -> list[list[dict[str, Tensor]]]:
        """The parts of each step."""
        return [[part for step, part in self.parts if step == number] for number in range(self.state.global_step)]

    def trained(self) -> list[int]:
        """The samples, by their first token, in the order in which they were trained."""
        return [int(row[0]) for _, part in self.parts for row in part["input_ids"]]


def arguments(folder: Path, **options: Any) -> MemoryAwareTrainingArguments:
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "run_directory": ""}
    return MemoryAwareTrainingArguments(str(folder), **{**quiet, "logging_steps": 1, "learning_rate": 1e-2, **options})


def watched(
    folder: Path,
    model: nn.Module,
    dataset: Sequence[Any],
    *,
    plans: dict[int, Plan] | None = None,
    kind: Callable[..., Any] = Watched,
    more: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    planned = Planned(plans or {})
    planned.trainer = kind(
        model=model, args=arguments(folder, **options), train_dataset=dataset, callbacks=[planned], **(more or {})
    )
    return planned.trainer


def weights(model: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])
