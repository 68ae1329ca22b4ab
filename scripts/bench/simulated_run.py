"""A run without training: records, decisions and validations such as a real one reports, as many as are asked for."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from trainauto.core.decisions import Decision, PlanChange
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import ImageScore, MicrobatchSplit, PeakReading, Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import Picture, RunEnd, RunSummary
from trainauto.core.units import GIB, MIB

STEP_S = 0.2
LIMIT_BYTES = 12 * GIB
PLAN_EVERY, OOM_EVERY = 5_000, 20_011
"""Steps between changes of the plan, and between steps in which memory runs out."""


def summary_of(steps: int, folder: str) -> RunSummary:
    """Return how such a run begins."""
    return RunSummary(
        name="simulated",
        run_directory=folder,
        device="cuda:0 (simulated)",
        network="compact x4",
        parameters=621_424,
        plan=Plan.of(batch_size=16, lq_size=64),
        total=steps,
        samples={"train": 3450, "val": 100},
        train_set="train",
        memory_target_bytes=int(0.85 * LIMIT_BYTES),
        memory_limit_bytes=LIMIT_BYTES,
    )


def steps_of(steps: int, seed: int = 0) -> Iterator[tuple[StepRecord, Sequence[Decision], Progress]]:
    """Yield each step with what was decided upon it and the progress with it."""
    chance, progress, plan = random.Random(seed), Progress(), Plan.of(batch_size=16, lq_size=64)
    for step in itertools.count(1):
        if step > steps:
            return
        predicted = plan.batch_size * plan.size**2 * 96 * 1024 + 700 * MIB
        peak_bytes = int(predicted * chance.gauss(1.0, 0.01))
        ooms = int(step % OOM_EVERY == 0)
        record = StepRecord(
            step=step,
            plan=plan,
            drawn=plan,
            shape=BatchShape(plan.batch_size, plan.size, images=plan.batch_size),
            first_sample=progress.samples,
            losses={"l1": 0.02 + 0.2 / math.sqrt(step) + abs(chance.gauss(0, 0.004)), "gan": chance.gauss(0.7, 0.05)},
            learning_rates={"g": 2e-4 * (1 + math.cos(math.pi * step / steps)) / 2, "d": 1e-4},
            grad_norms={"g": chance.lognormvariate(-2, 0.3), "d": chance.lognormvariate(-1, 0.3)},
            data_seconds=chance.expovariate(200),
            step_seconds=chance.gauss(STEP_S, 0.005),
            units=plan.batch_size * plan.size**2 * 16,
            peak=PeakReading(peak_bytes, int(peak_bytes * 1.06), LIMIT_BYTES // 2, LIMIT_BYTES, 0, 900 * MIB),
            ooms=ooms,
            predicted=predicted,
            pieces={"g": MicrobatchSplit(2, plan.size)} if ooms else {},
        )  # fmt: skip
        progress += record
        decisions: list[Decision] = []
        if step % PLAN_EVERY == 0:
            before, plan = plan, Plan.of(batch_size=chance.randint(12, 24), lq_size=64)
            reason = f"peak {peak_bytes / LIMIT_BYTES:.1%} of {LIMIT_BYTES / GIB:.0f} GiB: {before} -> {plan}"
            decisions.append(PlanChange(plan, reason, predicted, peak_bytes, predicted))
        yield record, decisions, progress


def validation_of(step: int) -> tuple[ValidationRecord, list[Picture]]:
    """Return a validation with pictures after a step."""
    chance = np.random.default_rng(step)
    noise = chance.integers(0, 60, (512, 512, 3), dtype=np.uint8)
    slope = np.add.outer(np.arange(512), np.arange(512))[..., None].astype(np.uint8)
    pictures = [Picture(f"{name:04d}", noise // (name + 1) + slope, slope + noise, slope + noise) for name in range(4)]
    value = 26 + 4 * (1 - math.exp(-step / 2e5))
    scores = tuple(ImageScore(picture.name, {"psnr": value}, {"psnr": 26.5}) for picture in pictures)
    record = ValidationRecord(step, "Set5", {"psnr": value}, {"psnr": 26.5}, scores, 3.0, 0, {"psnr": True})
    return replace(record, peak=PeakReading(2 * GIB, limit=LIMIT_BYTES)), pictures


def end_of(steps: int) -> RunEnd:
    """Return how such a run ends."""
    return RunEnd("completed", "the run has come to its length", Progress(steps=steps))
