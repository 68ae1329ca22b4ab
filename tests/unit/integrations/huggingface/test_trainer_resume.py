"""A memory-aware Trainer that is resumed in mid-epoch."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from tests.acceptance import ACCEPTANCE
from tests.trainers import Watched, rows, tiny_model, watched, weights
from trainauto.core.errors import CheckpointError, InputError
from trainauto.core.plan import Plan

PLANS = {3: Plan.of(batch_size=7), 8: Plan.of(batch_size=4, micro_batches=2)}
OPTIONS: dict[str, Any] = {"per_device_train_batch_size": 4, "num_train_epochs": 3, "save_strategy": "steps"}


def run(folder: Path, *, workers: int = 0, save_steps: int = 1, resume: str | None = None, **more: Any) -> Watched:
    trainer: Watched = watched(
        folder,
        tiny_model(dropout=0.2, seed=1 if resume else 0),
        rows(),
        plans=PLANS,
        save_steps=save_steps,
        dataloader_num_workers=workers,
        **{**OPTIONS, **more},
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resume_continues_to_the_bit(tmp_path: Path, workers: int) -> None:
    """Dropout, optimizer, rates, plans on their way, the place in the epoch; from ten steps in acceptance runs."""
    # Plans of the test alone, within bounds.
    bounds = {"min_batch_size": 2, "max_batch_size": 7, "memory_settings": {"policy": "step"}, "workers": workers}
    whole = run(tmp_path / "whole", **bounds)
    steps = whole.state.global_step
    few = (2, 9, steps - 1) if not workers else (5,)
    chosen = random.Random(workers).sample(range(1, steps), 10) if ACCEPTANCE else few
    for step in chosen:
        resumed = run(tmp_path / "again", save_steps=99, resume=checkpoint(tmp_path / "whole", step), **bounds)
        assert torch.equal(weights(resumed.model), weights(whole.model)), step
        before = [row for number, part in whole.parts if number < step for row in part["input_ids"][:, 0].tolist()]
        assert before + resumed.trained() == whole.trained()
        assert resumed.state.epoch == 3
        assert resumed.state.global_step == steps
        assert resumed.memory is not None
        assert resumed.memory.trained_samples == 60 - len(before)
    assert Counter(whole.trained()) == Counter(list(range(20)) * 3)


def checkpoint(folder: Path, step: int) -> str:
    return str(folder / f"checkpoint-{step}")


def test_saving_counted_in_samples_and_the_last_checkpoint(tmp_path: Path) -> None:
    """``resume_from_checkpoint=True`` takes the last one; what it holds says the accumulation that was given."""
    options = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2, "save_steps": 1000}
    whole = run(tmp_path, save_samples=16, **options)
    saved = sorted(int(folder.name.split("-")[1]) for folder in tmp_path.glob("checkpoint-*"))
    assert len(saved) == 4  # 16, 32, 48 samples, and the end
    given = torch.load(Path(checkpoint(tmp_path, saved[0])) / "training_args.bin", weights_only=False)
    assert given.gradient_accumulation_steps == 2
    again = watched(tmp_path, tiny_model(seed=3), rows(), **{**OPTIONS, **options})
    again.train(resume_from_checkpoint=True)
    assert torch.equal(weights(again.model), weights(whole.model))
    assert again.parts == []


def test_a_checkpoint_of_another_trainer_is_refused_in_words(tmp_path: Path) -> None:
    run(tmp_path, num_train_epochs=1)
    (tmp_path / "checkpoint-2" / "trainauto.pt").unlink()
    with pytest.raises(CheckpointError, match="not written by a MemoryAwareTrainer"):
        run(tmp_path, resume=checkpoint(tmp_path, 2))


def test_another_dataset_is_refused(tmp_path: Path) -> None:
    run(tmp_path, num_train_epochs=1)
    other = watched(tmp_path, tiny_model(), rows(19), **OPTIONS)
    words = r"(?s)'train_dataset' has 19 samples, the checkpoint was written with 20.*begin a new run"
    with pytest.raises(InputError, match=words):
        other.train(resume_from_checkpoint=checkpoint(tmp_path, 2))


def test_other_rows_of_the_same_number_are_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """B18: a warning, for rows may be drawn at random."""
    run(tmp_path, num_train_epochs=1)
    for dataset, lines in ((rows(), 0), (rows()[::-1], 1)):
        caplog.clear()
        watched(tmp_path, tiny_model(), dataset, **OPTIONS).train(resume_from_checkpoint=checkpoint(tmp_path, 4))
        assert sum("holds other rows" in line for line in caplog.messages) == lines


def test_a_checkpoint_may_be_named_by_a_path(tmp_path: Path) -> None:
    """B18: the data go on, too, and not only the weights."""
    run(tmp_path, num_train_epochs=1)
    again = watched(
        tmp_path / "again", tiny_model(), rows(), **{**OPTIONS, "num_train_epochs": 1, "save_strategy": "no"}
    )
    again.train(resume_from_checkpoint=Path(checkpoint(tmp_path, 2)))
    assert len(again.trained()) == 12


class SavesWithin(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Saves in the middle of the third step, as ``enable_jit_checkpoint`` does on a signal."""

    trainer: Any = None

    def save(self, _args: Any, state: Any, _control: Any, **_others: Any) -> None:
        if state.global_step == 2:
            self.trainer._save_checkpoint(self.trainer.model, None)


@pytest.mark.parametrize("event", ["on_step_begin", "on_pre_optimizer_step"])
def test_a_checkpoint_within_a_step_keeps_its_samples(tmp_path: Path, event: str) -> None:
    """B18: what is not trained comes again, and the run that was saved goes on as if it had not been."""
    options = {**OPTIONS, "num_train_epochs": 1, "save_strategy": "no"}
    saving = SavesWithin()
    setattr(saving, event, saving.save)
    whole = saving.trainer = watched(tmp_path, tiny_model(), rows(), **options)
    whole.add_callback(saving)
    whole.train()
    again = watched(tmp_path / "again", tiny_model(), rows(), **options)
    again.train(resume_from_checkpoint=checkpoint(tmp_path, 2))
    assert Counter(whole.trained()) == Counter(range(20))
    assert again.trained() == whole.trained()[8:]


@pytest.fixture(scope="module")
def fixed_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps of eight samples in two passes."""
    folder = tmp_path_factory.mktemp("fixed")
    run(folder, num_train_epochs=1, gradient_accumulation_steps=2)
    return folder


def resumed_otherwise(folder: Path, start: Path, **options: Any) -> Watched:
    other = watched(
        folder, tiny_model(), rows(), **{**OPTIONS, "num_train_epochs": 1, "save_strategy": "no", **options}
    )
    other.train(resume_from_checkpoint=checkpoint(start, 2))
    return other  # type: ignore[no-any-return]


def test_a_resume_goes_by_the_batches_it_is_given(tmp_path: Path) -> None:
    """B18: bounds of now hold, whatever the checkpoint was written with."""
    run(tmp_path, num_train_epochs=1)
    other = resumed_otherwise(tmp_path / "again", tmp_path, per_device_train_batch_size=2)
    assert other.trained()
    assert {len(part["input_ids"]) for _, part in other.parts} == {2}


def test_a_resume_of_fixed_steps_goes_by_the_passes_it_is_given(tmp_path: Path, fixed_steps: Path) -> None:
    """B18"""
    options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "max_batch_size": 2}
    other = resumed_otherwise(tmp_path, fixed_steps, **options)
    assert {len(part["input_ids"]) for _, part in other.parts} == {2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "steps of 8 samples each, this one has no fixed steps"),
        ({"gradient_accumulation_steps": 4}, "steps of 8 samples each, this one has steps of 16 samples each"),
    ],
)
def test_a_resume_of_fixed_steps_keeps_them(
    tmp_path: Path, fixed_steps: Path, options: dict[str, Any], words: str
) -> None:
    """B18"""
    with pytest.raises(InputError, match=words):
        resumed_otherwise(tmp_path, fixed_steps, **options)
