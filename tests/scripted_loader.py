"""A loader whose plans change at fixed steps, and what its batches are compared by."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainauto.core.batch import Batch
from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader, GTImageDataset
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.data.sampler import DynamicBatchSampler, LoggedBatch

SAMPLES = 10
Script = dict[int, Plan]
# Must-hold of issue 2: lq 48 -> 64 -> 32, batch 4 -> 9 -> 2 at fixed steps.
START = Plan.of(batch_size=4, lq_size=48)
SCRIPT: Script = {5: Plan.of(batch_size=9, lq_size=64), 16: Plan.of(batch_size=2, lq_size=32)}


def photographs(write_images: Callable[..., Path]) -> GTImageDataset:
    """Return a data set of photographs, written by the fixture of that name."""
    return GTImageDataset(str(write_images("photos", SAMPLES, (150, 160))), scale=2)


def run(loader: DynamicDataLoader, steps: range, script: Script = SCRIPT) -> list[Batch]:
    """Draw batches for these steps, changing the plan after those of the script."""
    batches = []
    for step, batch in zip(steps, loader, strict=False):
        batches.append(batch)
        if step in script:
            loader.update_plan(script[step])
    return batches


def facts(batches: list[Batch]) -> list[tuple[Any, ...]]:
    """Return what equal batches agree in."""
    return [
        (b.first_sample, b.names, b.plan, b.drawn, b.tensors["lq"].sum().item(), b.tensors["gt"].shape) for b in batches
    ]


def crops(batch: Batch) -> list[str]:
    """Return a digest of each sample of a batch: all its pixels, to the bit."""
    tensors = [batch.tensors[name] for name in sorted(batch.tensors)]
    return [hashlib.sha256(b"".join(t[i].numpy().tobytes() for t in tensors)).hexdigest() for i in range(len(batch))]


def logged(batches: list[Batch]) -> list[LoggedBatch]:
    """Return what the log of a run holds of batches."""
    return [LoggedBatch(b.first_sample, len(b), b.shape.extent, b.drawn, b.plan, b.draw_samples) for b in batches]


def follow(loader: DynamicDataLoader, log: list[LoggedBatch], trained: int, script: Script = SCRIPT) -> list[Batch]:
    """Draw what is left of a log after the batches trained before, asking for the plans of the script."""
    loader.replay(log, trained)
    return run(loader, range(trained + 1, len(log) + 2), script)


def fetched_ahead(stream: DynamicBatchSampler, ahead: int, changes_at: int, plan: Plan) -> list[list[SampleKey]]:
    """Return the keys of twelve draws of a loader that fetches so many ahead; after the third a plan is asked for."""
    iterator, fetched = iter(stream), []
    for trained in range(12):
        while len(fetched) < trained + 1 + ahead:
            fetched.append(next(iterator))
        if trained == 2:
            stream.change(changes_at, plan)
    return fetched[:12]
