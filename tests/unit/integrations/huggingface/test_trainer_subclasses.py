"""What subclasses of a Trainer do beside training, and methods of theirs."""

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import WeightedRandomSampler
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import HPSearchBackend

from tests.trainers import Watched, rows, tiny_model, watched
from trainauto.core.errors import InputError
from trainauto.huggingface import MemoryAwareTrainer, MemoryAwareTraining
from trainauto.integrations.huggingface.rehearsal import gathers_refused

SHORT: dict[str, Any] = {"per_device_train_batch_size": 4, "max_steps": 2}


class AddsAKey(Watched):
    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        loss = super().compute_loss(model, inputs, *arguments, **options)
        inputs["use_cache"] = False  # as TRL's does
        return loss


def test_a_loss_may_add_to_its_inputs(tmp_path: Path) -> None:
    """B18"""
    trainer = watched(tmp_path, tiny_model(), rows(), kind=AddsAKey, **SHORT)
    trainer.train()
    assert trainer.state.global_step == 2
    assert {name for _, part in trainer.parts for name in part} == {"input_ids", "labels"}


class KeepsFigures(Watched):
    """Keeps a sum as a tensor and counts in containers, as losses of TRL's Trainers do, and logs."""

    kept_sum: Any = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.counts: dict[str, list[int]] = {"samples": []}
        self.total = torch.zeros(())

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        loss = super().compute_loss(model, inputs, *arguments, **options)
        self.kept_sum = loss.detach() if self.kept_sum is None else self.kept_sum + loss.detach()
        self.total += 1
        self.counts["samples"].append(len(inputs["input_ids"]))
        self.log({"kept": 1.0})
        return loss


def test_what_a_loss_keeps_begins_with_the_first_step(tmp_path: Path) -> None:
    """B18: neither traces nor tried steps leave a figure on the Trainer, or an entry in its log."""
    trainer = watched(tmp_path, tiny_model(), rows(), kind=KeepsFigures, memory_budget="400MiB", **SHORT)
    counts = trainer.counts["samples"]
    trainer.train()
    assert trainer.counts["samples"] is counts
    assert counts == [4, 4]
    assert float(trainer.total) == 2
    assert isinstance(float(trainer.kept_sum), float)
    assert sum("kept" in entry for entry in trainer.state.log_history) == 2


def test_a_trial_of_a_search_may_choose_the_accumulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B18: of 2 * 5 samples a step all are trained."""
    monkeypatch.setattr("transformers.integrations.hp_params", lambda trial: trial.params)
    trainer = watched(tmp_path, tiny_model(), rows(), per_device_train_batch_size=2, num_train_epochs=1)
    trainer.hp_search_backend = HPSearchBackend.OPTUNA
    trainer.hp_space = lambda trial: {"gradient_accumulation_steps": 5}
    trainer.train(trial=SimpleNamespace(number=0, params={}))
    assert trainer.state.global_step == 2
    assert [sum(len(part["input_ids"]) for part in step) for step in trainer.steps()] == [10, 10]
    assert trainer.args.gradient_accumulation_steps == 5


class OwnLoader(Trainer):  # type: ignore[misc]  # mypy does not follow transformers
    def get_train_dataloader(self) -> Any:
        return super().get_train_dataloader()


class OwnSteps(Trainer):  # type: ignore[misc]
    def training_step(self, *arguments: Any, **options: Any) -> Any:
        return super().training_step(*arguments, **options)

    def _prepare_inputs(self, inputs: Any) -> Any:
        return super()._prepare_inputs(inputs)


class LoaderInFront(MemoryAwareTrainer):
    def get_train_dataloader(self) -> Any:
        return Trainer.get_train_dataloader(self)


class ListOfBatches(MemoryAwareTrainer):
    def get_train_dataloader(self) -> Any:
        super().get_train_dataloader()
        return Trainer.get_train_dataloader(self)


def test_a_class_with_batches_of_its_own_is_no_memory_aware_one(tmp_path: Path) -> None:
    """B18"""
    both = type("Both", (MemoryAwareTraining, OwnLoader), {})
    with pytest.raises(InputError, match="OwnLoader makes batches of its own"):
        watched(tmp_path, tiny_model(), rows(), kind=both, **SHORT)


@pytest.mark.parametrize("kind", [LoaderInFront, ListOfBatches])
def test_batches_of_a_subclass_are_refused(tmp_path: Path, kind: type[Trainer]) -> None:
    """B18: they would be trained without accumulation, and without a word."""
    trainer = watched(tmp_path, tiny_model(), rows(), kind=kind, **SHORT)
    with pytest.raises(InputError, match="are not those that follow memory"):
        trainer.train()


def test_methods_that_are_not_called_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """B18"""
    both = type("Both", (MemoryAwareTraining, OwnSteps), {})
    watched(tmp_path, tiny_model(), rows(), kind=both, **SHORT)
    assert "OwnSteps._prepare_inputs, OwnSteps.training_step: not called in training" in caplog.text


class Weighted(Watched):
    def _get_train_sampler(self, *_arguments: Any) -> Any:
        return WeightedRandomSampler([1.0] * 20, 20)


def test_a_sampler_of_ones_own_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"Weighted\._get_train_sampler draws samples by .*\n.*where the dataset draws"
    ):
        watched(tmp_path, tiny_model(), rows(), kind=Weighted, **SHORT)


class Gathers(Watched):
    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        self.accelerator.gather_for_metrics(torch.ones(1))
        return super().compute_loss(model, inputs, *arguments, **options)


def test_losses_that_gather_are_refused_among_processes(tmp_path: Path) -> None:
    """B18: the others would wait for ever; in one process they are trained."""
    trainer = watched(tmp_path, tiny_model(), rows(), kind=Gathers, **SHORT)
    trainer.train()
    assert trainer.state.global_step == 2
    with gathers_refused(trainer.accelerator), pytest.raises(InputError, match="gathers from other processes"):
        trainer.compute_loss(trainer.model, rows()[0])
    assert trainer.accelerator.gather_for_metrics(torch.ones(1)) == 1


class AsksForTheLoader(TrainerCallback):  # type: ignore[misc]
    trainer: Any = None

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_others: Any) -> None:
        self.trainer.get_train_dataloader()


def test_who_asks_for_the_loader_gets_what_is_trained_or_an_epoch(tmp_path: Path) -> None:
    """B18"""
    trainer = watched(tmp_path, tiny_model(), rows(), per_device_train_batch_size=8, num_train_epochs=1)
    asks = AsksForTheLoader()
    asks.trainer = trainer
    trainer.add_callback(asks)
    assert sum(len(batch["input_ids"]) for batch in trainer.get_train_dataloader()) == 20
    trainer.train()
    assert Counter(trainer.trained()) == Counter(range(20))


class SlowToSave(TrainerCallback):  # type: ignore[misc]
    def on_save(self, _args: Any, _state: Any, _control: Any, **_others: Any) -> None:
        time.sleep(0.3)


def test_what_is_saved_is_what_was_given_and_saving_is_no_waiting_for_data(tmp_path: Path) -> None:
    """B18"""
    trainer = watched(tmp_path, tiny_model(), rows(), save_strategy="steps", save_steps=1, **SHORT)
    trainer.add_callback(SlowToSave())
    trainer.train()
    given = torch.load(tmp_path / "checkpoint-1" / "training_args.bin", weights_only=False)
    assert not given.ignore_data_skip
    assert trainer.memory.record.data_seconds < 0.3
