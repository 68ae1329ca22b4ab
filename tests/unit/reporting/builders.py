"""Core records with everything filled in, for tests to vary."""

from dataclasses import replace
from typing import Any

import numpy as np

from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import ImageScore, PeakReading, Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import Picture, RunSummary

GIB = 2**30


def a_step(step: int = 1, **changes: Any) -> StepRecord:
    plan = Plan.of(batch_size=4, lq_size=48)
    record = StepRecord(
        step=step,
        plan=plan,
        drawn=plan,
        shape=BatchShape(samples=4, extent=48, images=4),
        first_sample=4 * (step - 1),
        losses={"l1": 0.5 / step},
        learning_rates={"g": 2e-4},
        grad_norms={"g": 1.25},
        data_seconds=0.02,
        step_seconds=0.18,
        units=4 * 192 * 192,
        peak=PeakReading(allocated=GIB, reserved=2 * GIB, device_used=3 * GIB, limit=4 * GIB, current=GIB // 2),
    )
    return replace(record, **changes)


def a_summary(**changes: Any) -> RunSummary:
    summary = RunSummary(
        name="demo",
        run_directory="experiments/demo/20250102_030405",
        device="cuda:0 NVIDIA H100 (79.1 GiB)",
        network="SRResNet x4",
        parameters=1_517_571,
        plan=Plan.of(batch_size=4, lq_size=48),
        total=100_000,
        samples={"train": 800, "val": 5},
        train_set="train",
    )
    return replace(summary, **changes)


def a_progress(steps: int) -> Progress:
    return Progress(steps=steps, samples=4 * steps, units=4 * 192 * 192 * steps, seconds=0.2 * steps)


def a_validation(step: int = 10, **changes: Any) -> ValidationRecord:
    record = ValidationRecord(
        step=step,
        dataset="val",
        metrics={"psnr": 28.5, "lpips": 0.25},
        baseline={"psnr": 28.0, "lpips": 0.3},
        scores=(ImageScore("baby", {"psnr": 28.5, "lpips": 0.25}, {"psnr": 28.0, "lpips": 0.3}),),
        seconds=3.25,
        tile_px=0,
        better_is_higher={"psnr": True, "lpips": False},
    )
    return replace(record, **changes)


def a_picture(height: int = 20, width: int = 30, channels: int = 3) -> Picture:
    def flat(value: int) -> Any:
        return np.full((height, width, channels), value, np.uint8)

    return Picture("baby", output=flat(100), baseline=flat(50), reference=flat(200))
