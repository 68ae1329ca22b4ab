"""Streams of samples that differ in length, and draws under a budget."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainauto.core.plan import Plan
from trainauto.data.batcher import EpochBatches
from trainauto.data.bucketed import BucketedStream, CostBudget
from trainauto.data.packing import TokenCost


def lengths_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 200, count)


def test_an_epoch_is_every_sample_once_and_neighbours_are_alike() -> None:
    stream = BucketedStream(lengths_of(2000), seed=1)
    orders = [stream.order(epoch) for epoch in range(2)]
    assert all(sorted(order) == list(range(2000)) for order in orders)
    assert not np.array_equal(*orders)
    jumps = np.abs(np.diff(stream.lengths[orders[0]]))
    assert jumps.mean() < 2
    assert jumps.max() < 25  # windows meet at their long or their short ends
    assert [stream.index_at(position) for position in (0, 1999, 2000)] == [orders[0][0], orders[0][-1], orders[1][0]]


@given(st.integers(1, 300), st.integers(0, 5), st.integers(1, 3000), st.integers(0, 400))
def test_a_draw_is_the_most_that_fits_and_ends_with_its_epoch(samples: int, seed: int, tokens: int, begin: int) -> None:
    stream = BucketedStream(lengths_of(samples, seed), seed)
    count = CostBudget(stream, TokenCost()).batch_size(begin, Plan.of(tokens=tokens))
    left = samples - begin % samples

    def cost(number: int) -> int:
        return number * max(int(stream.lengths[stream.index_at(begin + place)]) for place in range(number))

    assert 1 <= count <= left
    assert count == 1 or cost(count) <= tokens
    assert count == left or cost(count + 1) > tokens


def test_many_short_samples_fit_one_draw() -> None:
    stream = BucketedStream(np.ones(3000, np.int64), 0)
    assert CostBudget(stream, TokenCost()).batch_size(0, Plan.of(tokens=2500)) == 2500


@given(st.integers(1, 100), st.integers(1, 40))
def test_draws_of_an_epoch_hold_it_once_and_its_last_two_are_about_as_large(samples: int, batch: int) -> None:
    batcher, plan, drawn, position = EpochBatches(samples), Plan.of(batch_size=batch), [], 0
    while position < samples:
        drawn.append(batcher.batch_size(position, plan))
        position += drawn[-1]
    assert position == samples
    assert max(drawn) <= batch
    assert len(drawn) == -(-samples // batch)
    assert len(drawn) < 2 or drawn[-1] >= batch // 2
