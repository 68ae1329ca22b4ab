"""Degraded crops that a loader gives: the same pixels to the bit, whichever process makes them, and when."""

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.scripted_loader import Script, crops, follow, logged, run
from tests.unit.tasks.sr.degradations.settings import SETTINGS
from trainauto.core.batch import Batch
from trainauto.core.plan import Plan
from trainauto.core.sharding import SampleSharding
from trainauto.data import DynamicDataLoader, SampleKey
from trainauto.data.sampler import ShuffledStream
from trainauto.tasks.sr.data import RealESRGANDataset

SEED, STEPS, SCALE = 3, 24, 2
START = Plan.of(batch_size=4, lq_size=24)
SCRIPT: Script = {5: Plan.of(batch_size=2, lq_size=16), 14: Plan.of(batch_size=4, lq_size=20)}
"""The first change cuts the crops in flight, the second one acts after the lookahead."""


@pytest.fixture
def dataset(write_images: Callable[..., Path]) -> RealESRGANDataset:
    return RealESRGANDataset(str(write_images("gt", 7, (100, 120))), scale=SCALE, degradations=SETTINGS)


def loader_of(dataset: RealESRGANDataset, plan: Plan = START, **how: Any) -> DynamicDataLoader:
    return DynamicDataLoader(dataset, plan, seed=SEED, lookahead=4, **how)


def pixels(batches: list[Batch]) -> list[tuple[int, Plan, list[str]]]:
    return [(batch.first_sample, batch.plan, crops(batch)) for batch in batches]


def whole_stream(dataset: RealESRGANDataset, workers: int = 0) -> list[Batch]:
    with loader_of(dataset, num_workers=workers) as loader:
        return run(loader, range(1, STEPS + 1), SCRIPT)


@pytest.mark.parametrize("workers", [2, 4])
def test_any_number_of_workers_makes_the_same_pixels(dataset: RealESRGANDataset, workers: int) -> None:
    alone = whole_stream(dataset)
    assert pixels(whole_stream(dataset, workers)) == pixels(alone)
    made = [crop for batch in alone for crop in crops(batch)]
    assert len(set(made)) == len(made) > 2 * len(dataset), "an image is another crop each time"


def test_a_resume_at_any_step_makes_what_comes_next(dataset: RealESRGANDataset) -> None:
    whole, states = [], {}
    with loader_of(dataset) as loader:
        for step, batch in enumerate(islice(loader, STEPS), 1):
            whole.append(batch)
            if step in SCRIPT:
                loader.update_plan(SCRIPT[step])
            states[step] = loader.state_dict()
    for turn, step in enumerate(random.Random(20261127).sample(range(1, STEPS), 10)):
        with loader_of(dataset, num_workers=(0, 2, 4)[turn % 3]) as loader:
            loader.load_state_dict(states[step])
            end = min(STEPS, step + 6)
            assert pixels(run(loader, range(step + 1, end + 1), SCRIPT)) == pixels(whole[step:end]), step


@pytest.mark.parametrize("workers", [0, 2])
def test_a_crop_cut_in_flight_is_the_corner_of_what_was_drawn(dataset: RealESRGANDataset, workers: int) -> None:
    """Each sample of a cut batch is made once more as it was drawn, by its place in the stream alone."""
    stream, cut = ShuffledStream(len(dataset), SEED), 0
    for batch in whole_stream(dataset, workers):
        side = batch.shape.extent
        for i in range(len(batch)):
            position = batch.first_sample + i
            key = SampleKey(stream.index_at(position), batch.drawn.size, stream.seed_at(position))
            drawn = dataset[key]
            assert torch.equal(batch.tensors["lq"][i], drawn["lq"][:, :side, :side])
            assert torch.equal(batch.tensors["gt"][i], drawn["gt"][:, : SCALE * side, : SCALE * side])
        cut += side < batch.drawn.size
    assert cut == 8, "four draws of 4 samples were under way, and came two by two"


def half(plan: Plan) -> Plan:
    return plan.with_batch_size(plan.batch_size // 2)


def test_two_ranks_make_the_pixels_of_one(dataset: RealESRGANDataset) -> None:
    ranks, halves = [], {step: half(plan) for step, plan in SCRIPT.items()}
    for rank in (0, 1):
        how = {"sharding": SampleSharding.equal(2), "rank": rank, "num_workers": 2 * rank}
        with loader_of(dataset, half(START), **how) as loader:
            ranks.append(run(loader, range(1, STEPS + 1), halves))
    for first, second, one in zip(*ranks, whole_stream(dataset), strict=True):
        assert first.first_sample == second.first_sample == one.first_sample
        turns = zip(crops(first), crops(second), strict=True)
        assert [crop for turn in turns for crop in turn] == crops(one)


def test_a_log_is_replayed_to_the_bit(dataset: RealESRGANDataset) -> None:
    whole = whole_stream(dataset)
    with loader_of(dataset, num_workers=2) as loader:
        assert pixels(follow(loader, logged(whole), 0, SCRIPT)) == pixels(whole)
