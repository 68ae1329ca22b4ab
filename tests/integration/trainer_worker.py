"""Trainers under a real memory budget, each in a process of its own: the result is printed as JSON.

    python trainer_worker.py failures TRIALS | grown FOLDER | tokens FOLDER | evaluated FOLDER

``failures``: steps of four parts run out of memory for real, in the forward and the backward pass of any part, again
and again from the same weights. ``grown``: an epoch that begins with a small batch, with workers. ``tokens``: the same
under a budget of tokens. ``evaluated``: an evaluation that grows, and one that runs out of memory.
"""

import json
import logging
import random
import sys
from typing import Any

from trainauto import set_environment

set_environment()  # before torch is loaded, as for every CPU budget

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from trainauto.huggingface import MemoryAwareTrainer, MemoryAwareTrainingArguments  # noqa: E402

MIB = 2**20
VOCABULARY, WIDTH = 1024, 32
BUDGET_BYTES = 160 * MIB


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **sizes))


class Rows:
    """Rows of tokens, of which the first two name the sample; of ragged ones, lengths differ."""

    def __init__(self, samples: int, *, ragged: bool = False) -> None:
        self.lengths = [4 + 11 * number % (WIDTH - 3) if ragged else WIDTH for number in range(samples)]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        ids = torch.arange(index, index + self.lengths[index]) * 37 % VOCABULARY
        ids[0], ids[1] = index // 32, index % 32
        return {"input_ids": ids, "labels": ids}


def padded(samples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    rows = [sample["input_ids"] for sample in samples]
    mask = [torch.ones_like(row) for row in rows]
    join = torch.nn.utils.rnn.pad_sequence
    return {
        "input_ids": join(rows, batch_first=True),
        "attention_mask": join(mask, batch_first=True),
        "labels": join(rows, batch_first=True, padding_value=-100),
    }


class Noting(MemoryAwareTrainer):
    """Notes which samples are trained."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.numbers: list[int] = []

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        loss = super().compute_loss(model, inputs, *arguments, **options)
        if self.memory is not None and self.memory.loss.step_items is not None:
            self.numbers += (inputs["input_ids"][:, 0] * 32 + inputs["input_ids"][:, 1]).tolist()
        return loss


def all_there_is() -> list[Tensor]:
    """Return tensors that fill the memory there is, but for what a smaller part of a batch gives back."""
    taken: list[Tensor] = []
    for size in (4 * MIB, MIB // 2):
        try:
            while True:
                taken.append(torch.ones(size, dtype=torch.uint8))
        except RuntimeError as error:
            if "can't allocate memory" not in str(error):
                raise
    return taken


class Crowded(MemoryAwareTrainer):
    """A neighbour takes memory in the middle of a step, at one of its parts, and holds it to the step's end."""

    trials = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.ballast: Tensor | list[Tensor] | None = None
        self.at_part = self.room_bytes = 0
        self.after_forward = False
        self.passes: list[tuple[int, bool]] = []
        self.result: dict[str, Any] = {"errors": [], "where": [], "losses": [], "counted": []}

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        is_now = self.room_bytes and self.ballast is None and len(self.passes) == self.at_part
        if is_now and not self.after_forward:
            self.ballast = torch.ones(BUDGET_BYTES - self.room_bytes, dtype=torch.uint8)
        self.passes.append((len(inputs["input_ids"]), False))
        loss = super().compute_loss(model, inputs, *arguments, **options)
        self.passes[-1] = (len(inputs["input_ids"]), True)
        if is_now and self.after_forward:
            self.ballast = all_there_is()
        return loss

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Try the third step so many times; the loop's own attempt at it is undisturbed."""
        if self.state.global_step == 2 and self.memory is not None:
            generator, memory = random.Random(0), self.memory
            undisturbed = super().training_step(model, inputs, num_items_in_batch)
            expected, record = self.gradients(), memory.end_step(skipped=False)
            needed = record.peak.allocated if record is not None and record.peak is not None else 0
            for _ in range(self.trials):
                self.passes.clear()
                self.at_part, self.after_forward = generator.randrange(4), generator.random() < 0.5
                self.room_bytes = int(generator.uniform(0.3, 0.75) * needed)
                loss = super().training_step(model, inputs, num_items_in_batch)
                self.ballast, self.room_bytes = None, 0  # what is compared needs memory, too
                self.result["errors"].append(float((self.gradients() - expected).norm() / expected.norm()))
                self.result["losses"].append(abs(float(loss / undisturbed) - 1))
                self.result["where"] += self.first_failure()
                memory.end_step(skipped=False)
            self.result["counted"] = [memory.progress.steps, memory.progress.samples]
            self.result["needed_mib"] = needed / MIB
        return super().training_step(model, inputs, num_items_in_batch)

    def gradients(self) -> Tensor:
        return torch.cat([weight.grad.flatten() for weight in self.model.parameters() if weight.grad is not None])

    def first_failure(self) -> list[str]:
        """The half of a part, and the part, at which a step ran out of memory first."""
        first = next((place for place, (size, _) in enumerate(self.passes) if size < self.passes[0][0]), None)
        if first is None:
            return []
        return [f"{'backward' if self.passes[first - 1][1] else 'forward'} {first - 1}"]


def arguments(folder: str, **options: Any) -> MemoryAwareTrainingArguments:
    quiet: dict[str, Any] = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    budget = {"memory_budget": f"{BUDGET_BYTES // MIB}MiB", "logging_steps": 1}
    return MemoryAwareTrainingArguments(folder, **{**quiet, **budget, **options})


def failures(trials: str) -> dict[str, Any]:
    """Steps of four parts; at a rate of 0 weights stay what they are."""
    given = arguments(
        "unused",
        run_directory="",
        learning_rate=0.0,
        optim="sgd",
        max_grad_norm=0.0,
        per_device_train_batch_size=32,
        gradient_accumulation_steps=4,
        max_steps=3,
        memory_settings={"policy": "step"},
    )
    trainer = Crowded(model=model().double(), args=given, train_dataset=Rows(512))
    trainer.trials = int(trials)
    trainer.train()
    return {**trainer.result, "steps": trainer.state.global_step}


def grown(folder: str) -> dict[str, Any]:
    """Train an epoch with workers, from a batch of 8."""
    return _epoch(folder, Rows(4000), max_batch_size=4096, per_device_train_batch_size=8, dataloader_num_workers=2)


def tokens(folder: str) -> dict[str, Any]:
    """Train an epoch under a budget of tokens."""
    rows = Rows(4000, ragged=True)
    return _epoch(folder, rows, tokens_per_batch=256, max_tokens_per_batch=10**6, data_collator=padded)


def evaluated(folder: str) -> dict[str, Any]:
    """Evaluate in batches that grow; then begin with one that does not fit."""
    results = []
    for size in (16, 1200):
        given = arguments(
            folder,
            run_directory="",
            max_steps=2,
            eval_steps=1,
            eval_strategy="steps",
            per_device_eval_batch_size=size,
            eval_max_batch_size=1200,
        )
        trainer = Noting(model=model(), args=given, train_dataset=Rows(64), eval_dataset=Rows(1500))
        trainer.train()
        lines = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
        plans = [entry["step_samples"] for entry in trainer.state.log_history if "loss" in entry]
        results.append({"lines": lines, "plans": plans})
    return {"results": results}


def _epoch(folder: str, rows: Rows, data_collator: Any = None, **options: Any) -> dict[str, Any]:
    given = arguments(folder, num_train_epochs=1, **options)
    trainer = Noting(model=model(), args=given, train_dataset=rows, data_collator=data_collator)
    trainer.train()
    history = trainer.state.log_history
    lines = [entry for entry in history if "loss" in entry]
    return {
        "numbers": trainer.numbers,
        "steps": [line["step_samples"] for line in lines],
        "peaks": [line["peak_memory_mib"] for line in lines],
        "predicted": [line.get("predicted_memory_mib") for line in lines],
        "reasons": [entry["reason"] for entry in history if "reason" in entry],
        "ooms": sum(entry.get("out_of_memory", 0) for entry in history),
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    torch.set_num_threads(1)
    kind = {"failures": failures, "grown": grown, "tokens": tokens, "evaluated": evaluated}[sys.argv[1]]
    result = kind(sys.argv[2])
    print(json.dumps(result))
