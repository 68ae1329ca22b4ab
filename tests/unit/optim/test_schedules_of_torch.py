"""Schedules against the classes and formulas of torch and other projects, and under batches that double."""

from collections.abc import Callable, Mapping
from math import cos, pi
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, lr_scheduler

from trainauto.optim import SCHEDULES
from trainauto.optim.schedules import RateSchedule

STEPS, RATE, ETA_MIN = 1000, 0.02, 1e-4
WARM, STABLE, DECAY = 100, 300, 500


def restarts(step: int) -> float:
    """The formula of BasicSR: a boundary belongs to the period before it, and the end stays."""
    begin = 0
    for period, weight in zip((250, 250, 400), (1, 0.5, 0.25), strict=True):
        if step <= begin + period:
            return ETA_MIN + weight * 0.5 * (RATE - ETA_MIN) * (1 + cos(pi * (step - begin) / period))
        begin += period
    return ETA_MIN


def warmed_up(step: int) -> float:
    """The formula of traiNNer-redux."""
    if step < WARM:
        return RATE * step / WARM
    return RATE * (0.1 + 0.9 * (1 + cos(pi * min(1.0, (step - WARM) / (STEPS - WARM)))) / 2)


def knee(step: int) -> float:
    return RATE if step <= 400 else RATE * (STEPS - step) / 600


def stable(fall: Callable[[float], float]) -> Callable[[int], float]:
    """The formula of pytorch_optimizer, one way of falling for another."""

    def rate(step: int) -> float:
        if step < WARM:
            return RATE * step / WARM
        if step < WARM + STABLE:
            return RATE
        done = (step - WARM - STABLE) / DECAY
        return RATE * (fall(done) if done < 1 else 0.2)

    return rate


def of_torch(kind: Any, **arguments: Any) -> Callable[[], list[float]]:
    def found() -> list[float]:
        optimizer = SGD([nn.Parameter(torch.zeros(1))], RATE)
        schedule, rates = kind(optimizer, **arguments), []
        for _ in range(STEPS):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return rates

    return found


LENGTHS = {"num_warmup_steps": WARM, "num_stable_steps": STABLE, "num_decay_steps": DECAY, "min_lr_ratio": 0.2}
PLACES = {
    "T_max",
    "T_0",
    "periods",
    "total_iters",
    "warmup_iters",
    "total_steps",
    "step_size",
    "milestones",
    "num_warmup_steps",
    "num_stable_steps",
    "num_decay_steps",
}
"""Arguments that are places in a run, in its unit."""

CASES: dict[str, tuple[str, dict[str, Any], Callable[[int], float] | Callable[[], list[float]]]] = {
    "cosine": (
        "CosineAnnealingLR",
        {"T_max": 400, "eta_min": ETA_MIN},
        of_torch(lr_scheduler.CosineAnnealingLR, T_max=400, eta_min=ETA_MIN),
    ),
    "restarts": (
        "CosineAnnealingRestartLR",
        {"periods": [250, 250, 400], "restart_weights": [1, 0.5, 0.25], "eta_min": ETA_MIN},
        restarts,
    ),
    "growing": (
        "CosineAnnealingWarmRestarts",
        {"T_0": 90, "T_mult": 2, "eta_min": ETA_MIN},
        of_torch(lr_scheduler.CosineAnnealingWarmRestarts, T_0=90, T_mult=2, eta_min=ETA_MIN),
    ),
    "warm-up": ("CosineAnnealingWarmupLR", {"warmup_iters": WARM}, warmed_up),
    "one cycle": ("OneCycleLR", {}, of_torch(lr_scheduler.OneCycleLR, max_lr=RATE, total_steps=STEPS)),
    "one cycle, straight": (
        "OneCycleLR",
        {"anneal_strategy": "linear", "max_lr": 0.5},
        of_torch(lr_scheduler.OneCycleLR, max_lr=0.5, total_steps=STEPS, anneal_strategy="linear"),
    ),
    "three phases": (
        "OneCycleLR",
        {"three_phase": True, "pct_start": 0.2},
        of_torch(lr_scheduler.OneCycleLR, max_lr=RATE, total_steps=STEPS, three_phase=True, pct_start=0.2),
    ),
    "knee": ("KneeLR", {"explore_ratio": 0.4}, knee),
    "polynomial": (
        "PolynomialLR",
        {"power": 1.5, "total_iters": 800},
        of_torch(lr_scheduler.PolynomialLR, power=1.5, total_iters=800),
    ),
    "step": ("StepLR", {"step_size": 170, "gamma": 0.7}, of_torch(lr_scheduler.StepLR, step_size=170, gamma=0.7)),
    "multistep": (
        "MultiStepLR",
        {"milestones": [100, 700, 701], "gamma": 0.4},
        of_torch(lr_scheduler.MultiStepLR, milestones=[100, 700, 701], gamma=0.4),
    ),
    "wsd, root": ("WarmupStableDecayLR", LENGTHS, stable(lambda done: 1 - done**0.5)),
    "wsd, square": ("WarmupStableDecayLR", {**LENGTHS, "cooldown_type": "1-square"}, stable(lambda done: 1 - done**2)),
    "wsd, straight": ("WarmupStableDecayLR", {**LENGTHS, "cooldown_type": "linear"}, stable(lambda done: 1 - done)),
    "wsd, cosine": (
        "WarmupStableDecayLR",
        {**LENGTHS, "cooldown_type": "cosine"},
        stable(lambda done: 0.2 + 0.8 * (1 + cos(pi * done)) / 2),
    ),
}


def schedule_of(name: str, arguments: Mapping[str, Any], samples: int = 1) -> RateSchedule:
    """Return the schedule of a run of STEPS steps, or of as many samples."""
    placed = {
        key: [samples * place for place in value] if isinstance(value, list) else samples * value
        for key, value in arguments.items()
        if key in PLACES
    }
    shape = SCHEDULES.get(name)(**{**arguments, **placed}, total=STEPS * samples)
    return RateSchedule(shape, STEPS * samples, "steps" if samples == 1 else "samples", step=float(samples))


@pytest.mark.parametrize("case", CASES)
def test_rates_are_those_of_its_formula_or_of_torch(case: str) -> None:
    name, arguments, expected = CASES[case]
    schedule = schedule_of(name, arguments)
    found = [schedule.rate_at(step, RATE) for step in range(STEPS)]
    try:
        rates = [expected(step) for step in range(STEPS)]  # type: ignore[call-arg]
    except TypeError:
        rates = expected()  # type: ignore[call-arg, assignment]
    assert found == pytest.approx(rates, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if "cycle" not in case and "phases" not in case])
def test_counted_in_samples_they_are_the_same_under_a_batch_that_doubles(case: str) -> None:
    """Of 8 samples, and from the middle on of 16: where as many samples lie behind, the rate is the same."""
    name, arguments, _ = CASES[case]
    in_steps, in_samples = schedule_of(name, arguments), schedule_of(name, arguments, 8)
    for step in [*range(500), *range(500, STEPS, 2)]:
        assert in_samples.rate_at(8 * step, RATE) == pytest.approx(in_steps.rate_at(step, RATE), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "arguments", "what"),
    [
        (
            "CosineAnnealingRestartLR",
            {"periods": [10, 10], "restart_weights": [1]},
            "must be 2, one for each period",
        ),
        ("CosineAnnealingWarmRestarts", {"T_0": 0}, "T_0 must be above 0"),
        ("KneeLR", {"explore_ratio": 1.5}, "explore_ratio must lie in 0 to 1"),
        ("StepLR", {"step_size": 0}, "step_size must be above 0"),
        ("cosine", {"T_max": 5, "end_factor": 0.1}, "leave one out"),
    ],
)
def test_what_cannot_be_is_refused(name: str, arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        SCHEDULES.get(name)(**arguments, total=STEPS)
