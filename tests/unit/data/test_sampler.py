"""The stream of draws: pure, so it is tested without files, workers or torch."""

from hypothesis import given
from hypothesis import strategies as st

from tests.scripted_loader import fetched_ahead
from trainauto.core.plan import Plan
from trainauto.data.sampler import DynamicBatchSampler, ShuffledStream, StreamState

plans = st.builds(lambda b, s: Plan.of(batch_size=b, lq_size=s), st.integers(1, 9), st.integers(8, 64))


@given(samples=st.integers(1, 50), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 1000))
def test_every_sample_once_an_epoch(samples: int, seed: int, epoch: int) -> None:
    order = ShuffledStream(samples, seed)
    start = epoch * samples
    assert sorted(order.index_at(start + i) for i in range(samples)) == list(range(samples))


def test_epochs_and_seeds_differ() -> None:
    order = ShuffledStream(100, seed=1)
    first, second = ([order.index_at(e * 100 + i) for i in range(100)] for e in (0, 1))
    assert first != second
    assert first != [ShuffledStream(100, seed=2).index_at(i) for i in range(100)]
    assert len({order.seed_at(p) for p in range(1000)}) == 1000


def test_order_is_pinned() -> None:
    # A checkpoint resumed under another version of numpy must draw the same samples.
    order = ShuffledStream(6, seed=3)
    assert [order.index_at(p) for p in range(12)] == PINNED_ORDER


PINNED_ORDER = [5, 1, 2, 0, 3, 4, 1, 3, 5, 2, 4, 0]


@given(st.lists(st.tuples(st.integers(1, 12), plans), max_size=5), plans)
def test_draws_are_consecutive_and_follow_the_changes(changes: list[tuple[int, Plan]], first: Plan) -> None:
    position = StreamState.start(first)
    for at, plan in changes:
        position = position.with_change(at, plan)
    expected_first = 0
    for number in range(20):
        draw = position.next_draw
        assert (draw.number, draw.first_sample) == (number, expected_first)
        # A later request for an earlier draw takes the place of those beyond it.
        due = [
            (at, plan)
            for i, (at, plan) in enumerate(changes)
            if at <= number and all(a > at for a, _ in changes[i + 1 :])
        ]
        assert draw.plan == (due[-1][1] if due else first)
        expected_first += draw.plan.batch_size
        position = position.advanced()


@given(plans, st.lists(st.tuples(st.integers(1, 30), plans), max_size=4), st.integers(0, 30))
def test_position_survives_its_dict(plan: Plan, changes: list[tuple[int, Plan]], advances: int) -> None:
    position = StreamState.start(plan)
    for at, other in changes:
        position = position.with_change(at, other)
    for _ in range(advances):
        position = position.advanced()
    assert StreamState.from_dict(position.to_dict()) == position


@given(plans, plans, st.integers(0, 8), st.integers(0, 8))
def test_head_ahead_or_not_draws_the_same(first: Plan, second: Plan, ahead_a: int, ahead_b: int) -> None:
    """Two loaders that fetch differently far ahead see the same draws if the change respects the lookahead."""

    def keys(ahead: int) -> list:
        stream = DynamicBatchSampler(ShuffledStream(7, seed=0), StreamState.start(first))
        return fetched_ahead(stream, ahead, 3 + 8, second)

    assert keys(ahead_a) == keys(ahead_b)


@given(
    samples=st.integers(1, 40),
    positions=st.lists(st.integers(0, 120), max_size=4),
    seed=st.integers(0, 2**32),
)
def test_another_order_keeps_what_came_before_and_every_sample_once_an_epoch(
    samples: int, positions: list[int], seed: int
) -> None:
    """Whatever has been reordered before, what lies ahead of the last position stays as it was."""
    stream, known = ShuffledStream(samples, seed), [ShuffledStream(samples, seed).index_at(p) for p in range(160)]
    seeds = [stream.seed_at(p) for p in range(160)]
    for number, position in enumerate(positions, 1):
        stream.reorder_from(position, number)
        now = [stream.index_at(p) for p in range(160)]
        assert now[:position] == known[:position]
        assert [stream.seed_at(p) for p in range(position)] == seeds[:position]
        known, seeds = now, [stream.seed_at(p) for p in range(160)]
        assert set(seeds[position:]).isdisjoint(seeds[:position])
    for first in range(0, 160 - samples + 1, samples):
        assert sorted(known[first : first + samples]) == list(range(samples))
    other = ShuffledStream(samples, seed)
    other.load_state_dict(stream.state_dict())
    assert [other.index_at(p) for p in range(160)] == known


def test_another_order_is_another_one_from_its_position_on() -> None:
    stream, plain = ShuffledStream(100, seed=1), ShuffledStream(100, seed=1)
    stream.reorder_from(150, 1)
    epochs = [[of.index_at(e * 100 + i) for i in range(100)] for of in (stream, plain) for e in (0, 1, 2)]
    assert epochs[0] == epochs[3]
    assert epochs[1][:50] == epochs[4][:50]
    assert epochs[1][50:] != epochs[4][50:]
    assert epochs[2] != epochs[5]
