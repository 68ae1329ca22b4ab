"""Batches between neighbours by size and likenesses of the whole set: what they hold, waste, and cost to make."""

import time
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mixed_sets import PricedMib, mixed_set, mixed_sets, table_of
from trainauto.core.units import MIB
from trainauto.data.packing import IntArray, Packing, SampleSizes
from trainauto.tasks.multitask.batches.mixed_batches import BatchMixing, _RangeMaxima
from trainauto.tasks.multitask.batches.sample_cost import cost_in_bytes
from trainauto.tasks.multitask.batches.samples import SampleTable

BOUND = 400 * MIB


def packed(table: SampleTable, mixing: BatchMixing, bound: int = BOUND, epoch: int = 0) -> Packing:
    return mixing.batches(table.sizes, table.task_ids, bound, 3, epoch)


def padded_mib(table: SampleTable, packing: Packing) -> float:
    """Return what all batches take together."""
    most = np.maximum.reduceat(table.images[packing.order], packing.starts)
    longest = packing.longest(table.sizes)
    return float(PricedMib().cost(packing.counts, longest, packing.counts * most).sum() / MIB)


def unlike_the_set(table: SampleTable, packing: Packing) -> float:
    """Return how far tasks of batches are from those of the set on average: half the sum of differences of shares."""
    whole = table.counts / len(table)
    shares = [np.bincount(table.task_ids[batch], minlength=3) / len(batch) for batch in packing.batches()]
    return float(np.mean([np.abs(share - whole).sum() / 2 for share in shares]))


@settings(deadline=None)
@given(mixed_sets(), st.floats(0, 1), st.one_of(st.none(), st.integers(1, 20)), st.integers(0, 400), st.booleans())
def test_every_sample_once_within_the_bound_and_as_large_as_it_allows(
    dataset, weight: float, most: int | None, beyond_mib: int, shuffles: bool
) -> None:
    table, mixing = table_of(dataset), BatchMixing(PricedMib(), most, weight, shuffles=shuffles)
    bound = int(mixing.costs_alone(table.sizes).max()) + beyond_mib * MIB
    packing = packed(table, mixing, bound)
    assert sorted(packing.order.tolist()) == list(range(len(dataset)))
    most_images = np.maximum.reduceat(table.images[packing.order], packing.starts)
    costs = PricedMib().cost(packing.counts, packing.longest(table.sizes), packing.counts * most_images)
    assert costs.max() <= bound
    assert packing.counts.max() <= (most or len(dataset))


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_no_two_neighbours_in_the_order_of_a_window_would_have_fit_one_batch(weight: float) -> None:
    table = table_of(mixed_set(300))
    packing = packed(table, BatchMixing(PricedMib(), None, weight, shuffles=False))
    batches = list(packing.batches())
    for batch, following in pairwise(batches):
        more = np.append(batch, following[0])
        images = len(more) * table.images[more].max()
        assert PricedMib().cost(np.array(len(more)), table.sizes.tokens[more].max(), np.array(images)) > BOUND


def test_a38_the_weight_trades_memory_that_is_filled_against_tasks_that_are_mixed() -> None:
    """0 packs neighbours by size, 1 has the tasks of the whole set in every batch, and in between it is in between."""
    table = table_of(mixed_set(4000))
    packings = [packed(table, BatchMixing(PricedMib(), 64, weight)) for weight in (0.0, 0.25, 0.5, 0.75, 1.0)]
    unlike = [unlike_the_set(table, packing) for packing in packings]
    taken = [padded_mib(table, packing) for packing in packings]
    assert unlike == sorted(unlike, reverse=True)
    assert unlike[0] > 0.5
    assert unlike[-1] < 0.08
    assert taken[0] == min(taken)
    exact = (table.sizes.tokens / 16 + 8 * table.images).sum()
    assert taken[0] < 1.08 * exact < taken[-1]
    assert len(packings[0]) < 0.8 * len(packings[-1])


def test_shares_that_are_wanted_hold_until_a_task_has_run_out() -> None:
    table = table_of(mixed_set(6000, (0.6, 0.2, 0.2)))
    wanted = np.array([0.2, 0.4, 0.4])
    for weight in (0.0, 0.5, 1.0):
        packing = packed(table, BatchMixing(PricedMib(), 16, weight, wanted))
        assert sorted(packing.order.tolist()) == list(range(6000))
        first = np.bincount(table.task_ids[packing.order[:2500]], minlength=3) / 2500
        assert np.abs(first - wanted).max() < 0.05
        assert set(table.task_ids[packing.order[-1500:]].tolist()) == {0}  # what there is too much of comes last
    without = packed(table, BatchMixing(PricedMib(), 16, 0.5))
    assert np.bincount(table.task_ids[without.order[:3000]])[0] / 3000 == pytest.approx(0.6, abs=0.04)


def test_epochs_differ_where_they_are_shuffled_and_only_there() -> None:
    table = table_of(mixed_set(500))
    for weight in (0.0, 0.5, 1.0):
        shuffled = BatchMixing(PricedMib(), 16, weight)
        first, second = ({frozenset(b.tolist()) for b in packed(table, shuffled, epoch=e).batches()} for e in (0, 1))
        assert len(first & second) < 0.1 * len(first)
        again = packed(table, shuffled)
        assert np.array_equal(again.order, packed(table, shuffled).order)
        plain = BatchMixing(PricedMib(), 16, weight, shuffles=False)
        assert np.array_equal(packed(table, plain, epoch=0).order, packed(table, plain, epoch=1).order)


def test_a_large_constant_cost_makes_no_small_windows() -> None:
    """Weights that are held cost as much beside one sample as beside many: windows go by what a batch really holds."""

    @dataclass(frozen=True)
    class Heavy(PricedMib):
        def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
            return 10_000 * MIB + super().cost(samples, longest, images)

    table = table_of(mixed_set(2000))
    heavy = packed(table, BatchMixing(Heavy(), None, 0.0), 10_000 * MIB + BOUND)
    assert np.array_equal(heavy.order, packed(table, BatchMixing(PricedMib(), None, 0.0)).order)


@dataclass(frozen=True)
class Counted(PricedMib):
    """Counts how many batches it is asked for."""

    asked: list[int] = field(default_factory=list)

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        costs = super().cost(samples, longest, images)
        self.asked.append(np.size(costs))
        return costs


def greedy(table: SampleTable, cost: Counted, bound: int, most: int) -> list[list[int]]:
    """The faulty rule of A38: all that are left are looked at for every place; an empty batch takes any."""
    left, batches = list(range(len(table))), []
    while left:
        batch: list[int] = []
        while left and len(batch) < most:
            tried = np.array([[*batch, index] for index in left])
            count = np.full(len(left), len(batch) + 1)
            most_images = table.images[tried].max(1)
            costs = cost.cost(count, table.sizes.tokens[tried].max(1), count * most_images)
            best = int(np.argmax(np.where(costs <= bound, costs, -1)))
            if costs[best] > bound and batch:
                break
            batch.append(left.pop(best))
        batches.append(batch)
    return batches


def test_a38_batches_are_made_in_one_pass_where_the_faulty_rule_looks_at_all_samples_for_each() -> None:
    asked: dict[str, list[int]] = {"ours": [], "greedy": []}
    for samples in (200, 400):
        table = table_of(mixed_set(samples))
        ours, theirs = Counted(), Counted()
        packed(table, BatchMixing(ours, 16, 0.5))
        greedy(table, theirs, BOUND, 16)
        asked["ours"].append(sum(ours.asked))
        asked["greedy"].append(sum(theirs.asked))
    assert asked["ours"][1] < 2.3 * asked["ours"][0]
    assert asked["greedy"][1] > 3.5 * asked["greedy"][0]


def test_a38_the_faulty_rule_admits_a_sample_that_does_not_fit() -> None:
    table = table_of(mixed_set(20))
    bound = int(BatchMixing(PricedMib()).costs_alone(table.sizes).max()) - 1
    admitted = [index for batch in greedy(table, Counted(), bound, 4) for index in batch]
    assert sorted(admitted) == list(range(20))  # what ours does is in test_memory_aware_sampler.py


def test_a38_a_hundred_thousand_samples_take_a_second_at_most() -> None:
    numbers = np.random.default_rng(1)
    sizes = SampleSizes(numbers.integers(1, 512, 100_000), numbers.integers(1, 5, 100_000))
    mixing, task_ids = BatchMixing(cost_in_bytes(None), 16, 0.5), numbers.integers(0, 3, 100_000)
    begin = time.process_time()
    packing = mixing.batches(sizes, task_ids, 30_000 * MIB, 0, 0)
    assert time.process_time() - begin < 1
    assert len(packing.order) == 100_000


@given(st.lists(st.integers(0, 99), min_size=1, max_size=70), st.data())
def test_maxima_of_any_stretches(values: list[int], data: st.DataObject) -> None:
    array = np.array(values, np.int64)
    starts = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=9)))
    counts = np.array([data.draw(st.integers(1, len(values) - start)) for start in starts.tolist()])
    expected = [max(values[start : start + count]) for start, count in zip(starts, counts, strict=True)]
    assert _RangeMaxima(array).of(starts, counts).tolist() == expected
