"""C43: samples divided among ranks without loss or repetition, whatever the batch, the weighted and the cuts."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainauto.core.sharding import SampleSharding

weighted = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=6).map(lambda some: SampleSharding((1.0, *some)))
shardings = st.one_of(st.integers(1, 9).map(SampleSharding.equal), weighted)


@given(shardings, st.integers(1, 40))
def test_every_sample_has_one_owner_and_every_rank_its_share(sharding: SampleSharding, batch: int) -> None:
    ranks_of = sharding.rank_of_sample(batch)
    assert len(ranks_of) == sharding.total(batch)
    assert tuple(ranks_of.count(rank) for rank in range(sharding.world_size)) == sharding.samples(batch)
    for rank in range(sharding.world_size):
        assert [ranks_of[place] for place in sharding.positions(batch, rank)] == [rank] * sharding.samples(batch)[rank]
        assert list(sharding.positions(batch, rank)) == sorted(sharding.positions(batch, rank))


@given(shardings, st.integers(1, 40))
def test_samples_are_dealt_in_turns_and_to_the_lower_rank_first(sharding: SampleSharding, batch: int) -> None:
    """A rank's n-th of m samples has its turn at (n + 1/2) / m of the draw."""
    samples = sharding.samples(batch)
    turns = sorted(((number + 0.5) / count, rank) for rank, count in enumerate(samples) for number in range(count))
    assert sharding.rank_of_sample(batch) == tuple(rank for _, rank in turns)


@given(shardings, st.integers(1, 40), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_pieces_of_a_draw_are_the_draw(sharding: SampleSharding, batch: int, plans: list[int]) -> None:
    given_, trained = 0, [0] * sharding.world_size
    number = 0
    while given_ < sharding.total(batch):
        most = min(batch, plans[min(number, len(plans) - 1)])
        counts = sharding.next_piece(batch, most, given_)
        assert sum(counts) > 0
        limits = sharding.samples(most)
        assert all(count <= limit for count, limit in zip(counts, limits, strict=True))
        # What a piece takes is the next stretch of the stream: each rank's next samples, and no others.
        stretch = sharding.rank_of_sample(batch)[given_ : given_ + sum(counts)]
        assert counts == tuple(stretch.count(rank) for rank in range(sharding.world_size))
        given_, number = given_ + sum(counts), number + 1
        trained = [before + count for before, count in zip(trained, counts, strict=True)]
    assert tuple(trained) == sharding.samples(batch)


@given(st.integers(1, 30), st.integers(1, 12))
def test_equal_ranks_cut_as_one_rank_does(batch: int, limit: int) -> None:
    """Under plans of the same effective batch the pieces are the same ones."""
    expected, given_ = [], 0
    while given_ < 4 * batch:
        (taken,) = SampleSharding().next_piece(4 * batch, 4 * min(limit, batch), given_)
        expected.append(taken)
        given_ += taken
    for world_size in (2, 4):
        sharding, given_, pieces = SampleSharding.equal(world_size), 0, []
        while given_ < 4 * batch:
            each = 4 // world_size
            pieces.append(sum(sharding.next_piece(each * batch, each * min(limit, batch), given_)))
            given_ += pieces[-1]
        # A rank's limit is a bound on each of its parts, so a piece may hold a sample or two less where it is odd.
        assert all(abs(ours - theirs) <= world_size for ours, theirs in zip(pieces, expected, strict=False))


def test_weights_deal_in_turns_and_follow_memory() -> None:
    sharding = SampleSharding.by_memory([24, 12, 12])
    assert sharding.samples(8) == (8, 4, 4)
    ranks_of = sharding.rank_of_sample(8)
    places = [place for place, owner in enumerate(ranks_of) if owner == 1]
    assert all(4 <= after - before <= 5 for before, after in pairwise(places)), "each rank's samples are spread evenly"
    assert sharding.samples(1) == (1, 1, 1)
    assert SampleSharding.equal(3).rank_of_sample(2) == (0, 1, 2, 0, 1, 2)


@pytest.mark.parametrize("weights", [(), (0.0, 1.0), (1.5,)])
def test_impossible_weights_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="weights"):
        SampleSharding(weights)


@given(shardings, st.lists(st.integers(1, 300), min_size=1, max_size=8))
def test_the_largest_share_of_so_many_samples(sharding: SampleSharding, samples: list[int]) -> None:
    """The least batch that holds them all, and the largest that holds no more."""
    most = sharding.most_of_each(np.array(samples)).tolist()
    for count, batch in zip(samples, most, strict=True):
        assert sharding.most_of(count) == batch
        assert sharding.total(batch) >= count
        assert batch == 1 or sharding.total(batch - 1) < count
        held = sharding.held_by(count)
        assert held == 1 or sharding.total(held) <= count
        assert sharding.total(held + 1) > count or sharding.total(1) > count
    assert list(sharding.places(most[0], 0)) == list(sharding.positions(most[0], 0))
