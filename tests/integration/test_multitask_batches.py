"""Batches of several tasks with worker processes: torch's loader, and our own."""

from itertools import chain, islice

import pytest
from torch.utils.data import DataLoader

from tests.mixed_sets import PricedMib, mixed_set, table_of
from tests.token_workloads import TokenTexts
from trainauto.core.plan import Axis, Plan
from trainauto.data.packed_stream import PackedDraws
from trainauto.integrations.loop_parts import LoopLoader
from trainauto.multitask import HeterogeneousCollator, MemoryAwareBatchSampler
from trainauto.tasks.multitask.batches.mixed_stream import MixedStream
from trainauto.tasks.multitask.batches.sample_cost import PaddedUnits

DATASET = mixed_set(200)


def loader_of(workers: int) -> tuple[DataLoader, MemoryAwareBatchSampler]:
    sampler = MemoryAwareBatchSampler(DATASET, 16, 400, predictor=PricedMib())
    collator = HeterogeneousCollator.of_dataset(DATASET)
    return DataLoader(DATASET, batch_sampler=sampler, collate_fn=collator, num_workers=workers), sampler


@pytest.mark.parametrize("workers", [0, 2])
def test_the_published_loader_gives_every_sample_once_and_resumes(workers: int) -> None:
    loader, sampler = loader_of(workers)
    begin = sampler.state_dict()
    trained = [[row["number"] for row in batch.metadata] for batch in islice(loader, 5)]
    state = sampler.advanced(begin, 5)
    expected = [[row["number"] for row in batch.metadata] for batch in loader_of(0)[0]]
    assert trained == expected[:5]
    resumed, resumed_sampler = loader_of(workers)
    resumed_sampler.load_state_dict(state)
    assert [[row["number"] for row in batch.metadata] for batch in resumed] == expected[5:]
    assert sorted(chain.from_iterable(expected)) == list(range(200))


def names_of(workers: int, steps: int) -> list[tuple[str, ...]]:
    stream = MixedStream(table_of(DATASET), PaddedUnits(20), 5)
    loader = LoopLoader(
        TokenTexts(DATASET.tokens),
        Plan.of(tokens=900),
        seed=1,
        num_workers=workers,
        lookahead=2,
        stream=stream,
        new_batcher=lambda *_: PackedDraws(stream),
    )
    loader.axes = (Axis("tokens", "tokens", 144, 10_000),)
    names = []
    with loader:
        for number, batch in enumerate(islice(loader, steps)):
            names.append(batch.names)
            if number in (3, 9):
                loader.update_plan(Plan.of(tokens={3: 2000, 9: 500}[number]))
    return names


def test_our_loader_gives_the_same_with_workers_under_plans_that_change() -> None:
    alone = names_of(0, 60)
    assert names_of(2, 60) == alone
    first = list(chain.from_iterable(alone))[:200]
    assert sorted(first) == sorted(f"text {number}" for number in range(200))
