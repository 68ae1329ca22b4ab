"""Batches of given counts: dynabatch's rule (B19, B21, B22) and its friendly sizes (B17)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.data.packing.sets_of_samples import packing_inputs
from tests.unit.data.packing.test_pack import cost_of
from trainauto.core.errors import InputError
from trainauto.data.packing import CandidateCounts, SampleSizes, TokenCost, candidate_counts, pack_candidates


def test_candidates_are_spread_evenly_and_rounded_up() -> None:
    """B21: 1x to 6x the batch size in 50 steps."""
    assert candidate_counts(4, 1.0, 2.5, 4) == (4, 6, 8, 10)
    assert candidate_counts(3, 1.0, 2.0, 3) == (3, 5, 6)
    assert candidate_counts(10, 1.1, 1.1, 5) == (11,)  # not 12, as 1.1 * 10 > 11 in floating point
    assert candidate_counts(2, steps=1) == (2,)
    sizes = candidate_counts(64)
    assert (sizes[0], sizes[-1], len(sizes)) == (64, 384, 50)


def test_friendly_candidates() -> None:
    """B17: 2^n and 3 * 2^n only."""
    assert candidate_counts(10, friendly=True) == (12, 16, 24, 32, 48)
    assert candidate_counts(1, friendly=True) == (1, 2, 3, 4, 6)
    assert candidate_counts(5, 1.0, 1.0, friendly=True) == (5,)


@pytest.mark.parametrize("given", [(0,), (4, 0.0), (4, 3.0, 2.0), (4, 1.0, float("inf")), (4, 1.0, 2.0, 0)])
def test_ranges_that_are_none(given: tuple) -> None:
    with pytest.raises(InputError, match="no batch sizes"):
        candidate_counts(*given)


@pytest.mark.parametrize(("candidates", "base"), [((), 1), ((0, 2), 1), ((2, 4), 0), ((4, 2), 1)])
def test_candidates_are_checked(candidates: tuple, base: int) -> None:
    with pytest.raises(InputError):
        CandidateCounts(TokenCost(), 5, candidates, base)


@given(packing_inputs(), st.integers(1, 5), st.sets(st.integers(1, 12), min_size=1))
def test_the_largest_candidate_that_fits(inputs: tuple, base: int, candidates: set[int]) -> None:
    """B19, B22: the first batch is the base; then the rule is looked at batch by batch, by trying."""
    sizes, cost, bound = inputs
    counts = sorted(candidates)
    packing = pack_candidates(sizes, cost, bound, counts, base=base)
    assert sorted(packing.order.tolist()) == list(range(len(sizes)))
    for number, (start, end) in enumerate(zip(packing.starts.tolist(), packing.ends.tolist(), strict=True)):
        left = len(sizes) - start
        fitting = [n for n in (*counts, left) if n <= min(left, counts[-1])]
        fitting = [n for n in fitting if cost_of(packing.order[start : start + n], sizes, cost) <= bound]
        expected = base if number == 0 or not fitting else max(fitting)
        assert end - start == min(expected, left)


def test_batches_grow_as_texts_get_shorter() -> None:
    """B06, B42: the bound is what the first batch costs."""
    sizes = SampleSizes(np.repeat([512, 256, 128, 64], 100))
    packing = pack_candidates(sizes, TokenCost(), 10 * 512, candidate_counts(10))
    assert packing.counts[:10].tolist() == [10] * 10
    assert packing.counts[10:].tolist() == [20] * 5 + [40] * 3 + [60, 20]


def test_fewer_texts_than_a_batch_are_one() -> None:
    """B43: and none are none."""
    few = SampleSizes(np.array([3, 9]))
    assert [batch.tolist() for batch in pack_candidates(few, TokenCost(), 5, (8, 16)).batches()] == [[1, 0]]
    assert len(pack_candidates(SampleSizes(np.zeros(0, np.int64)), TokenCost(), 5, (8, 16))) == 0
