"""A training on the digits' tasks by one method, in a process of its own; what it took and what it learned.

    python scripts/bench/multitask_methods.py METHOD SAMPLES EPOCHS BUDGET_MIB RESULT.json

METHOD is ``fixed`` (transformers' Trainer, steps of 64 samples in one pass), ``accumulated`` (the same steps in passes
of 16), ``unbounded`` (ours, the same steps and no budget: what ours costs), ``dynamic`` (ours, steps of one pass as
large as the budget allows, up to 64), ``both`` (ours, steps of 64 in as few passes as the budget allows), ``together``
(as ``both`` without a budget, with GradNorm, for accuracy), ``equal`` (the same with equal weights), or ``T1``, ``T2``,
``T3``: that task alone, as many of its samples as ``together`` has of it. A budget of 0 is none.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from trainauto.core.process import set_environment

set_environment()

import torch  # noqa: E402
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402

from trainauto.core.plan import BATCH_SIZE  # noqa: E402
from trainauto.core.units import MIB  # noqa: E402
from trainauto.integrations.huggingface.arguments import MemoryAwareTrainingArguments  # noqa: E402
from trainauto.memory.monitor.meter import MemoryMeter  # noqa: E402
from trainauto.tasks.multitask.accuracy import accuracy_by_task  # noqa: E402
from trainauto.tasks.multitask.batches.collator import HeterogeneousCollator  # noqa: E402
from trainauto.tasks.multitask.digits import DIGIT_TASKS, DigitTasks  # noqa: E402
from trainauto.tasks.multitask.digits_model import DigitsModel  # noqa: E402
from trainauto.tasks.multitask.losses.gradnorm import GradNormBalancer  # noqa: E402
from trainauto.tasks.multitask.losses.normalizer import EffectiveBatchSizeNormalizer  # noqa: E402
from trainauto.tasks.multitask.trainer import DynamicBatchingTrainer  # noqa: E402
from trainauto.tasks.multitask.trainer_data import predictor_for  # noqa: E402
from trainauto.tasks.text.training.tokenizers import train_tokenizer  # noqa: E402

STEP, PASS = 64, 16
"""Samples of a step, and of a forward pass of the methods that divide it."""
SHARES = {"T1": 0.4, "T2": 0.3, "T3": 0.3}
RATE, WIDTH, LAYERS = 2e-3, 64, 2
TEST_SAMPLES = 1500
ALPHA = 1.5
MARGIN = 0.10
QUALITY = ("together", "equal", *DIGIT_TASKS)
UNMEASURED_STEPS = 5
"""At the start of a run: first uses of everything."""


class Account(TrainerCallback):  # type: ignore[misc]
    """Notes CPU seconds, samples and peaks of the steps of a run."""

    def __init__(self, step_samples: int) -> None:
        self.step_samples = step_samples
        self.trainer: Any = None
        self.clock: list[tuple[float, int]] = []
        self.peaks: list[int] = []
        self.ooms = 0
        self.samples = 0
        self.largest_pass = 0

    def on_step_end(self, *_others: Any, **_options: Any) -> None:
        """Note a step."""
        memory = getattr(self.trainer, "memory", None)
        if memory is not None:
            record = memory.record
            self.samples += record.shape.samples
            self.ooms += record.ooms
            in_samples = BATCH_SIZE in record.plan  # packed batches are counted in what they cost
            size = record.plan.forward_batch_size if in_samples else record.shape.samples
            self.largest_pass = max(self.largest_pass, size)
            if record.peak is not None:
                self.peaks.append(record.peak.allocated)
        else:
            self.samples += self.step_samples
        self.clock.append((time.process_time(), self.samples))

    def result(self) -> dict[str, Any]:
        """Return what was noted: peaks in MiB, and speed behind the first steps."""
        begun = min(UNMEASURED_STEPS, len(self.clock) - 2)
        (start_s, before), (end_s, after) = self.clock[begun], self.clock[-1]
        # A run's first steps grow into memory that later ones use again.
        peaks = self.peaks[begun:]
        return {
            "samples_per_s": (after - before) / (end_s - start_s),
            "peak_mib": max(peaks) / MIB if peaks else None,
            "steps": len(self.clock),
            "largest_pass": self.largest_pass,
            "ooms": self.ooms,
        }


def measured_trainer(account: Account) -> type:
    """Return transformers' Trainer whose steps are seen by our meter."""
    meter = MemoryMeter(torch.device("cpu"))

    class Measured(Trainer):  # type: ignore[misc]
        def training_step(self, *others: Any, **options: Any) -> torch.Tensor:
            if not meter.baseline_bytes:
                meter.set_baseline()
            with meter.window() as window:
                loss: torch.Tensor = super().training_step(*others, **options)
            if window.reading is not None:
                account.peaks.append(window.reading.allocated)
            return loss

    return Measured


def data_of(method: str, samples: int) -> DigitTasks:
    """Return the training set of a method."""
    if method in DIGIT_TASKS:
        return DigitTasks(round(samples * SHARES[method]), shares={method: 1.0})
    return DigitTasks(samples, shares=SHARES)


def arguments(kind: type, epochs: float, **given: Any) -> Any:
    """Return what all Trainers are told, with what a method adds."""
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "logging_steps": 10_000}
    learning = {"learning_rate": RATE, "weight_decay": 0.1, "lr_scheduler_type": "cosine", "warmup_steps": 0.05}
    options = {"num_train_epochs": epochs, "remove_unused_columns": False, "seed": 1, **learning}
    return kind("unused", **{**quiet, **options, **given})


def stock(method: str, model: DigitsModel, data: Any, collate: Any, epochs: float) -> Account:
    """Train with transformers' Trainer."""
    account = Account(STEP)
    size = STEP if method == "fixed" else PASS
    account.largest_pass = size
    given = arguments(
        TrainingArguments, epochs, per_device_train_batch_size=size, gradient_accumulation_steps=STEP // size
    )
    kind = measured_trainer(account)

    def tensors(samples: list[Any]) -> dict[str, Any]:
        return dict(collate(samples))

    kind(model=model, args=given, train_dataset=data, data_collator=tensors, callbacks=[account]).train()
    return account


def ours(method: str, model: DigitsModel, data: Any, collate: Any, epochs: float, budget_mib: int) -> Account:
    """Train with ours."""
    account = Account(STEP)
    is_one_pass = method in ("unbounded", "dynamic")
    start = STEP if method == "unbounded" else PASS
    given = arguments(
        MemoryAwareTrainingArguments,
        epochs,
        per_device_train_batch_size=start,
        max_batch_size=STEP if method == "dynamic" else None,
        memory_budget=f"{budget_mib}MiB" if budget_mib and method in ("dynamic", "both") else None,
        memory_settings={"target_vram_usage": 1 - MARGIN},
        run_directory="",
    )
    trainer = DynamicBatchingTrainer(
        model,
        given,
        data,
        memory_predictor=predictor_for(model, data, collate, torch.device("cpu")) if given.memory_budget else None,
        batch_size_normalizer=EffectiveBatchSizeNormalizer(start, STEP, RATE),
        use_gradient_accumulation=not is_one_pass,
        balancer=GradNormBalancer(alpha=ALPHA) if method == "together" else None,
        data_collator=collate,
        callbacks=[account],
    )
    account.trainer = trainer
    trainer.train()
    return account


def main() -> None:
    method, samples, epochs, budget_mib, result = sys.argv[1:]
    torch.set_num_threads(1)
    data = data_of(method, int(samples))
    questions = DigitTasks(600, shares=SHARES)
    tokenizer = train_tokenizer((questions[place]["text"] for place in range(len(questions))), 320)
    collate = HeterogeneousCollator.of_dataset(data, tokenizer, tasks=DIGIT_TASKS)
    torch.manual_seed(1)
    model = DigitsModel(len(tokenizer), hidden_size=WIDTH, layers=LAYERS)
    failure, account = None, None
    try:
        if method in ("fixed", "accumulated"):
            account = stock(method, model, data, collate, float(epochs))
        else:
            account = ours(method, model, data, collate, float(epochs), int(budget_mib))
    except Exception as error:  # the method died of it: that is a result
        failure = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    figures = account.result() if account is not None else {"samples_per_s": 0.0}
    if method in QUALITY and failure is None:
        shares = {method: 1.0} if method in DIGIT_TASKS else SHARES
        test = DigitTasks(TEST_SAMPLES, part="test", shares=shares)
        figures["accuracy"] = accuracy_by_task(model, test, collate, DIGIT_TASKS)
    Path(result).write_text(json.dumps({"method": method, "failure": failure, **figures}))


if __name__ == "__main__":
    main()
