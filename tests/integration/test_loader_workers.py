"""Neither workers nor their number change what the loader draws; they end with it."""

import multiprocessing
import pickle
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch

from tests.scripted_loader import START, facts, follow, logged, photographs, run
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader, GTImageDataset


@pytest.fixture
def dataset(write_images: Callable[..., Path]) -> GTImageDataset:
    return photographs(write_images)


def test_plan_changes_are_the_same_for_any_number_of_workers(dataset: GTImageDataset) -> None:
    seen = []
    for workers in (0, 1, 4):
        with DynamicDataLoader(dataset, START, seed=7, num_workers=workers, lookahead=4) as loader:
            batches = run(loader, range(1, 41))
        seen.append(facts(batches))
        if workers == 0:
            reference = batches
        for ours, theirs in zip(batches, reference, strict=True):
            assert torch.equal(ours.tensors["lq"], theirs.tensors["lq"])
            assert torch.equal(ours.tensors["gt"], theirs.tensors["gt"])
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("stop_after", [1, 5, 7, 12, 16, 18, 19, 25])
def test_resume_goes_on_with_the_same_batches(dataset: GTImageDataset, stop_after: int) -> None:
    with DynamicDataLoader(dataset, START, seed=7, num_workers=0, lookahead=4) as loader:
        want = facts(run(loader, range(1, 41)))
    with DynamicDataLoader(dataset, START, seed=7, num_workers=1, lookahead=4) as first:
        before = run(first, range(1, stop_after + 1))
        state = first.state_dict()
    with DynamicDataLoader(dataset, START, seed=7, num_workers=0, lookahead=4) as second:
        second.load_state_dict(state)
        after = run(second, range(stop_after + 1, 41))
    assert facts(before) + facts(after) == want


def test_spawned_workers_and_pickles(dataset: GTImageDataset) -> None:
    """Fault 19: what workers are handed (dataset, collation, their start) has to be pickled where they are spawned."""
    assert pickle.loads(pickle.dumps(dataset)).sample_name(3) == dataset.sample_name(3)
    with DynamicDataLoader(dataset, START, seed=7, num_workers=1, multiprocessing_context="spawn") as loader:
        spawned = facts(list(islice(loader, 3)))
    with DynamicDataLoader(dataset, START, seed=7) as loader:
        assert spawned == facts(list(islice(loader, 3)))


def test_workers_live_through_plan_changes_and_end_with_the_loader(dataset: GTImageDataset) -> None:
    with DynamicDataLoader(dataset, START, seed=7, num_workers=2, lookahead=4) as loader:
        batches = iter(loader)
        next(batches)
        before = {child.pid for child in multiprocessing.active_children()}
        loader.update_batch_size(9)
        loader.update_lq_size(64)
        assert [len(batch) for batch in islice(batches, 6)][-1] == 9
        assert {child.pid for child in multiprocessing.active_children()} == before
        assert len(before) == 2
    assert not multiprocessing.active_children()


def test_global_random_stream_is_left_alone(dataset: GTImageDataset) -> None:
    torch.manual_seed(5)
    want = torch.rand(1)
    torch.manual_seed(5)
    with DynamicDataLoader(dataset, START, seed=7, num_workers=1) as loader:
        next(iter(loader))
    assert torch.equal(torch.rand(1), want)


@pytest.mark.parametrize("workers", [0, 1])
def test_unreadable_file_is_named_without_a_workers_traceback(dataset: GTImageDataset, workers: int) -> None:
    broken = Path(dataset.sample_name(4))
    broken.write_bytes(b"no image any more")
    with DynamicDataLoader(dataset, START, seed=7, num_workers=workers) as loader, pytest.raises(InputError) as caught:
        list(islice(loader, 5))
    assert str(broken) in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert not multiprocessing.active_children()  # ended with the loader, though the error is still held


@pytest.mark.parametrize("workers", [0, 2])
def test_a_log_is_followed_to_the_bit_and_its_position_too(dataset: GTImageDataset, workers: int) -> None:
    """Replay: nothing asks for plans at the right moment any more, and nothing gives a batch back."""
    shrinks_in_flight = {3: Plan.of(batch_size=9, lq_size=64), 10: Plan.of(batch_size=2, lq_size=32), 27: START}
    with DynamicDataLoader(dataset, START, seed=7, lookahead=4) as loader:
        begun = loader.state_dict()
        batches = run(loader, range(1, 13), shrinks_in_flight)
        within = loader.state_dict()
        batches += run(loader, range(13, 30), shrinks_in_flight)
        state = loader.state_dict()
    assert within["given"] > 0
    for trained, before in ((0, begun), (12, within)):  # from the beginning, and from within a draw
        with DynamicDataLoader(dataset, START, seed=7, num_workers=workers, lookahead=4) as loader:
            loader.load_state_dict(before)
            followed = follow(loader, logged(batches), trained, shrinks_in_flight)
            again = loader.state_dict()
        assert facts(followed) == facts(batches[trained:])
        for ours, theirs in zip(followed, batches[trained:], strict=True):
            assert torch.equal(ours.tensors["lq"], theirs.tensors["lq"])
        assert again == state  # the growth that was asked for after step 27 has not acted yet
