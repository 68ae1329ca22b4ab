"""Draws of samples that differ in length: batches of the packing layer, packed anew under other plans."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.token_workloads import TokenTexts
from trainauto.core.plan import Plan
from trainauto.data.batcher import EpochBatches
from trainauto.data.dynamic_loader import DynamicDataLoader
from trainauto.data.packed_stream import PackedDraws, PackedStream
from trainauto.data.packing import SampleSizes, TokenCost, pack

Drawn = list[tuple[int, int]]
"""First sample and number of samples of each draw."""


def lengths_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 60, count)


def stream_of(lengths: np.ndarray, seed: int = 1) -> PackedStream:
    return PackedStream(SampleSizes(lengths), TokenCost(), seed)


def draws(stream: PackedStream, plans: Mapping[int, int], start: int, stop: int) -> Drawn:
    """Draw from a position to another; plans come into force with the first draw from a position on."""
    batcher, drawn, position, tokens = PackedDraws(stream), [], start, plans[max(p for p in plans if p <= start)]
    while position < stop:
        tokens = plans.get(max(p for p in plans if p <= position), tokens)
        drawn.append((position, batcher.batch_size(position, Plan.of(tokens=tokens))))
        position += drawn[-1][1]
    return drawn


def samples_of(stream: PackedStream, drawn: Drawn) -> list[list[int]]:
    return [[stream.index_at(first + place) for place in range(count)] for first, count in drawn]


def test_under_one_plan_an_epoch_is_the_packing_layers() -> None:
    lengths = lengths_of(2000)
    stream = stream_of(lengths)
    epochs = [samples_of(stream, draws(stream, {0: 1200}, epoch * 2000, (epoch + 1) * 2000)) for epoch in range(2)]
    fewest = len(pack(SampleSizes(lengths), TokenCost(), 1200))
    for batches in epochs:
        assert sorted(chain.from_iterable(batches)) == list(range(2000))
        assert all(len(batch) * max(lengths[batch]) <= 1200 for batch in batches)
        padded = sum(len(batch) * max(lengths[batch]) for batch in batches)
        assert padded < 1.08 * lengths.sum()
        assert len(batches) <= fewest + 2
    assert epochs[0] != epochs[1]
    longest = [max(lengths[batch]) for batch in epochs[0]]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


@given(
    st.integers(1, 200), st.integers(0, 9), st.lists(st.tuples(st.integers(0, 500), st.integers(60, 900)), max_size=4)
)
def test_whatever_plans_come_every_sample_is_drawn_once_within_its_plan(
    samples: int, seed: int, changes: Sequence[tuple[int, int]]
) -> None:
    lengths, plans = lengths_of(samples, seed), {0: 200, **dict(changes)}
    stream = stream_of(lengths, seed)
    drawn = draws(stream, plans, 0, 2 * samples)
    batches = samples_of(stream, drawn)
    for epoch in range(2):  # draws never cross the end of one
        inside = [batch for (first, _), batch in zip(drawn, batches, strict=True) if first // samples == epoch]
        assert sorted(chain.from_iterable(inside)) == list(range(samples))
    for first, count in drawn:
        bound = plans[max(p for p in plans if p <= first)]
        batch = [stream.index_at(first + place) for place in range(count)]
        assert count * max(lengths[batch]) <= bound
    # Who comes later and draws the same, as the loader's tail does behind its head, gets the same and changes nothing.
    assert draws(stream, plans, 0, 2 * samples) == drawn


def test_a_resume_has_what_was_packed() -> None:
    lengths, plans = lengths_of(300), {0: 300, 100: 500, 310: 250}
    whole = stream_of(lengths)
    drawn = draws(whole, plans, 0, 600)
    expected = samples_of(whole, drawn)
    begun = stream_of(lengths)
    first = draws(begun, plans, 0, 330)
    again = stream_of(lengths)
    again.load_state_dict(begun.state_dict())
    position = first[-1][0]
    rest = draws(again, plans, position, 600)
    assert first[:-1] + rest == drawn
    assert samples_of(again, rest) == expected[len(first) - 1 :]


def test_parts_of_a_draw_fit_a_smaller_plan() -> None:
    stream = stream_of(lengths_of(100))
    batcher = PackedDraws(stream)
    count = batcher.batch_size(0, Plan.of(tokens=600))
    part = batcher.part_size(0, count, Plan.of(tokens=50))
    lengths = [stream.sizes.tokens[stream.index_at(place)] for place in range(count)]
    assert 1 <= part < count
    assert part * max(lengths[:part]) <= 50 < (part + 1) * max(lengths[: part + 1])
    assert batcher.part_size(0, count, Plan.of(tokens=1)) == 1
    assert batcher.batch_size(0, Plan.of(tokens=600)) == count  # asking changed nothing


def test_a_loader_resumes_and_shrinks_in_mid_epoch() -> None:
    texts = TokenTexts([5 + 7 * number % 31 for number in range(60)])

    def loader() -> DynamicDataLoader:
        stream = stream_of(np.array(texts.lengths))
        return DynamicDataLoader(
            texts, Plan.of(tokens=200), seed=1, lookahead=2, stream=stream, new_batcher=lambda *_: PackedDraws(stream)
        )

    def taken(source: DynamicDataLoader, count: int) -> list[tuple[str, ...]]:
        return [batch.names for _, batch in zip(range(count), source, strict=False)]

    with loader() as whole, loader() as begun, loader() as resumed:
        first = taken(whole, 3)
        whole.update_plan(Plan.of(tokens=100))
        rest = taken(whole, 40)
        assert taken(begun, 3) == first
        begun.update_plan(Plan.of(tokens=100))
        assert taken(begun, 4) == rest[:4]
        resumed.load_state_dict(begun.state_dict())
        assert taken(resumed, 36) == rest[4:]
        assert "0" not in whole.state_dict()["stream"]  # epochs that lie behind are let go of
    names = [name for batch in first + rest for name in batch]
    assert sorted(names[:60]) == sorted(names[60:120]) == sorted(f"text {number}" for number in range(60))
    assert max(len(batch) for batch in rest) < max(len(batch) for batch in first)


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


def test_a_head_several_epochs_ahead_leaves_the_tail_its_own() -> None:
    """Workers are sent keys of a third epoch while batches of the first are trained, where epochs hold few batches."""
    stream = stream_of(lengths_of(5))
    drawn = draws(stream, {0: 1000}, 0, 30)
    batches = samples_of(stream, drawn)
    assert [sorted(batch) for batch in batches] == [[0, 1, 2, 3, 4]] * 6
    stream.forget_before(20)
    assert set(stream.state_dict()) == {"4", "5"}


@given(st.lists(st.sampled_from([200, 400, 700]), min_size=1, max_size=4))
def test_a_bound_under_which_nothing_was_drawn_leaves_no_trace(asked: Sequence[int]) -> None:
    """The head packs when a plan is asked for, the tail when it is due: whoever changes one's mind gets the same."""
    hasty, calm = stream_of(lengths_of(120)), stream_of(lengths_of(120))
    begun = draws(hasty, {0: 200}, 0, 40)
    assert draws(calm, {0: 200}, 0, 40) == begun
    place = sum(begun[-1])
    for bound in asked:
        hasty.pack_from(place, bound)
    hasty.forget_before(place)
    rest = draws(hasty, {0: asked[-1], place + 30: 300}, place, 240)
    assert draws(calm, {0: asked[-1], place + 30: 300}, place, 240) == rest
    assert samples_of(hasty, rest) == samples_of(calm, rest)
    assert hasty.state_dict()["0"] == calm.state_dict()["0"]


@given(
    st.integers(1, 120),
    st.integers(0, 9),
    st.lists(st.tuples(st.integers(0, 300), st.integers(60, 900)), max_size=3),
    st.integers(0, 200),
)
def test_another_order_is_packed_from_a_draw_on(
    samples: int, seed: int, changes: Sequence[tuple[int, int]], wanted: int
) -> None:
    """What came before stays, every sample still comes once an epoch, and a resume goes on with the same draws."""
    lengths, plans = lengths_of(samples, seed), {0: 200, **dict(changes)}
    stream = stream_of(lengths, seed)
    before = draws(stream, plans, 0, 2 * samples)
    position = next((first for first, _ in before if first >= wanted), 2 * samples)
    known = samples_of(stream, before)
    stream.reorder_from(position, 1)
    rest = draws(stream, plans, position, 2 * samples) if position < 2 * samples else []
    kept = [draw for draw in before if draw[0] < position]
    assert samples_of(stream, kept) == known[: len(kept)]
    batches = samples_of(stream, [*kept, *rest])
    for epoch in range(2):
        inside = [batch for (first, _), batch in zip([*kept, *rest], batches, strict=True) if first // samples == epoch]
        assert sorted(chain.from_iterable(inside)) == list(range(samples))
    other = stream_of(lengths, seed)
    other.load_state_dict(stream.state_dict())
    if rest:
        assert draws(other, plans, position, 2 * samples) == rest
        assert samples_of(other, rest) == samples_of(stream, rest)
