"""Steps and validations of a made-up run, for automations that go by what a run comes to."""

import random
from collections.abc import Callable, Iterable

from trainauto.core.automation import Automation
from trainauto.core.decisions import Decision
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import StepRecord, ValidationRecord

SAMPLES = 8


def step_of(
    step: int,
    loss: float,
    *,
    samples: int = SAMPLES,
    norms: dict[str, float] | None = None,
    skipped: tuple[str, ...] = (),
) -> StepRecord:
    plan = Plan.of(batch_size=samples, lq_size=16)
    return StepRecord(
        step=step,
        plan=plan,
        drawn=plan,
        shape=BatchShape(samples, 16),
        first_sample=(step - 1) * samples,
        losses={"l1": loss},
        learning_rates={"g": 1e-3},
        grad_norms={"g": 1.0} if norms is None else norms,
        data_seconds=0.0,
        step_seconds=0.1,
        skipped=skipped,
    )


def measured(
    step: int, value: float, metric: str = "psnr", *, dataset: str = "val", higher: bool = True
) -> ValidationRecord:
    return ValidationRecord(step, dataset, {metric: value}, {}, (), 0.1, 0, {metric: higher})


def decided(automation: Automation, records: Iterable[StepRecord]) -> dict[int, Decision]:
    """Return what was decided, by step."""
    asked = ((record.step, automation.on_step_end(record)) for record in records)
    return {step: decision for step, decision in asked if decision is not None}


def noisy(
    mean: Callable[[int], float], steps: range, *, noise: float = 0.2, seed: int = 0, samples: int = SAMPLES
) -> list[StepRecord]:
    """Return steps whose losses scatter around a mean by a share of it."""
    draw = random.Random(seed)
    return [step_of(step, mean(step) * (1 + draw.gauss(0, noise)), samples=samples) for step in steps]
