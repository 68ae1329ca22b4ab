"""Schedules of our own in the Trainer's loop: the rate of every step against formulas written down here."""

import json
from math import cos, pi
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback, get_cosine_with_hard_restarts_schedule_with_warmup

from tests.trainers import Watched, rows, tiny_model, watched
from trainauto.core.plan import Plan
from trainauto.core.records import StepRecord
from trainauto.core.run_events import LengthUnit
from trainauto.optim import SCHEDULES
from trainauto.optim.schedules import RateSchedule

RATE, SAMPLES, EPOCHS = 1e-2, 20, 6
STEP, WARMUP_STEPS = 4, 5
"""Samples of a step, in two passes."""
TOTAL, WARMUP = SAMPLES * EPOCHS, STEP * WARMUP_STEPS
NAMES = ("linear", "cosine", "constant", "none", "multistep", "cosine_with_restarts")
PASSES: dict[str, Any] = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
GROWING: dict[str, Any] = {"min_batch_size": 4, "max_batch_size": 8, "memory_settings": {"policy": "step"}}


def made(name: str, total: int, unit: LengthUnit, step_samples: float) -> RateSchedule:
    """Warm-up of five steps; milestones at a third of the run and at three quarters; three cycles."""
    step = step_samples if unit == "samples" else 1.0
    arguments: dict[str, dict[str, Any]] = {
        "multistep": {"milestones": [total // 3, total * 3 // 4], "gamma": 0.1, "total": total},
        "cosine_with_restarts": {"cycles": 3},
    }
    shape = SCHEDULES.get(name)(**arguments.get(name, {}))
    return RateSchedule(shape, total, unit, WARMUP_STEPS * step, decays_after_warmup=True, step=step)


def by_hand(name: str, done: int, total: int = TOTAL, warmup: int = WARMUP, step: int = STEP) -> float:
    """The rate of a step before which so many samples are trained."""
    warm = RATE * min(1.0, (done + step) / warmup)
    down = max(0, done - warmup) / (total - warmup)
    if name == "linear":
        return warm * (1 - down)
    if name == "cosine":
        return warm * (1 + cos(pi * down)) / 2
    if name == "cosine_with_restarts":
        return warm * (1 + cos(pi * (3 * down - int(3 * down + 1e-9)))) / 2
    if name == "multistep":
        return warm * 0.1 ** ((done >= total / 3) + (done >= total * 3 / 4))
    return warm


class Scheduled(Watched):
    """Goes by a schedule of ours, and keeps what it was asked and the records of steps."""

    name = "linear"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[tuple[int, LengthUnit, float]] = []
        self.records: list[StepRecord] = []
        self.used: list[float] = []

    def own_schedule(self, total: int, unit: LengthUnit, step_samples: float) -> RateSchedule | None:
        self.asked.append((total, unit, step_samples))
        return made(self.name, total, unit, step_samples)

    def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
        self.used.append(self.optimizer.param_groups[0]["lr"])
        return super().training_step(*arguments, **options)

    def step_recorded(self, record: StepRecord, *, skipped: bool) -> None:
        super().step_recorded(record, skipped=skipped)
        self.records.append(record)

    @property
    def rates(self) -> list[float]:
        """Of each step, as its record has it."""
        return [rate for record in self.records for rate in record.learning_rates.values()]

    @property
    def done(self) -> list[int]:
        """Samples that were trained before each step."""
        return [record.first_sample for record in self.records]


def train(folder: Path, name: str = "linear", resume: str | None = None, **options: Any) -> Scheduled:
    kind = type("Named", (Scheduled,), {"name": name})
    model = tiny_model(seed=1 if resume else 0)
    options = {**({} if "max_steps" in options else {"num_train_epochs": EPOCHS}), "learning_rate": RATE, **options}
    trainer: Scheduled = watched(folder, model, rows(SAMPLES), kind=kind, **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


@pytest.mark.parametrize("name", NAMES)
def test_every_step_has_the_rate_of_its_formula(tmp_path: Path, name: str) -> None:
    """D06, D09 to D12, D14, D16: steps in two passes, saved in the middle and resumed."""
    whole = train(tmp_path, name, **PASSES, save_strategy="steps", save_steps=12)
    assert whole.asked == [(TOTAL, "samples", STEP)]
    assert {len(parts) for parts in whole.steps()} == {2}
    assert whole.done == list(range(0, TOTAL, STEP))
    assert whole.rates == pytest.approx([by_hand(name, done) for done in whole.done], abs=1e-12)
    assert whole.rates[0] == pytest.approx(RATE / WARMUP_STEPS)
    assert whole.used == whole.rates
    resumed = train(tmp_path / "again", name, str(tmp_path / "checkpoint-12"), **PASSES)
    assert resumed.rates == whole.rates[12:]
    assert resumed.used == resumed.rates


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_that_doubles_changes_no_rate_of_a_sample(tmp_path: Path, name: str) -> None:
    """D09 to D12, D14: steps of eight from the middle on have the rates of the fours that begin where they do."""
    plans = {13: Plan.of(batch_size=8)}
    options = {"per_device_train_batch_size": 4, **GROWING, "plans": plans}
    whole = train(tmp_path, name, **options, save_strategy="steps", save_steps=14)
    assert whole.done[12] == 12 * STEP
    assert 8 in {record.shape.samples for record in whole.records[13:17]}
    assert whole.done[-1] + whole.records[-1].shape.samples == TOTAL
    assert whole.rates == pytest.approx([by_hand(name, done) for done in whole.done], abs=1e-12)
    resumed = train(tmp_path / "again", name, str(tmp_path / "checkpoint-14"), **options)
    assert resumed.done == whole.done[14:]
    assert resumed.rates == whole.rates[14:]


def test_a_run_of_so_many_steps_counts_steps(tmp_path: Path) -> None:
    """D10: whatever they train; with a constant batch its rates are those of a run counted in samples."""
    steps = TOTAL // STEP
    counted = train(tmp_path, "cosine", **PASSES, max_steps=steps)
    assert counted.asked == [(steps, "steps", STEP)]
    by_samples = [by_hand("cosine", STEP * step) for step in range(steps)]
    assert counted.rates == pytest.approx(by_samples)
    plans = {8: Plan.of(batch_size=8)}
    growing = train(tmp_path, "cosine", **GROWING, per_device_train_batch_size=4, max_steps=steps, plans=plans)
    assert growing.done[-1] > counted.done[-1]
    assert growing.rates == counted.rates


def test_restarts_are_those_of_transformers(tmp_path: Path) -> None:
    """D10: but for the warm-up, which begins at 0 there."""
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], RATE)
    theirs = get_cosine_with_hard_restarts_schedule_with_warmup(sgd, WARMUP, TOTAL, num_cycles=3)
    ours = train(tmp_path, "cosine_with_restarts", **PASSES)
    factors = [theirs.lr_lambdas[0](done) for done in ours.done if done >= WARMUP]
    assert ours.rates[WARMUP_STEPS:] == pytest.approx([RATE * factor for factor in factors], abs=1e-12)


class HalvesOddSteps(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Changes a rate for one step, as rules for steps that grow do."""

    def on_pre_optimizer_step(self, _args: Any, state: Any, _control: Any, optimizer: Any, **_others: Any) -> None:
        self._factor = 0.5 if state.global_step % 2 else 1.0
        for group in optimizer.param_groups:
            group["lr"] *= self._factor

    def on_optimizer_step(self, _args: Any, _state: Any, _control: Any, optimizer: Any, **_others: Any) -> None:
        for group in optimizer.param_groups:
            group["lr"] /= self._factor


def test_logs_hold_the_rates_that_steps_were_trained_with(tmp_path: Path) -> None:
    """D16, D17: lines of steps, of which curves are made; what was changed for one step is in its line alone."""
    trainer: Scheduled = watched(
        tmp_path, tiny_model(), rows(SAMPLES), kind=Scheduled, **PASSES, num_train_epochs=2, run_directory=str(tmp_path)
    )
    trainer.add_callback(HalvesOddSteps())
    trainer.train()
    expected = [by_hand("linear", done, total=40) for done in range(0, 40, STEP)]
    halved = [rate * (0.5 if step % 2 else 1.0) for step, rate in enumerate(expected)]
    (log,) = tmp_path.rglob("training_log.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["lr"]["train"] for line in lines if "lr" in line] == pytest.approx(halved)
    assert trainer.rates == pytest.approx(halved)
    logged = [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged == pytest.approx(halved)  # and not the schedule's


def test_a_second_call_begins_the_schedule_anew(tmp_path: Path) -> None:
    trainer = train(tmp_path, "linear", **PASSES, max_steps=8)
    trainer.train()
    assert trainer.rates[8:] == trainer.rates[:8]
    assert trainer.rates[0] == pytest.approx(RATE / WARMUP_STEPS)


def test_a_schedule_handed_in_is_kept_to(tmp_path: Path) -> None:
    """What a person makes counts for more than what a class would."""
    net = tiny_model()
    sgd = torch.optim.SGD(net.parameters(), 0.5)
    more = {"optimizers": (sgd, LambdaLR(sgd, lambda done: 1 / (1 + done)))}
    trainer = watched(tmp_path, net, rows(SAMPLES), kind=Scheduled, more=more, max_steps=3)
    trainer.train()
    assert trainer.rates == [0.5, 0.25, 0.5 / 3]


@pytest.mark.parametrize("changes", [{"num_train_epochs": 9}, {"num_train_epochs": 9, "learning_rate": RATE / 4}])
def test_a_resume_goes_by_its_own_schedule(tmp_path: Path, changes: dict[str, Any]) -> None:
    """From its first step on: the rate that a checkpoint's optimizer holds is that of the schedule of then.

    A run that was at its end, and is to be longer, would otherwise begin with a step at rate 0.
    """
    options = {**PASSES, "num_train_epochs": 3, "save_strategy": "steps", "save_steps": 15}
    at_its_end = SAMPLES * 3 // STEP
    assert train(tmp_path, "linear", **options).rates[-1] > 0
    resumed = train(tmp_path / "again", "linear", str(tmp_path / f"checkpoint-{at_its_end}"), **{**options, **changes})
    total = SAMPLES * changes.get("num_train_epochs", 3)
    share = changes.get("learning_rate", RATE) / RATE
    assert resumed.rates == pytest.approx([share * by_hand("linear", done, total=total) for done in resumed.done])
    assert len(resumed.rates) == (total - 3 * SAMPLES) // STEP
    assert resumed.used == resumed.rates


def test_a_resume_in_the_middle_may_have_another_rate(tmp_path: Path) -> None:
    options = {**PASSES, "num_train_epochs": 3, "save_strategy": "steps", "save_steps": 7}
    whole = train(tmp_path, "linear", **options)
    resumed = train(
        tmp_path / "again", "linear", str(tmp_path / "checkpoint-7"), **{**options, "learning_rate": RATE * 3}
    )
    assert resumed.rates == pytest.approx([3 * rate for rate in whole.rates[7:]])


def test_what_is_saved_of_a_schedule_is_how_far_it_is(tmp_path: Path) -> None:
    """Another schedule can take it up, and nothing of ours is in it."""
    train(tmp_path, **PASSES, num_train_epochs=2, save_strategy="steps", save_steps=3)
    state = torch.load(tmp_path / "checkpoint-3" / "scheduler.pt", weights_only=True)
    assert state["last_epoch"] == 3 * STEP
    assert set(state["lr_lambdas"]) == {None}


def test_a_resume_may_count_in_another_unit(tmp_path: Path) -> None:
    """Of epochs in place of steps, and the other way round: how far it is follows from what was trained."""
    train(tmp_path / "epochs", "cosine", **PASSES, save_strategy="steps", save_steps=12)
    steps = 2 * TOTAL // STEP
    longer = train(tmp_path, "cosine", str(tmp_path / "epochs" / "checkpoint-12"), **PASSES, max_steps=steps)
    assert longer.done[0] == 12 * STEP
    assert longer.rates == pytest.approx([by_hand("cosine", STEP * step / 2) for step in range(12, steps)], rel=0.2)
    assert min(longer.rates[:-1]) > 0
    train(tmp_path / "steps", "cosine", **PASSES, max_steps=TOTAL // STEP, save_strategy="steps", save_steps=12)
    back = train(tmp_path / "back", "cosine", str(tmp_path / "steps" / "checkpoint-12"), **PASSES)
    assert back.rates == pytest.approx([by_hand("cosine", done) for done in back.done], abs=1e-12)
