"""A memory-aware Trainer whose optimizer runs out of memory in its step."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from tests.optimizer_failures import FailsAt
from tests.trainers import Watched, rows, tiny_model, watched, weights
from trainauto.engine.run_errors import MachineFailedError, OptimizerOutOfMemoryError
from trainauto.memory.monitor.oom import is_out_of_memory

FAILING_STEP = 5
OPTIONS: dict[str, Any] = {
    "per_device_train_batch_size": 4,
    "num_train_epochs": 2,
    "save_strategy": "steps",
    "save_steps": 3,
}


class FailsInStep(TrainerCallback):
    """Has one step of the optimizer fail, at one of its operators."""

    def __init__(self, place: int) -> None:
        self.fails = FailsAt(place)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        if state.global_step == FAILING_STEP - 1:
            self.fails.__enter__()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        if state.global_step == FAILING_STEP - 1:
            self.fails.__exit__(None, None, None)


def prepared(folder: Path, optim: str, place: int | None = None) -> tuple[Watched, FailsInStep | None]:
    trainer: Watched = watched(folder, tiny_model(dropout=0.1), rows(), optim=optim, **OPTIONS)
    failing = FailsInStep(place) if place is not None else None
    if failing is not None:
        trainer.add_callback(failing)
    return trainer, failing


@pytest.mark.parametrize(("optim", "place"), [("adamw_torch", 16), ("adamw_torch_fused", 5)])
def test_a_half_made_step_ends_training_in_words_and_is_never_saved(tmp_path: Path, optim: str, place: int) -> None:
    plain, _ = prepared(tmp_path / "plain", optim)
    plain.train()
    trainer, failing = prepared(tmp_path / "run", optim, place)
    assert failing is not None
    with pytest.raises(OptimizerOutOfMemoryError) as caught:
        trainer.train()
    failing.fails.__exit__(None, None, None)
    said = str(caught.value)
    assert "Some weights may be updated and others not" in said
    assert "checkpoint-3 is the last intact checkpoint" in said
    assert "train(resume_from_checkpoint=True)" in said
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == ["checkpoint-3"]
    again, _ = prepared(tmp_path / "run", optim)
    again.train(resume_from_checkpoint=True)
    assert torch.equal(weights(again.model), weights(plain.model))


@pytest.mark.parametrize("place", [1, 5, 7])
def test_clipping_that_runs_out_of_memory_runs_again(tmp_path: Path, place: int) -> None:
    results = []
    for fails in (None, FailsAt(place)):
        trainer = watched(tmp_path / str(fails is None), tiny_model(), rows(), max_grad_norm=0.1, **OPTIONS)
        clip_with(trainer, fails)
        trainer.train()
        results.append(weights(trainer.model))
        assert fails is None or fails.seen >= place
    assert torch.equal(*results)


def test_clipping_that_does_not_fit_twice_ends_training_in_words(tmp_path: Path) -> None:
    trainer = watched(tmp_path, tiny_model(), rows(), max_grad_norm=0.1, **OPTIONS)
    clip_with(trainer, FailsAt(1, again=True))
    with pytest.raises(OptimizerOutOfMemoryError, match=r"(?s)changed no weight.*checkpoint-3 is the last intact"):
        trainer.train()


def test_a_shortage_beside_the_passes_ends_training_in_words(tmp_path: Path) -> None:
    trainer, _ = prepared(tmp_path, "adamw_torch")
    count = trainer._get_num_items_in_batch

    def failing(*arguments: Any, **options: Any) -> Any:
        with FailsAt(1) if trainer.state.global_step == FAILING_STEP - 1 else nullcontext():
            return count(*arguments, **options)

    trainer._get_num_items_in_batch = failing
    with pytest.raises(MachineFailedError, match=r"(?s)memory ran out.*checkpoint-3 is the last intact") as caught:
        trainer.train()
    assert is_out_of_memory(caught.value.__cause__)


def clip_with(trainer: Watched, fails: FailsAt | None) -> None:
    """Have accelerate's clipping of one step run out of memory."""
    clip = trainer.accelerator.clip_grad_norm_

    def failing(*arguments: Any, **options: Any) -> Any:
        with fails if fails is not None and trainer.state.global_step == FAILING_STEP - 1 else nullcontext():
            return clip(*arguments, **options)

    trainer.accelerator.clip_grad_norm_ = failing


def test_a_step_that_wrote_nothing_runs_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    results = []
    for place in (None, 2):
        trainer, _ = prepared(tmp_path / str(place), "adamw_torch", place)
        trainer.train()
        results.append(weights(trainer.model))
    assert torch.equal(*results)
    assert "out of memory in the step of optimizer 'train'" in caplog.text
