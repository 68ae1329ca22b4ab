"""Sizes in, batches out: nothing lost, within the bound, as few as can be, hardly padded."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.data.packing.sets_of_samples import PricedImages, lognormal, packing_inputs
from trainauto.core.errors import InputError
from trainauto.data.packing import (
    BatchCost,
    IntArray,
    Packing,
    SampleSizes,
    SampleTooLargeError,
    TokenCost,
    pack,
)
from trainauto.data.packing.counts import largest_counts
from trainauto.data.packing.walks import MOST_IMPROVED, earliest_begins, ends_from_back, ends_from_front

INPUTS = packing_inputs()


def cost_of(indices: IntArray, sizes: SampleSizes, cost: BatchCost) -> int:
    """Price one batch as its definition says, apart from the code that packs."""
    images = 0 if sizes.images is None else int(sizes.images[indices].sum())
    return int(cost.cost(*(np.array(v) for v in (len(indices), sizes.tokens[indices].max(), images))))


@given(INPUTS, st.none() | st.integers(1, 9))
def test_every_sample_once_within_the_bound_longest_first(inputs: tuple, most_samples: int | None) -> None:
    """B18, B23: and each batch is as good as priced by itself."""
    sizes, cost, bound = inputs
    packing = pack(sizes, cost, bound, most_samples=most_samples)
    batches = list(packing.batches())
    assert sorted(packing.order.tolist()) == list(range(len(sizes)))
    assert [len(batch) for batch in batches] == packing.counts.tolist()
    assert all(0 < len(batch) <= (most_samples or len(sizes)) for batch in batches)
    assert [cost_of(batch, sizes, cost) for batch in batches] == packing.costs(sizes, cost).tolist()
    assert packing.costs(sizes, cost).max(initial=0) <= bound
    assert (np.diff(sizes.tokens[packing.order]) <= 0).all()
    assert packing.padded_tokens(sizes) == sum(len(batch) * int(sizes.tokens[batch].max()) for batch in batches)


def divisions(count: int) -> list[list[int]]:
    """Return the ends of all ways to cut so many samples into neighbours, those into fewest first."""
    return [[*cuts, count] for batches in range(count) for cuts in combinations(range(1, count), batches)]


@settings(max_examples=60)
@given(packing_inputs(least=1, most=9))
def test_no_division_has_fewer_batches_and_padding_is_the_least(inputs: tuple) -> None:
    """Of so few samples all ends are looked at, so that an exhaustive search finds nothing better."""
    sizes, cost, bound = inputs
    packing = pack(sizes, cost, bound)
    allowed = [
        other
        for ends in divisions(len(sizes))
        if (other := Packing(packing.order, np.array(ends))).costs(sizes, cost).max() <= bound
    ]
    assert len(packing) == len(allowed[0])
    least = min(other.padded_tokens(sizes) for other in allowed if len(other) == len(packing))
    assert packing.padded_tokens(sizes) == least


def least_padded_tokens(lengths: IntArray, bound: int, early: IntArray, late: IntArray) -> int:
    """Return the padded tokens of the best division into fewest batches, by dynamic programming over all ends."""
    begins, least = np.array([0]), np.array([0])
    for first, last in zip(early, late, strict=True):
        ends = np.arange(first, last + 1)
        padded = (ends - begins[:, None]) * lengths[begins][:, None]
        allowed = (ends > begins[:, None]) & (padded <= bound)
        through = np.where(allowed, least[:, None] + padded, 1 << 60).min(axis=0)
        begins, least = ends[through < 1 << 60], through[through < 1 << 60]
    return int(least[0])


@pytest.mark.parametrize(("samples", "bound", "gap"), [(300, 4096, 0.001), (2000, 16384, 0.011), (4000, 8192, 0.03)])
def test_padding_is_near_the_least(samples: int, bound: int, gap: float) -> None:
    """Padding is at most that much more than an exact search finds, and less than when filled from either end."""
    sizes = lognormal(samples)
    packing = pack(sizes, TokenCost(), bound)
    lengths = sizes.tokens[packing.order]
    reaches = np.minimum(np.arange(samples) + bound // lengths, samples)
    early, late = ends_from_back(earliest_begins(reaches)), ends_from_front(reaches)
    least = least_padded_tokens(lengths, bound, early, late) - int(lengths.sum())
    padding = packing.padded_tokens(sizes) - int(lengths.sum())
    filled = [Packing(packing.order, ends).padded_tokens(sizes) - int(lengths.sum()) for ends in (early, late)]
    assert len(packing) == len(late) < MOST_IMPROVED
    assert least <= padding <= (1 + gap) * least < min(filled)
    assert padding < min(filled)


@given(packing_inputs(least=2, most=300), st.integers(1, 4))
def test_never_more_padding_than_when_filled_from_either_end(inputs: tuple, most_samples: int) -> None:
    """With few samples a batch there are too many batches to improve, too."""
    sizes, cost, bound = inputs
    packing = pack(sizes, cost, bound, most_samples=most_samples)
    ordered = sizes.take(packing.order)
    reaches = np.array([farthest(ordered, place, cost, bound, most_samples) for place in range(len(sizes))])
    for ends in (ends_from_front(reaches), ends_from_back(earliest_begins(reaches))):
        assert len(packing) == len(ends)
        assert packing.padded_tokens(sizes) <= Packing(packing.order, ends).padded_tokens(sizes)


def farthest(ordered: SampleSizes, place: int, cost: BatchCost, bound: int, most_samples: int) -> int:
    """Return where the largest batch from a place on ends, by trying."""
    ends = range(place + 1, min(place + most_samples, len(ordered)) + 1)
    return max(end for end in ends if cost_of(np.arange(place, end), ordered, cost) <= bound)


def test_a_sample_that_does_not_fit_is_named_with_its_size() -> None:
    sizes = SampleSizes(np.array([3, 9, 4, 9]), np.array([0, 1, 0, 0]))
    with pytest.raises(
        SampleTooLargeError, match=r"sample 1 \(9 tokens and 1 images\) costs 26 bytes alone, .* 20"
    ) as at:
        pack(sizes, PricedImages(), 20)
    assert (at.value.index, at.value.size, at.value.cost, at.value.bound) == (1, (9, 1), 26, 20)


def test_nothing_duplicates_and_empty_texts() -> None:
    """B43: no samples, equal ones, and ones of no length are packed like any others."""
    nothing = pack(SampleSizes(np.zeros(0, np.int64)), TokenCost(), 10)
    assert (len(nothing), list(nothing.batches()), nothing.waste(SampleSizes(np.zeros(0, np.int64)))) == (0, [], 0.0)
    equal = pack(SampleSizes(np.full(5, 4)), TokenCost(), 8)
    assert [batch.tolist() for batch in equal.batches()] == [[0], [1, 2], [3, 4]]
    empty = SampleSizes(np.array([0, 5, 0]))
    assert [batch.tolist() for batch in pack(empty, TokenCost(), 5).batches()] == [[1], [0, 2]]


@pytest.mark.parametrize(
    ("tokens", "images", "said"),
    [
        ([1.5], None, "whole number"),
        ([[1]], None, r"shape \(1, 1\)"),
        ([2, -1], None, "sample 1 has -1"),
        ([2, 1], [1], "2 samples, but images of 1"),
    ],
)
def test_sizes_are_checked(tokens: list, images: list | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        SampleSizes(np.array(tokens), None if images is None else np.array(images))


def test_sizes_do_not_change_afterwards() -> None:
    given_tokens = np.array([1, 2])
    sizes = SampleSizes(given_tokens)
    given_tokens[0] = 9
    assert sizes.tokens.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        sizes.tokens[0] = 9


def test_costs_that_grow_beyond_64_bits_are_not_asked_for() -> None:
    """A million samples of 2^21 tokens squared would overflow; what fits does not."""
    asked = []

    def fits(counts: IntArray, places: IntArray) -> np.ndarray:
        asked.append(int(counts.max()))
        return counts <= 5

    assert largest_counts(fits, np.ones(3, np.int64), np.full(3, 1 << 40)).tolist() == [5, 5, 5]
    assert max(asked) == 8


def test_order_of_equal_lengths_is_as_given() -> None:
    sizes = SampleSizes(np.array([70000, 3, 3, 70000, 3]), np.array([0, 1, 2, 1, 2]))
    assert sizes.longest_first().tolist() == [3, 0, 2, 4, 1]
    assert SampleSizes(np.array([3, 70000, 9000])).longest_first().tolist() == [1, 2, 0]  # differ by more than 16 bits
    assert all(a < b for a, b in pairwise(SampleSizes(np.full(1000, 7)).longest_first().tolist()))
