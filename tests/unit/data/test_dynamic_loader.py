"""The loader follows plans, and resumes do not change what it draws."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.scripted_loader import SAMPLES, SCRIPT, START, facts, logged, photographs, run
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader, GTImageDataset
from trainauto.data.dynamic_loader import first_piece
from trainauto.data.sampler import ShuffledStream


@pytest.fixture
def dataset(write_images: Callable[..., Path]) -> GTImageDataset:
    return photographs(write_images)


def test_growth_waits_for_the_lookahead_and_shrinking_does_not(dataset: GTImageDataset) -> None:
    with DynamicDataLoader(dataset, START, seed=7, lookahead=4) as loader:
        batches = run(loader, range(1, 41))
    extents = [batch.shape.extent for batch in batches]
    assert extents[:9] == [48] * 9  # five trained when it was asked for, four more under way
    assert extents[9:16] == [64] * 7
    assert set(extents[16:]) == {32}
    assert max(len(batch) for batch in batches[16:]) == 2
    recut = [batch for batch in batches[16:] if batch.drawn != batch.plan]
    assert [len(batch) for batch in recut] == [2, 2, 2, 2, 1] * 4
    # No sample is lost or repeated, and every sample comes once an epoch.
    positions = [p for batch in batches for p in range(batch.first_sample, batch.first_sample + len(batch))]
    assert positions == list(range(len(positions)))
    order = ShuffledStream(SAMPLES, 7)
    names = [name for batch in batches for name in batch.names]
    assert names == [dataset.sample_name(order.index_at(p)) for p in positions]


@pytest.mark.parametrize("stop_after", [5, 18])
def test_plan_set_before_a_resume_acts_at_once_and_loses_nothing(dataset: GTImageDataset, stop_after: int) -> None:
    with DynamicDataLoader(dataset, START, seed=7, lookahead=4) as first:
        before = run(first, range(1, stop_after + 1))
        state = first.state_dict()
    with DynamicDataLoader(dataset, START, seed=7, lookahead=4) as second:
        second.load_state_dict(state)
        second.update_plan(Plan.of(batch_size=7, lq_size=40))
        after = run(second, range(1, 10), {})
    assert [len(batch) for batch in after][-7:] == [7] * 7
    positions = [p for b in before + after for p in range(b.first_sample, b.first_sample + len(b))]
    assert positions == list(range(len(positions)))


def test_changed_dataset_is_refused_on_resume(dataset: GTImageDataset, write_images: Callable[..., Path]) -> None:
    state = DynamicDataLoader(dataset, START, seed=7).state_dict()
    fewer = GTImageDataset(str(write_images("fewer", 3)), scale=2)
    with pytest.raises(InputError, match="has 3 samples, the checkpoint was written with 10"):
        DynamicDataLoader(fewer, START, seed=7).load_state_dict(state)


def test_recut_is_a_pure_function(dataset: GTImageDataset) -> None:
    with DynamicDataLoader(dataset, Plan.of(batch_size=9, lq_size=64), seed=1) as loader:
        batch = next(iter(loader))
    smaller = Plan.of(batch_size=4, lq_size=32, micro_batches=2)
    piece = first_piece(batch, 3, smaller)
    assert (len(piece), piece.plan, piece.shape.extent) == (3, smaller, 32)
    assert torch.equal(piece.tensors["lq"], batch.tensors["lq"][:3, :, :32, :32])
    assert torch.equal(piece.tensors["gt"], batch.tensors["gt"][:3, :, :64, :64])
    assert len(first_piece(batch, 9, Plan.of(batch_size=20, lq_size=99))) == 9


def test_lookahead_must_cover_the_workers(dataset: GTImageDataset) -> None:
    with pytest.raises(ValueError, match="lookahead"):
        DynamicDataLoader(dataset, START, seed=0, num_workers=3, lookahead=2)


def test_a_log_may_begin_with_another_plan(dataset: GTImageDataset) -> None:
    with DynamicDataLoader(dataset, SCRIPT[5], seed=7, lookahead=4) as loader:
        batches = run(loader, range(1, 4), {})
        state = loader.state_dict()
    with DynamicDataLoader(dataset, START, seed=7, lookahead=4) as loader:
        loader.replay(logged(batches))
        assert facts(list(loader)) == facts(batches)
        assert loader.state_dict() == state


def test_a_log_with_a_hole_is_not_followed(dataset: GTImageDataset) -> None:
    with DynamicDataLoader(dataset, START, seed=7, lookahead=4) as loader:
        batches = logged(run(loader, range(1, 8)))
        with pytest.raises(ValueError, match="after sample 8 came 4 from 12 on"):
            loader.replay([*batches[:2], *batches[3:]])
