"""The batch sampler of several tasks: lists of indices within memory, every sample once, from any position on."""

import json
import logging
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.mixed_sets import DescribedSet, MixedSet, PricedMib, mixed_set, mixed_sets, taken_mib
from trainauto.core.errors import InputError
from trainauto.data.packing import PackingMismatchError, TooFewSamplesError
from trainauto.multitask import MemoryAwareBatchSampler
from trainauto.tasks.multitask.batches.mixed_stream import SampleDoesNotFitError

PRICED = PricedMib()
LIMITS = st.integers(40, 400)
"""MiB: every sample of the sets has room alone."""


def sampler_of(dataset: Any, limit_mib: float = 300, batch_size: int | None = None, **settings: Any) -> Any:
    return MemoryAwareBatchSampler(dataset, batch_size, limit_mib, **{"predictor": PRICED, **settings})


def ranks_of(world_size: int, *arguments: Any, **settings: Any) -> list[Any]:
    """Return the samplers of all ranks; sets that give some rank fewer batches are passed over."""
    try:
        return [sampler_of(*arguments, rank=rank, world_size=world_size, **settings) for rank in range(world_size)]
    except TooFewSamplesError:
        assume(False)
        raise


def test_a37_the_published_call_gives_lists_within_memory(caplog: pytest.LogCaptureFixture) -> None:
    train_dataset = mixed_set(200)
    with caplog.at_level(logging.INFO):
        sampler = MemoryAwareBatchSampler(
            dataset=train_dataset, batch_size=16, max_memory_mb=30000, shuffle=True, task_diversity_weight=0.5
        )
    assert "what BrainVLM published" in caplog.text
    batches = list(sampler)
    assert 13 <= len(batches) < 30
    assert sorted(chain.from_iterable(batches)) == list(range(200))
    assert max(map(len, batches)) <= 16
    for batch in batches:
        most = max(train_dataset.images(index) for index in batch)
        assert len(batch) * (0.27 + 0.63 * most) * 1024 <= 30000


def single_indices(dataset: Any) -> Iterator[int]:
    """The faulty sampler of A39: it gives samples, not batches."""
    yield from range(len(dataset))


def test_a39_a_data_loader_takes_it_as_its_batch_sampler_which_it_cannot_take_single_indices_for() -> None:
    dataset = mixed_set(30)
    loader = DataLoader(dataset, batch_sampler=sampler_of(dataset), collate_fn=list)
    numbers = [sample["number"] for batch in loader for sample in batch]
    assert sorted(numbers) == list(range(30))
    assert len(loader) > 1
    faulty = DataLoader(dataset, batch_sampler=single_indices(dataset), collate_fn=list)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not iterable"):
        list(faulty)


def balanced_batch(tasks: Sequence[str], batch_size: int, looks: int) -> list[int] | None:
    """The faulty rule of A40: goes round the tasks until a batch is full, however few samples there are."""
    left = {task: [index for index, own in enumerate(tasks) if own == task] for task in sorted(set(tasks))}
    batch: list[int] = []
    for look in range(looks):
        if len(batch) == batch_size:
            return batch
        pool = left[sorted(left)[look % len(left)]]
        if pool:
            batch.append(pool.pop())
    return None


@pytest.mark.parametrize("sampling", ["epoch", "replacement"])
def test_a40_a_set_smaller_than_a_batch_ends_where_the_faulty_rule_goes_on_for_ever(sampling: str) -> None:
    dataset = DescribedSet(["T1", "T2", "T3"], [8, 8, 8])
    assert balanced_batch(dataset.tasks, 2, 1000) is not None
    assert balanced_batch(dataset.tasks, 16, 1000) is None
    shares = {"T1": 1.0, "T2": 1.0, "T3": 1.0}
    sampler = sampler_of(dataset, 2000, 16, task_distribution=shares, sampling=sampling)
    assert [sorted(batch) for batch in sampler] == [[0, 1, 2]]


def test_a38_a_sample_that_cannot_fit_alone_is_named_before_the_epoch_begins() -> None:
    dataset = mixed_set(100)
    dataset.tokens[42] = 9000
    with pytest.raises(InputError) as error:
        sampler_of(dataset, 500)
    task, images = dataset.tasks[42], dataset.images(42)
    said = str(error.value)
    assert f"sample 42 (task '{task}', {images} image" in said
    assert f"{9000 / 16 + 8 * images:,.1f} MiB" in said
    assert "max_memory_mb, 500.0 MiB" in said
    sampler = sampler_of(dataset, 600)
    with pytest.raises(SampleDoesNotFitError, match="sample 42"):
        sampler.max_memory_mb = 500
    assert sampler.max_memory_mb == 600


@settings(max_examples=60, deadline=None)
@given(mixed_sets(), LIMITS, st.integers(1, 3), st.sampled_from([0.0, 0.5, 1.0]), st.booleans())
def test_every_sample_once_an_epoch_on_any_ranks(
    dataset, limit_mib: int, world_size: int, weight: float, shuffle: bool
) -> None:
    ranks = ranks_of(world_size, dataset, limit_mib, task_diversity_weight=weight, shuffle=shuffle)
    for _epoch in range(2):
        lengths = [len(sampler) for sampler in ranks]
        try:
            batches = [list(sampler) for sampler in ranks]
        except TooFewSamplesError:
            assume(False)
        assert len(set(lengths)) == 1
        assert [len(own) for own in batches] == lengths
        assert sorted(chain(*chain(*batches))) == list(range(len(dataset)))
        assert max(taken_mib(dataset, batch) for batch in chain(*batches)) <= limit_mib


@settings(max_examples=60, deadline=None)
@given(mixed_sets(least=6), st.integers(1, 3), st.lists(LIMITS, min_size=1, max_size=4), st.data())
def test_changing_budgets_and_resumes_lose_no_sample_and_give_none_twice(
    dataset, world_size: int, limits: list[int], data: st.DataObject
) -> None:
    """On all ranks at once, and after each change everything is saved and taken up by new samplers."""
    ranks = ranks_of(world_size, dataset, limits[0])
    given_out: list[list[int]] = []
    try:
        for limit in limits[1:]:
            rounds = data.draw(st.integers(0, max(0, len(ranks[0]) - ranks[0]._cursor.rounds - 1)))
            for sampler in ranks:
                given_out += islice(iter(sampler), rounds)
            if data.draw(st.booleans()):
                state = json.loads(json.dumps(ranks[0].state_dict()))
                ranks = ranks_of(world_size, dataset, limits[0])
            else:
                state = ranks[0].state_dict()
            for sampler in ranks:
                sampler.load_state_dict(state)
                sampler.max_memory_mb = limit
        rest = [list(sampler) for sampler in ranks]
    except TooFewSamplesError:
        assume(False)
    assert len({len(own) for own in rest}) == 1
    assert sorted(chain(*given_out, *chain(*rest))) == list(range(len(dataset)))
    assert max((taken_mib(dataset, batch) for batch in chain(*rest)), default=0) <= limits[-1]


@settings(max_examples=60, deadline=None)
@given(mixed_sets(least=4), st.integers(1, 3), st.data())
def test_a_resume_gives_exactly_the_rest_and_so_does_what_a_loader_has_drawn_ahead_of(
    dataset, world_size: int, data: st.DataObject
) -> None:
    whole, ahead, resumed = (ranks_of(world_size, dataset, 200)[0] for _ in range(3))
    expected = list(whole)
    begin = ahead.state_dict()
    drawn = data.draw(st.integers(0, len(expected)))
    trained = data.draw(st.integers(0, drawn))
    assert list(islice(iter(ahead), drawn)) == expected[:drawn]
    resumed.load_state_dict(json.loads(json.dumps(ahead.advanced(begin, trained))))
    if trained < len(expected):
        assert len(resumed) == len(expected)
        assert list(resumed) == expected[trained:]
    with pytest.raises(InputError, match="have not been given out"):
        ahead.advanced(begin, drawn + 1)


@settings(max_examples=60, deadline=None)
@given(mixed_sets(least=12), st.integers(1, 3), st.integers(1, 3), st.data())
def test_another_number_of_ranks_goes_on_with_the_rest(dataset, before: int, after: int, data: st.DataObject) -> None:
    ranks = ranks_of(before, dataset, 150)
    rounds = data.draw(st.integers(0, len(ranks[0]) - 1))
    given_out = [list(islice(iter(sampler), rounds)) for sampler in ranks]
    others = ranks_of(after, dataset, 150)
    for sampler in others:
        sampler.load_state_dict(ranks[0].state_dict())
    try:
        rest = [list(sampler) for sampler in others]
    except TooFewSamplesError:
        assume(False)
    assert len({len(own) for own in rest}) == 1
    assert sorted(chain(*chain(*given_out, *rest))) == list(range(len(dataset)))


def test_what_only_one_rank_looks_at_changes_no_batch() -> None:
    dataset = mixed_set(100)
    curious, calm = (ranks_of(2, dataset, 200)[0] for _ in range(2))
    batches: list[list[list[int]]] = [[], []]
    for place, sampler in enumerate((curious, calm)):
        for number, batch in enumerate(sampler):
            batches[place].append(batch)
            if number == 2 and sampler is curious:
                sampler.max_memory_mb = 350
                len(sampler)
                sampler.max_memory_mb = 200
                len(sampler)
    assert batches[0] == batches[1]


def test_every_iteration_is_an_epoch_of_its_own_and_set_epoch_says_which() -> None:
    first, second = sampler_of(mixed_set(60)), sampler_of(mixed_set(60))
    epochs = [list(first) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    next(iter(second))  # left early
    assert list(second) == epochs[1]
    second.set_epoch(0)
    assert list(second) == epochs[0]
    second.set_epoch(2)
    begun = iter(second)
    next(begun)
    state = second.state_dict()
    second.set_epoch(2)  # from the beginning
    assert list(second) == epochs[2]
    second.load_state_dict(state)
    second.set_epoch(2)  # as a Trainer does after it has loaded a position
    assert list(second) == epochs[2][1:]
    with pytest.raises(InputError, match="has moved on"):
        next(begun)
    second.load_state_dict(state)
    iter(second)  # a DataLoader with workers makes two of which it uses one
    assert list(second) == epochs[2][1:]


def test_a_position_among_other_samples_is_refused() -> None:
    state = sampler_of(mixed_set(60)).state_dict()
    for other in (mixed_set(61), mixed_set(60, seed=1)):
        with pytest.raises(PackingMismatchError, match="cannot go on from there"):
            sampler_of(other).load_state_dict(state)


def test_quotas_with_replacement_are_within_two_percent() -> None:
    wanted = {"T1": 0.1, "T2": 0.3, "T3": 0.6}
    dataset = mixed_set(3000, (0.7, 0.2, 0.1))
    sampler = sampler_of(dataset, 2000, 16, task_distribution=wanted, sampling="replacement")
    drawn = list(chain.from_iterable(sampler))
    assert len(drawn) == 3000
    shares = {task: sum(dataset.tasks[index] == task for index in drawn) / 3000 for task in wanted}
    assert all(abs(shares[task] - share) <= 0.02 for task, share in wanted.items())
    assert set(range(3000)) - set(drawn)  # some are not drawn at all


def test_a_set_that_says_nothing_is_measured_and_texts_are_counted() -> None:
    said = mixed_set(40)
    sampler = sampler_of(MixedSet(said.tasks, said.tokens))
    assert list(sampler) == list(sampler_of(said))
    assert sampler.tasks == ("T1", "T2", "T3")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 0}, "batch_size is a whole number"),
        ({"batch_size": 2.5}, "got 2.5"),
        ({"limit_mib": 0}, "max_memory_mb is a number of MiB above 0"),
        ({"limit_mib": "30GB"}, "got '30GB'"),
        ({"limit_mib": float("inf")}, "max_memory_mb"),
        ({"rank": 2, "world_size": 2}, "no rank 2 of 2"),
        ({"sampling": "quota"}, "no 'quota' is known"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sampler_of(mixed_set(20), **settings)


def test_numbers_of_numpy_are_numbers() -> None:
    assert max(map(len, sampler_of(mixed_set(20), 300, np.int64(2)))) == 2
