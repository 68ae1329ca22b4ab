"""Automations that watch a Trainer's run."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor
from transformers import Trainer, TrainerCallback

from tests.steering import planned
from tests.trainers import rows, tiny_model, watched, weights
from trainauto.automations.stop_file import STOP_FILE
from trainauto.core.decisions import ClipAt, RateFactor
from trainauto.core.errors import InputError
from trainauto.integrations.huggingface.directions import Directions

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


def measured_run(folder: Path, section: Any, *, resume: str | None = None, **options: Any) -> Any:
    """Return a Trainer that has trained at a rate of nothing, measured after every step."""
    more = {"eval_dataset": rows(4), **options.pop("more", {})}
    given = {"per_device_train_batch_size": 4, "max_steps": 9, "eval_strategy": "steps", "eval_steps": 1, **options}
    trainer = watched(
        folder,
        tiny_model(),
        rows(),
        learning_rate=1e-30,
        training_automations=section,
        save_strategy="steps",
        save_steps=100,
        more=more,
        **given,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_a_run_that_gets_no_better_ends_with_a_checkpoint_and_goes_on_once_an_option_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stopping(patience: Any) -> dict[str, Any]:
        return {"IntelligentEarlyStopping": {"monitor_metric": "eval_loss", "patience": patience}}

    first = measured_run(tmp_path, stopping(np.int64(2)))
    assert first.state.global_step == 3
    assert first.memory.stop_reason.startswith("eval/loss has not improved in 2 validations: best ")
    ended = str(tmp_path / "checkpoint-3")
    with caplog.at_level(logging.WARNING):
        assert measured_run(tmp_path, stopping(2), resume=ended).state.global_step == 3
    assert "nothing to train: the run was stopped: eval/loss has not improved in 2 validations" in caplog.text
    assert "It continues once anything it is given is another than then" in caplog.text
    assert measured_run(tmp_path, stopping(4), resume=ended).state.global_step == 5
    with caplog.at_level(logging.WARNING):
        longer = measured_run(tmp_path, stopping(2), resume=ended, max_steps=12)
    assert longer.state.global_step == 4, "it goes on counting where it was: one more is one too many"
    assert "max_steps 9 -> 12: so it continues" in caplog.text


def test_what_an_automation_decided_ends_with_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    decisions = {2: RateFactor(0.25, "less"), 3: ClipAt(1e-3, "spikes", pass_name="train")}
    saving = {"save_strategy": "steps", "save_steps": 4}
    with planned(decisions) as section:
        kept, moves = trained(tmp_path, section, max_grad_norm=0.0, **saving)
    assert kept.memory.running.controls.rate_factor == 0.25
    trainer = watched(tmp_path, kept.model, rows(), optim="sgd", max_grad_norm=0.0, **OPTIONS)
    moves = Moves(kept.model)
    trainer.add_callback(moves)
    with caplog.at_level(logging.WARNING):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert "Plans is no longer among the automations, so its decisions are undone" in caplog.text
    logged = [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged[-2:] == pytest.approx([1e-2 * 2 / 6, 1e-2 / 6])
    assert moves.moved[-1] / (1e-2 / 6) > 0.1, "nothing is clipped"
    gone = [
        entry
        for entry in trainer.state.log_history
        if "is gone" in str(entry.get("reason", "")) and "Plans" in str(entry)
    ]
    assert [entry["memory_decision"] for entry in gone] == ["RateFactor", "ClipAt"]


class Score:
    """Figures of an evaluation: one whose name says nothing, and one whose name says that lower is better."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, _prediction: Any) -> dict[str, float]:
        return {self._name: 1.0}


@pytest.mark.parametrize(
    ("name", "arguments", "higher"),
    [
        ("wer", {}, False),
        ("accuracy", {}, True),
        ("score", {}, None),
        ("score", {"metric_for_best_model": "eval_score"}, True),
        ("score", {"metric_for_best_model": "score", "greater_is_better": False}, False),
        ("wer", {"metric_for_best_model": "wer"}, False),
        ("accuracy", {"metric_for_best_model": "loss", "greater_is_better": False}, True),
    ],
)
def test_which_way_is_better_the_arguments_say_or_the_name(
    tmp_path: Path, name: str, arguments: dict[str, Any], higher: bool | None
) -> None:
    section = {"IntelligentEarlyStopping": {"monitor_metric": f"eval_{name}"}}
    options = {"max_steps": 1, "run_directory": str(tmp_path / "runs"), "more": {"compute_metrics": Score(name)}}
    if higher is None:
        with pytest.raises(InputError, match=r"cannot tell whether a higher eval_score is better.*\n.*Say direction: "):
            measured_run(tmp_path, section, **options, **arguments)
        section["IntelligentEarlyStopping"]["direction"] = "higher"
    measured_run(tmp_path, section, **options, **arguments)
    record = json.loads((tmp_path / "runs" / "current" / "validation.jsonl").read_text().splitlines()[0])
    assert record["better_is_higher"].get(name) == higher
    assert record["better_is_higher"]["loss"] is False


def test_a_direction_that_a_name_speaks_against_is_taken_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = {"metric_for_best_model": "wer", "greater_is_better": True, "max_steps": 1}
    with caplog.at_level(logging.WARNING):
        trainer = measured_run(tmp_path, {"StopFile": {}}, more={"compute_metrics": Score("wer")}, **arguments)
    assert "greater_is_better=True is taken for wer, whose name says that lower is better" in caplog.text
    assert Directions(trainer.args).of("eval/wer") is True


@pytest.mark.parametrize(
    "section",
    [{"IntelligentEarlyStopping": {}}, {"IntelligentLearningRateScheduler": {"monitor_metric": "eval_loss"}}],
)
def test_what_goes_by_evaluations_is_refused_before_a_run_without_any(tmp_path: Path, section: Any) -> None:
    with pytest.raises(InputError, match="needs validations, and this run makes none while it trains"):
        trained(tmp_path, section)
    assert not list(tmp_path.glob("checkpoint-*"))


def test_clipping_that_this_transformers_cannot_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before 5.3, whose Trainer clips within its loop."""
    monkeypatch.delattr(Trainer, "_clip_grad_norm", raising=False)
    with pytest.raises(InputError, match=r"cannot clip here: that takes transformers 5\.3 or later, and "):
        trained(tmp_path, {"AdaptiveGradientClipping": {}})


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
