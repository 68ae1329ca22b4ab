"""Automations that watch a Trainer's run."""

import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from transformers import TrainerCallback

from tests.steering import planned
from tests.trainers import rows, tiny_model, watched, weights
from trainauto.automations.stop_file import STOP_FILE
from trainauto.core.decisions import ClipAt, RateFactor
from trainauto.core.errors import InputError

OPTIONS: dict[str, Any] = {"per_device_train_batch_size": 4, "max_steps": 6, "lr_scheduler_type": "linear"}


class Moves(TrainerCallback):
    """Notes how far the weights went in each step, and the rate between two of them."""

    def __init__(self, model: Any) -> None:
        self.model, self.before = model, weights(model)
        self.moved: list[float] = []
        self.rates: list[float] = []

    def on_step_end(self, _args: Any, _state: Any, control: Any, optimizer: Any = None, **_others: Any) -> Any:
        now: Tensor = weights(self.model)
        self.moved.append(float((now - self.before).norm()))
        self.before = now
        self.rates.append(optimizer.param_groups[0]["lr"])
        return control


def trained(folder: Path, section: Any, **options: Any) -> tuple[Any, Moves]:
    model = tiny_model()
    trainer = watched(folder, model, rows(), optim="sgd", training_automations=section, **{**OPTIONS, **options})
    moves = Moves(model)
    trainer.add_callback(moves)
    trainer.train()
    return trainer, moves


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.01])
def test_rates_and_clipping_are_what_was_decided_and_the_schedule_goes_on_as_it_would(
    tmp_path: Path, max_grad_norm: float
) -> None:
    decisions = {2: RateFactor(0.5, "half"), 3: ClipAt(1e-3, "spikes", pass_name="train"), 5: ClipAt(None, "calm")}
    with planned(decisions) as section:
        trainer, moves = trained(tmp_path, section, max_grad_norm=max_grad_norm, run_directory=str(tmp_path / "runs"))
    schedule = [1e-2 * (6 - step) / 6 for step in range(6)]
    assert moves.rates == pytest.approx([*schedule[1:], 0.0])
    used = [rate * (0.5 if step >= 2 else 1.0) for step, rate in enumerate(schedule)]
    logged = [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged == pytest.approx(used)
    norms = [moved / rate for moved, rate in zip(moves.moved, used, strict=True)]
    assert norms[3:5] == pytest.approx([1e-3, 1e-3], rel=0.01)
    assert norms[5] > 0.1
    assert (norms[0] == pytest.approx(0.01, rel=0.01)) == (max_grad_norm > 0)
    assert trainer.args.max_grad_norm == max_grad_norm
    run = (tmp_path / "runs" / "current").resolve()
    kinds = [json.loads(line)["kind"] for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert kinds == ["rate_factor", "clip_at", "clip_at"]


def test_a_run_that_gets_no_better_ends_with_a_checkpoint_and_goes_on_once_its_patience_changes(
    tmp_path: Path,
) -> None:
    def run(patience: int, **more: Any) -> Any:
        section = {"IntelligentEarlyStopping": {"monitor_metric": "eval_loss", "patience": patience}}
        trainer = watched(
            tmp_path,
            tiny_model(),
            rows(),
            learning_rate=1e-30,
            training_automations=section,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="steps",
            save_steps=100,
            more={"eval_dataset": rows(4)},
            **{"per_device_train_batch_size": 4, "max_steps": 9, **more.pop("options", {})},
        )
        trainer.train(**more)
        return trainer

    first = run(2)
    assert first.state.global_step == 3
    assert first.memory.stop_reason.startswith("eval/loss has not improved in 2 validations: best ")
    assert run(2, resume_from_checkpoint=str(tmp_path / "checkpoint-3")).state.global_step == 3
    assert run(4, resume_from_checkpoint=str(tmp_path / "checkpoint-3")).state.global_step == 5


def test_a_file_in_the_output_folder_ends_a_run_without_a_directory(tmp_path: Path) -> None:
    (tmp_path / STOP_FILE).touch()
    trainer, _ = trained(tmp_path, '{"StopFile": {}}')
    assert trainer.state.global_step == 1
    assert not (tmp_path / STOP_FILE).exists()


def test_what_chooses_batches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="DynamicBatchSizeOptimizer chooses batches"):
        trained(tmp_path, {"DynamicBatchSizeOptimizer": {}})


class TightensFromStepFour(TrainerCallback):
    """What a person's own callback may do: clip harder from there on."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **_others: Any) -> Any:
        if state.global_step == 3:
            args.max_grad_norm = 1e-4
        return control


def test_without_a_decision_the_arguments_alone_say_where_gradients_are_clipped(tmp_path: Path) -> None:
    """A norm of 0 or below clips nothing, as transformers has it; one that is changed on the way holds from there."""
    moved = []
    for norm in (-1.0, 0.0):
        _, moves = trained(tmp_path / str(norm), None, max_grad_norm=norm)
        moved.append(moves.moved)
    assert moved[0] == moved[1]
    assert min(moved[0]) > 0
    model = tiny_model()
    trainer = watched(tmp_path / "own", model, rows(), optim="sgd", max_grad_norm=1.0, **OPTIONS)
    moves = Moves(model)
    trainer.add_callback(moves)
    trainer.add_callback(TightensFromStepFour())
    trainer.train()
    norms = [moved / (1e-2 * (6 - step) / 6) for step, moved in enumerate(moves.moved)]
    assert norms[3:] == pytest.approx([1e-4] * 3, rel=0.02)
    assert min(norms[:3]) > 1e-3
