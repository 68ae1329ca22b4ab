"""A Trainer's run that goes back to a checkpoint, and steps whose gradients are no finite numbers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainers import Watched, rows, tiny_model, watched, weights
from trainauto.automations import AUTOMATIONS, Automation
from trainauto.automations.stop_file import STOP_FILE
from trainauto.core.decisions import Decision, GoBack, RunFacts
from trainauto.core.errors import InputError
from trainauto.core.records import StepRecord
from trainauto.engine.rollback import GivenUpError

OPTIONS: dict[str, Any] = {
    "per_device_train_batch_size": 3,
    "num_train_epochs": 3,
    "lr_scheduler_type": "cosine",
    "save_strategy": "steps",
    "save_steps": 4,
}


@pytest.fixture
def asking() -> Any:
    """Return the section of an automation that has a run go back from step 11 to step 8 or before, once."""

    class Asks(Automation):
        watches = goes_back = True
        rollbacks = 0

        def on_run_start(self, facts: RunFacts) -> None:
            self.rollbacks = len(facts.rollbacks)

        def on_step_end(self, record: StepRecord) -> Decision | None:
            return GoBack(9, "asked at step 11") if record.step == 11 and not self.rollbacks else None

    AUTOMATIONS.register("Asks")(Asks)
    yield {"Asks": {}}
    del AUTOMATIONS._entries["asks"], AUTOMATIONS._shown["asks"]


class Spoilt(Watched):
    """Losses that are NaN, by the number of the loss that is computed."""

    spoilt: tuple[int, ...] = ()
    losses = 0

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        loss = super().compute_loss(model, inputs, *arguments, **options)
        if model.training and torch.is_grad_enabled() and self.memory is not None and self.memory.progress.steps:
            self.losses += 1
            if self.losses in self.spoilt:
                factor = torch.nan
                return (loss[0] * factor, *loss[1:]) if isinstance(loss, tuple) else loss * factor
        return loss


def test_weights_are_those_of_a_run_that_was_started_so_by_hand(tmp_path: Path, asking: Any) -> None:
    """Dropout, Adam, a cosine over samples: what a resume by hand in that order comes to."""
    model = tiny_model(dropout=0.2)
    back = watched(
        tmp_path / "back", model, rows(20), training_automations=asking, run_directory=str(tmp_path / "runs"), **OPTIONS
    )
    back.train()
    order = back.trained()
    assert back.state.global_step == 21
    assert back.memory.progress.undone_steps == 3

    by_hand = tiny_model(dropout=0.2)
    stopped = watched(tmp_path / "hand", by_hand, rows(20), **OPTIONS)
    stopped.train()
    resumed = watched(tmp_path / "hand", tiny_model(dropout=0.2, seed=5), rows(20), **OPTIONS)
    begin = resumed.callback_handler.callbacks[0]
    started = begin.on_train_begin

    def on_train_begin(*arguments: Any, **options: Any) -> Any:
        control = started(*arguments, **options)
        resumed.memory.running.loader.reorder(1)
        return control

    begin.on_train_begin = on_train_begin
    resumed.train(resume_from_checkpoint=str(tmp_path / "hand" / "checkpoint-8"))
    assert torch.equal(weights(resumed.model), weights(model))
    assert order[32:] == resumed.trained()

    # Every sample is kept once an epoch: what was undone are the samples of steps 9 to 11.
    kept = order[:23] + order[32:]
    for first in (0, 20, 40):
        assert sorted(kept[first : first + 20]) == list(range(20))
    starts = sorted((tmp_path / "runs").glob("2*"))
    lines = [json.loads(line) for line in (starts[-1] / "decisions.jsonl").read_text().splitlines()]
    assert [(one["from_step"], one["to_step"]) for one in lines if one["kind"] == "rollback"] == [(11, 8)]


def test_a_resume_after_a_rollback_keeps_its_order(tmp_path: Path, asking: Any) -> None:
    """The checkpoint that the run went back to knows of it: whoever resumes from it trains what the run trained."""
    model = tiny_model()
    back = watched(tmp_path, model, rows(20), training_automations=asking, **{**OPTIONS, "save_total_limit": 9})
    back.train()
    again = watched(tmp_path, tiny_model(seed=7), rows(20), training_automations=asking, **OPTIONS)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert torch.equal(weights(again.model), weights(model))
    assert again.memory.progress == back.memory.progress or again.memory.progress.undone_steps == 3


def test_an_end_that_a_person_asks_for_in_the_step_that_is_undone_is_heard(tmp_path: Path, asking: Any) -> None:
    class Asked(Watched):
        def training_step(self, *arguments: Any, **options: Any) -> Any:
            if self.state.global_step == 10:
                (tmp_path / STOP_FILE).touch()
            return super().training_step(*arguments, **options)

    options = {**OPTIONS, "training_automations": {**asking, "StopFile": {}}}
    stopped = watched(tmp_path, tiny_model(), rows(20), kind=Asked, **options)
    stopped.train()
    assert stopped.state.global_step == 8
    assert stopped.memory.stop_reason == "STOP_TRAINING requested it after step 11"
    again = watched(tmp_path, tiny_model(seed=7), rows(20), **options)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 21


@pytest.mark.parametrize("clips", [1.0, 0.0])
def test_gradients_that_are_no_numbers_leave_the_weights_alone(tmp_path: Path, clips: float) -> None:
    model = tiny_model()
    section = {"SpikeGuard": {"skip_nonfinite": 2}}
    trainer = watched(
        tmp_path, model, rows(20), kind=Spoilt, training_automations=section, max_grad_norm=clips, **OPTIONS
    )
    trainer.spoilt = (3, 4)
    seen: list[Tensor] = []
    trainer.callback_handler.callbacks[-1].on_step_end = lambda *_a, **_o: seen.append(weights(model))
    trainer.train()
    same = [number + 1 for number in range(1, len(seen)) if torch.equal(seen[number], seen[number - 1])]
    assert same == [4, 5]
    assert bool(torch.isfinite(weights(model)).all())
    assert trainer.memory.progress.undone_steps == 0


def test_what_cannot_be_skipped_is_undone_and_then_given_up(tmp_path: Path) -> None:
    trainer = watched(
        tmp_path,
        tiny_model(),
        rows(20),
        kind=Spoilt,
        training_automations={"SpikeGuard": {"max_rollbacks": 2}},
        **OPTIONS,
    )
    trainer.spoilt = (2, 9, 15)
    with pytest.raises(GivenUpError, match="after 2 rollbacks") as caught:
        trainer.train()
    # To the beginning from step 3; then from step 9 to 4, and at last there is no other way out.
    assert "The checkpoint of step" in str(caught.value)
    assert trainer.memory.progress.undone_steps > 2
    assert not torch.isnan(weights(trainer.model)).any()


def test_a_run_without_checkpoints_is_refused(tmp_path: Path) -> None:
    trainer = watched(
        tmp_path, tiny_model(), rows(20), training_automations={"SpikeGuard": {}}, per_device_train_batch_size=3
    )
    with pytest.raises(InputError, match="save_strategy is 'no'"):
        trainer.train()


def test_a_step_that_is_undone_displaces_no_good_checkpoint(tmp_path: Path) -> None:
    """Step 8 is one to save after, and only the newest checkpoint is kept."""
    options = {**OPTIONS, "save_total_limit": 1}
    trainer = watched(tmp_path, tiny_model(), rows(20), kind=Spoilt, training_automations={"SpikeGuard": {}}, **options)
    trainer.spoilt = (7,)
    trainer.train()
    assert trainer.state.global_step == 21
    assert trainer.memory.progress.undone_steps == 4


def test_checkpoints_without_an_optimizer_are_refused(tmp_path: Path) -> None:
    options = {**OPTIONS, "save_only_model": True}
    trainer = watched(tmp_path, tiny_model(), rows(20), training_automations={"SpikeGuard": {}}, **options)
    with pytest.raises(InputError, match="save_only_model"):
        trainer.train()
