"""Steps of a memory-aware Trainer against loops written by hand, without a memory budget."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau, StepLR

from tests.trainers import Regression, Watched, points, rows, tiny_model, watched, weights
from trainauto.core.plan import Plan

SAMPLES, EPOCHS = 20, 3
CHANGING = {4: Plan.of(batch_size=8, micro_batches=3), 9: Plan.of(batch_size=3, micro_batches=2)}


def by_hand(model: nn.Module, steps: list[list[Any]], rate: float = 1e-2, warmup: int = 0) -> list[float]:
    """Linear decay in samples, clipping at 1, as ``TrainingArguments`` have it; return the rates."""
    adam = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.0, fused=True)
    trained, rates = 0, []
    model.train()
    for parts in steps:
        share = (SAMPLES * EPOCHS - trained) / max(1, SAMPLES * EPOCHS - warmup)
        adam.param_groups[0]["lr"] = rate * (trained / warmup if trained < warmup else share)
        rates.append(adam.param_groups[0]["lr"])
        items = sum(int(part["labels"][:, 1:].ne(-100).sum()) for part in parts)
        adam.zero_grad()
        for part in parts:
            model(**part, num_items_in_batch=torch.tensor(items)).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        trained += sum(len(part["input_ids"]) for part in parts)
    return rates


@pytest.mark.parametrize("workers", [0, 2])
def test_weights_are_those_of_a_loop_over_the_same_parts_to_the_bit(tmp_path: Path, workers: int) -> None:
    """A16, D06: batches of 4, 8, then 3 samples in parts; every sample exactly once an epoch."""
    model, alone = tiny_model(), tiny_model()
    trainer = watched(
        tmp_path,
        model,
        rows(SAMPLES, ragged=True),
        plans=CHANGING,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=EPOCHS,
        dataloader_num_workers=workers,
    )
    trainer.train()
    steps = trainer.steps()
    sizes = [[len(part["input_ids"]) for part in parts] for parts in steps]
    assert [2, 2] in sizes
    assert [3, 3, 2] in sizes
    assert 3 in map(sum, sizes)
    seen = trainer.trained()
    epochs = [seen[start : start + SAMPLES] for start in range(0, len(seen), SAMPLES)]
    assert [Counter(epoch) for epoch in epochs] == [Counter(range(SAMPLES))] * EPOCHS
    assert epochs[0] != epochs[1]
    rates = by_hand(alone, steps)
    assert torch.equal(weights(model), weights(alone))
    assert [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry] == rates
    assert trainer.state.epoch == EPOCHS
    assert trainer.state.global_step == trainer.state.max_steps == len(steps)
    assert trainer.args.gradient_accumulation_steps == 2


def test_log_lines_say_samples_plans_and_peaks(tmp_path: Path) -> None:
    trainer = watched(tmp_path, tiny_model(), rows(), per_device_train_batch_size=4, num_train_epochs=2)
    result = trainer.train()
    lines = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert [line["samples"] for line in lines] == list(range(4, 41, 4))
    assert {line["forward_batch_size"] for line in lines} == {4}
    assert all(line["peak_memory_mib"] > 0 for line in lines)
    assert lines[-1]["epoch"] == 2
    expected = 40 / result.metrics["train_runtime"]
    assert result.metrics["train_samples_per_second"] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("model", "dataset"), [(Regression, points), (tiny_model, lambda: rows(ragged=True))])
def test_parts_weigh_what_they_are(tmp_path: Path, model: Any, dataset: Any) -> None:
    """Means over samples and over labels: a step in uneven parts is the step as a whole (SGD, fp64)."""
    results = []
    for passes in (1, 3):
        net = model().double()
        plans = {0: Plan.of(batch_size=5, micro_batches=passes)}
        trainer = watched(
            tmp_path,
            net,
            dataset(),
            kind=PlannedFromTheStart,
            plans=plans,
            per_device_train_batch_size=5,
            optim="sgd",
            num_train_epochs=2,
        )
        trainer.train()
        assert {len(parts) for parts in trainer.steps()} == {passes}
        results.append(weights(net))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)


class PlannedFromTheStart(Watched):
    """Begins with a plan of the test's own."""

    def get_train_dataloader(self) -> Any:
        batches = super().get_train_dataloader()
        planned = next(call for call in self.callback_handler.callbacks if hasattr(call, "plans"))
        batches.data.loader.update_plan(planned.plans[0])
        return batches


def test_the_stock_loss_is_the_one_that_is_logged(tmp_path: Path) -> None:
    """One step over everything, against the model itself."""
    net, dataset = tiny_model(), rows(6, ragged=True)
    trainer = watched(tmp_path, net, dataset, per_device_train_batch_size=2, gradient_accumulation_steps=3, max_steps=1)
    batch = {name: torch.stack([row[name] for row in dataset]) for name in dataset[0]}
    expected = net(**batch).loss.item()
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected, rel=1e-6)
    assert trainer.state.global_step == 1


def test_a_schedule_of_ones_own_counts_samples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A LambdaLR is a function of samples; so is warm-up, as a share or in steps."""
    net = tiny_model()
    sgd = torch.optim.SGD(net.parameters(), 0.5)
    own = LambdaLR(sgd, lambda samples: 1 / (1 + samples))
    trainer = watched(
        tmp_path, net, rows(), more={"optimizers": (sgd, own)}, per_device_train_batch_size=5, num_train_epochs=2
    )
    trainer.train()
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
    assert rates == [0.5 / (1 + samples) for samples in range(0, 40, 5)]
    assert "the LambdaLR given counts samples, 40 in this run" in caplog.text


def test_schedules_that_count_steps_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that follows a metric counts nothing."""
    for kind, more in ((StepLR, {"step_size": 5}), (ReduceLROnPlateau, {})):
        net = tiny_model()
        sgd = torch.optim.SGD(net.parameters(), 0.5)
        optimizers = {"optimizers": (sgd, kind(sgd, **more))}
        watched(tmp_path, net, rows(), more=optimizers, num_train_epochs=1).train()
    assert "StepLR counts steps" in caplog.text
    assert "ReduceLROnPlateau" not in caplog.text


def test_numbers_of_steps_in_schedules_are_of_the_first_steps_samples(tmp_path: Path) -> None:
    """Decay in steps of five samples; warm-up in steps of budgets of tokens, here five rows of 16."""
    phases = {"lr_scheduler_type": "warmup_stable_decay", "warmup_steps": 2}
    decay = {"lr_scheduler_kwargs": {"num_decay_steps": 4}, **phases}
    results = []
    for options in ({"per_device_train_batch_size": 5}, {"tokens_per_batch": 80}):
        trainer = watched(tmp_path, tiny_model(), rows(), num_train_epochs=3, **decay, **options)
        trainer.train()
        results.append([entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry])
        assert trainer.args.lr_scheduler_kwargs == decay["lr_scheduler_kwargs"]
    shares = [rate / 1e-2 for rate in results[0]]
    assert shares[:9] == pytest.approx([0, 0.5, *[1.0] * 7])
    assert 1 > shares[9] > shares[10] > shares[11] > 0
    assert results[1] == pytest.approx(results[0])


def test_what_was_learned_is_said_once_somebody_hears(tmp_path: Path) -> None:
    """Reports of a run directory hear what is logged after they have begun."""
    folder = tmp_path / "runs"
    watched(tmp_path, tiny_model(), rows(), max_steps=1, run_directory=str(folder)).train()
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file() and path.suffix in (".log", ".txt")]
    assert any("the loss of a batch is" in text for text in texts)


@pytest.mark.parametrize("warmup", [{"warmup_ratio": 0.25}, {"warmup_steps": 3}])
def test_warm_up_counts_samples(tmp_path: Path, warmup: dict[str, Any]) -> None:
    """D14; ``warmup_ratio`` is no longer transformers' own."""
    trainer = watched(tmp_path, tiny_model(), rows(), per_device_train_batch_size=5, num_train_epochs=EPOCHS, **warmup)
    trainer.train()
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
    assert rates == pytest.approx(by_hand(tiny_model(), trainer.steps(), warmup=15))
    assert rates[0] == 0


def test_runs_of_so_many_steps_end_there_and_keep_their_epochs(tmp_path: Path) -> None:
    trainer = watched(tmp_path, tiny_model(), rows(), per_device_train_batch_size=6, max_steps=7)
    trainer.train()
    assert trainer.state.global_step == 7
    assert Counter(trainer.trained()[:20]) == Counter(range(20))
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
    assert rates == pytest.approx([1e-2 * (7 - step) / 7 for step in range(7)])


def test_logs_may_be_counted_in_samples(tmp_path: Path) -> None:
    trainer = watched(
        tmp_path,
        tiny_model(),
        rows(),
        per_device_train_batch_size=3,
        num_train_epochs=2,
        logging_steps=1000,
        logging_samples=10,
    )
    trainer.train()
    lines = [entry["samples"] for entry in trainer.state.log_history if "loss" in entry]
    assert [samples // 10 for samples in lines] == [1, 2, 3, 4]
