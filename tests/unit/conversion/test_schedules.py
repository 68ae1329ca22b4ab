"""Schedules of torch have the same rates here, or are named."""

from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from trainauto.conversion.answers import Kind
from trainauto.conversion.convert import Conversion, convert
from trainauto.optim import SCHEDULES
from trainauto.optim.schedules import RateSchedule
from trainauto.options.foreign_files import Project

TOTAL, RATE = 12, 0.5


def of(schedule: dict[str, Any], **train: Any) -> Conversion:
    theirs = {"name": "x", "scale": 2, "network_g": {"type": "compact"}}
    return convert({**theirs, "train": {"total_iter": TOTAL, "scheduler": schedule, **train}}, Project.REDUX)


def rates_here(written: dict[str, Any]) -> list[float]:
    arguments = {key: value for key, value in written.items() if key != "type"}
    build = SCHEDULES.get(written["type"])
    try:
        shape = build(**arguments, total=TOTAL)
    except TypeError:  # a schedule of shares alone
        shape = build(**arguments)
    schedule = RateSchedule(shape, TOTAL)
    return [schedule.rate_at(step, RATE) for step in range(TOTAL)]


def rates_there(name: str, arguments: dict[str, Any]) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    schedule, rates = getattr(lr_scheduler, name)(optimizer, **arguments), []
    for _ in range(TOTAL):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("LinearLR", {"start_factor": 1.0, "end_factor": 0.25, "total_iters": TOTAL}),
        ("LinearLR", {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 8}),
        ("LinearLR", {"start_factor": 1.0}),
        ("ConstantLR", {"factor": 1.0}),
        ("PolynomialLR", {"power": 2.0}),
        ("PolynomialLR", {"total_iters": 9, "power": 1.5}),
        ("StepLR", {"step_size": 3}),
        ("MultiStepLR", {"milestones": [2, 7]}),
        ("ExponentialLR", {"gamma": 0.9}),
        ("CosineAnnealingLR", {"T_max": 10, "eta_min": 0.1}),
        ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
        ("OneCycleLR", {"max_lr": 0.7, "total_steps": TOTAL + 1, "cycle_momentum": False}),
        ("OneCycleLR", {"max_lr": 0.7, "epochs": 4, "steps_per_epoch": 4, "cycle_momentum": False}),
    ],
    ids=str,
)
def test_a_schedule_of_torch_has_the_same_rates(name: str, arguments: dict[str, Any]) -> None:
    conversion = of({"type": name, **arguments})
    assert conversion.is_complete
    assert not conversion.of(Kind.UNKNOWN)
    assert rates_here(conversion.tree["train"]["scheduler"]) == pytest.approx(rates_there(name, arguments))


@pytest.mark.parametrize("schedule", [{"type": "LinearLR"}, {"type": "ConstantLR", "factor": 0.1, "total_iters": 3}])
def test_a_schedule_that_only_begins_lower_is_left_out(schedule: dict[str, Any]) -> None:
    conversion = of(schedule)
    assert "scheduler" not in conversion.tree["train"]
    (answer,) = [one for one in conversion.of(Kind.LEFT_OUT) if one.source == (("train", "scheduler"),)]
    assert f"in {schedule.get('total_iters', 5)} steps" in answer.why.replace("for", "in")
    assert answer.near.startswith(f"train.warmup_steps: {schedule.get('total_iters', 5)}")
    (answer,) = [one for one in of(schedule, warmup_iter=4).of(Kind.LEFT_OUT) if one.source[0][-1] == "scheduler"]
    assert "train.warmup_steps begins at a lower rate here" in answer.why


@pytest.mark.parametrize(
    "schedule",
    [
        {"type": "LinearLR", "start_factor": 1.0, "end_factor": 0.1, "total_iters": 4},
        {"type": "LinearLR", "total_iters": TOTAL},
        {"type": "LinearLR", "total_iters": "x"},
        {"type": "ConstantLR", "factor": 0.5, "total_iters": TOTAL},
        {"type": "ConstantLR", "factor": 2.0},
        {"type": "ExponentialLR"},
        {"type": "CyclicLR", "base_lr": 0.1},
        {"type": "LambdaLR"},
    ],
    ids=str,
)
def test_a_schedule_without_an_equal_stays_and_has_to_be_changed(schedule: dict[str, Any]) -> None:
    conversion = of(schedule)
    assert conversion.tree["train"]["scheduler"] == schedule
    (missing,) = conversion.of(Kind.MISSING)
    assert missing.near


def test_a_cycle_of_momentum_is_named() -> None:
    (answer,) = of({"type": "OneCycleLR", "max_lr": 1, "base_momentum": 0.8}).of(Kind.DIFFERS)
    assert "moves momentum" in answer.why


def test_a_knee_has_one_peak_for_both_optimizers() -> None:
    rates = {"optim_g": {"type": "Adam", "lr": 1e-3}, "optim_d": {"type": "Adam", "lr": 1e-4}}
    assert of({"type": "KneeLR"}, **rates).tree["train"]["scheduler"] == {"type": "KneeLR", "peak_lr": 1e-3}
