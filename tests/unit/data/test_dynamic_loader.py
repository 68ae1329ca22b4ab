"""The loader follows plans; neither workers nor resumes change what it draws."""

import multiprocessing
import pickle
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch

from trainauto.core.batch import Batch
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader, GTImageDataset
from trainauto.data.sampler import LoggedBatch, ShuffledStream
from trainauto.data.split_batch import first_piece

SAMPLES = 10
Script = dict[int, Plan]
# Must-hold of issue 2: lq 48 -> 64 -> 32, batch 4 -> 9 -> 2 at fixed steps.
START = Plan.of(batch_size=4, lq_size=48)
SCRIPT: Script = {5: Plan.of(batch_size=9, lq_size=64), 16: Plan.of(batch_size=2, lq_size=32)}


@pytest.fixture
def dataset(write_images: Callable[..., Path]) -> GTImageDataset:
    return GTImageDataset(str(write_images("photos", SAMPLES, (150, 160))), scale=2)


def run(loader: DynamicDataLoader, steps: range, script: Script = SCRIPT) -> list[Batch]:
    batches = []
    for step, batch in zip(steps, loader, strict=False):
        batches.append(batch)
        if step in script:
            loader.update_plan(script[step])
    return batches


def facts(batches: list[Batch]) -> list[tuple]:
    return [
        (b.first_sample, b.names, b.plan, b.drawn, b.tensors["lq"].sum().item(), b.tensors["gt"].shape) for b in batches
    ]


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


def logged(batches: list[Batch]) -> list[LoggedBatch]:
    return [LoggedBatch(b.first_sample, len(b), b.shape.extent, b.drawn, b.plan) for b in batches]


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
            loader.replay(logged(batches), trained)
            followed = []
            for step, batch in enumerate(loader, trained + 1):
                followed.append(batch)
                if step in shrinks_in_flight:
                    loader.update_plan(shrinks_in_flight[step])
            again = loader.state_dict()
        assert facts(followed) == facts(batches[trained:])
        for ours, theirs in zip(followed, batches[trained:], strict=True):
            assert torch.equal(ours.tensors["lq"], theirs.tensors["lq"])
        assert again == state  # the growth that was asked for after step 27 has not acted yet


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
