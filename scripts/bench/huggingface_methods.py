"""One epoch of transformers' Trainer by one method, in a process of its own, under a budget that the system enforces.

    python scripts/bench/huggingface_methods.py METHOD SAMPLES BUDGET_MIB RESULT.json

All methods have the same network, texts, collator, optimizer, schedule and budget. The stock Trainer's and others'
``training_step`` runs in the window of our meter, which renews the limit before it as ours does; between steps the
limit is lifted. Nothing else is done for anybody.

METHOD is ``search``, which finds the largest fixed batch of the longest texts that trains, ``fixed N``, ``grouped N``
(by length), ``auto_find N`` (begins with N), ``dynabatch N`` (its first batch has the N longest texts), ``samples`` or
``tokens``: ours, in either unit.
"""

import importlib
import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainauto.core.process import set_environment

set_environment()

import torch  # noqa: E402
from epoch_account import EpochAccount  # noqa: E402
from held_trainer import held  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments  # noqa: E402

from trainauto.huggingface import MemoryAwareTrainer, MemoryAwareTrainingArguments  # noqa: E402
from trainauto.memory.monitor.release import release_memory  # noqa: E402

MIB = 2**20
VOCABULARY, WIDTH, LAYERS, LONGEST, MEDIAN = 512, 96, 2, 256, 40
FIRST_BATCH, LARGEST_BATCH = 8, 512
RATE = 1e-3
TRIAL_STEPS = 2


class Texts(Dataset[dict[str, Any]]):
    """Rows of lognormal length; the first two tokens of each are its number."""

    def __init__(self, samples: int) -> None:
        generator = random.Random(0)
        lengths = [min(LONGEST, max(4, round(generator.lognormvariate(math.log(MEDIAN), 0.8)))) for _ in range(samples)]
        self.rows = [
            [
                number // VOCABULARY,
                number % VOCABULARY,
                *((number + 7 * place) % VOCABULARY for place in range(2, length)),
            ]
            for number, length in enumerate(lengths)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return a sample."""
        return {"input_ids": self.rows[index], "labels": self.rows[index], "length": len(self.rows[index])}


def padded(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Return rows as a batch, padded to the longest."""
    longest = max(len(row["input_ids"]) for row in rows)

    def fill(name: str, value: int) -> Tensor:
        return torch.tensor([[*row[name], *[value] * (longest - len(row[name]))] for row in rows])

    masks = [{"mask": [1] * len(row["input_ids"])} for row in rows]
    mask = torch.tensor([[*row["mask"], *[0] * (longest - len(row["mask"]))] for row in masks])
    return {"input_ids": fill("input_ids", 0), "attention_mask": mask, "labels": fill("labels", -100)}


class Bench(EpochAccount):
    """What all methods share, and the account of what happened."""

    def __init__(self, samples: int, budget_mib: int) -> None:
        torch.set_num_threads(1)
        super().__init__(samples, budget_mib * MIB, of_largest=False)
        self.data = Texts(samples)
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
        )
        self.model = LlamaForCausalLM(config)
        self.begin()

    @property
    def tokens(self) -> int:
        """Tokens of the samples that are in the weights."""
        return sum(len(self.data.rows[number]) for number in self.trained)

    def numbers_of(self, inputs: Any) -> list[int]:
        """Return which samples a batch has."""
        numbers: list[int] = (inputs["input_ids"][:, 0] * VOCABULARY + inputs["input_ids"][:, 1]).tolist()
        return numbers

    def enforce(self, optimizer: torch.optim.Optimizer) -> None:
        """Put the budget in force."""
        row = min(self.data.rows, key=len)
        shortest = padded([{"input_ids": row, "labels": row}])
        self.enforce_budget(optimizer, lambda: self.model(**shortest).loss.backward())


def arguments(kind: type = TrainingArguments, **given: Any) -> Any:
    """Return what all Trainers are told, with what a method adds."""
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "logging_steps": 50}
    return kind("unused", **{**quiet, "num_train_epochs": 1, "learning_rate": RATE, **given})


def train(trainer_class: type, bench: Bench, given: Any, **options: Any) -> None:
    """Train an epoch."""
    trainer_class(model=bench.model, args=given, train_dataset=bench.data, data_collator=padded, **options).train()


def fixed(bench: Bench, size: int) -> None:
    """The stock Trainer with batches of one size."""
    train(held(bench), bench, arguments(per_device_train_batch_size=size))


def grouped(bench: Bench, size: int) -> None:
    """The same, neighbours by length together."""
    by_length = {"train_sampling_strategy": "group_by_length", "length_column_name": "length"}
    train(held(bench), bench, arguments(per_device_train_batch_size=size, **by_length))


def auto_find(bench: Bench, size: int) -> None:
    """``auto_find_batch_size``: each failure begins the epoch again, with a smaller batch and the weights there are."""

    class Counted(held(bench)):  # type: ignore[misc]
        def _inner_training_loop(self, *others: Any, **options: Any) -> Any:
            bench.restarts += self.begun
            return super()._inner_training_loop(*others, **options)

    train(Counted, bench, arguments(per_device_train_batch_size=size, auto_find_batch_size=True))


def dynabatch(bench: Bench, size: int) -> None:
    """Dynabatch's Trainer with its defaults, and its way out of running out of memory."""
    from dynabatch.sampler import DynaBatchSampler
    from dynabatch.trainer import make_dynabatch_trainer

    lengths = [len(row) for row in bench.data.rows]
    sampler = DynaBatchSampler(lengths, lengths, [4 * length for length in lengths], size, shuffle=True)
    given = arguments(per_device_train_batch_size=size)
    options = {"dynabatch_sampler": sampler, "oom_fallback": "split_retry"}
    train(make_dynabatch_trainer(held(bench)), bench, given, **options)


def ours(bench: Bench, **unit: Any) -> None:
    """Our Trainer; it holds the budget itself."""

    class Noted(MemoryAwareTrainer):  # type: ignore[misc]
        def training_step(self, model: Any, inputs: Any, *others: Any, **options: Any) -> Tensor:
            self.numbers = ()
            loss: Tensor = super().training_step(model, inputs, *others, **options)
            self.numbers = bench.numbers_of(inputs)  # what did not fit has been replaced in it
            return loss

    from transformers import TrainerCallback

    class Watched(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_others: Any, **_options: Any) -> None:
            record = trainer.memory.record
            bench.ooms += record.ooms
            bench.note(trainer.numbers, record.peak.allocated if record.peak else 0)

    given = arguments(
        MemoryAwareTrainingArguments,
        memory_budget=f"{bench.budget_bytes // MIB}MiB",
        run_directory="",
        per_device_train_batch_size=FIRST_BATCH,
        **unit,
    )
    trainer = Noted(
        model=bench.model, args=given, train_dataset=bench.data, data_collator=padded, callbacks=[Watched()]
    )
    trainer.train()


def by_tokens(bench: Bench, objective: str) -> None:
    """Our Trainer in padded tokens, from as many as the first batch has in the median."""
    unit = {"tokens_per_batch": FIRST_BATCH * MEDIAN, "max_tokens_per_batch": LARGEST_BATCH * LONGEST}
    ours(bench, **unit, memory_settings={"objective": objective})


def search(bench: Bench) -> None:
    """Find the largest batch of the longest texts that the stock Trainer trains, by trying, as a person does."""
    rows = bench.data.rows
    longest = sorted(rows, key=len, reverse=True)

    def fits(size: int) -> bool:
        bench.data.rows = longest[: TRIAL_STEPS * size]
        has_failed = False
        try:
            train(held(bench), bench, arguments(per_device_train_batch_size=size, max_steps=TRIAL_STEPS))
        except (RuntimeError, MemoryError):
            has_failed = True
        if has_failed:  # the traceback has held what the step had made
            bench.model.zero_grad(set_to_none=True)
            release_memory(torch.device("cpu"))
        return not has_failed

    low, high = 0, FIRST_BATCH
    while fits(high) and high < LARGEST_BATCH:
        low, high = high, 2 * high
    while high - low > max(1, low // 32):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    bench.batch = low
    bench.data.rows = rows


METHODS: dict[str, Callable[..., None]] = {
    "search": search,
    "fixed": fixed,
    "grouped": grouped,
    "auto_find": auto_find,
    "dynabatch": dynabatch,
    "samples": lambda bench: ours(bench, max_batch_size=LARGEST_BATCH),
    "tokens": lambda bench: by_tokens(bench, "memory"),
    "throughput": lambda bench: by_tokens(bench, "throughput"),
    "goodput": lambda bench: by_tokens(bench, "goodput"),
}


def main() -> None:
    method, samples, budget_mib, result = sys.argv[1:]
    name, *numbers = method.split()
    if name == "dynabatch":
        importlib.import_module("dynabatch.trainer")  # not on its time
    bench = Bench(int(samples), int(budget_mib))
    failure = None
    try:
        METHODS[name](bench, *map(int, numbers))
    except Exception as error:  # the method died of it: that is a result
        failure = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    record = bench.record(failure)
    Path(result).write_text(json.dumps({**record, "tokens_per_s": bench.tokens / record["seconds"]}))


if __name__ == "__main__":
    main()
