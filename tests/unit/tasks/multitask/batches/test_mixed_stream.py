"""Draws of mixed batches: packed anew under other plans, the same again after a resume, through our own loader."""

import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mixed_sets import PricedMib, mixed_set, mixed_sets, table_of, taken_mib
from tests.token_workloads import TokenTexts
from trainauto.core.errors import CheckpointError, InputError
from trainauto.core.plan import Axis, Plan
from trainauto.core.units import MIB
from trainauto.data.packed_stream import PackedDraws
from trainauto.integrations.loop_parts import LoopLoader
from trainauto.tasks.multitask.batches.mixed_stream import MixedStream, SampleDoesNotFitError
from trainauto.tasks.multitask.batches.sample_cost import PaddedUnits

Drawn = list[tuple[int, int]]
"""First sample and number of samples of each draw."""


def stream_of(dataset: Any, **settings: Any) -> MixedStream:
    return MixedStream(table_of(dataset), settings.pop("cost", PricedMib()), 5, **settings)


def draws(stream: MixedStream, plans: Mapping[int, int], start: int, stop: int) -> Drawn:
    """Draw from a position to another; plans, in MiB, come into force with the first draw from a position on."""
    batcher, drawn, position = PackedDraws(stream), [], start
    while position < stop:
        limit_mib = plans[max(place for place in plans if place <= position)]
        drawn.append((position, batcher.batch_size(position, Plan.of(bytes=limit_mib * MIB))))
        position += drawn[-1][1]
    return drawn


def samples_of(stream: MixedStream, drawn: Drawn) -> list[list[int]]:
    return [stream.indices(range(first, first + count)) for first, count in drawn]


PLANS = st.dictionaries(st.integers(1, 100), st.integers(200, 600), max_size=3)
WEIGHTS = st.sampled_from([0.0, 0.5, 1.0])


@settings(max_examples=60, deadline=None)
@given(mixed_sets(), PLANS, WEIGHTS, st.one_of(st.none(), st.integers(1, 8)))
def test_whatever_plans_come_every_sample_is_drawn_once_an_epoch_within_its_plan(
    dataset, changes: Mapping[int, int], weight: float, most: int | None
) -> None:
    plans, samples = {0: 300, **changes}, len(dataset)
    stream = stream_of(dataset, task_diversity_weight=weight, most_samples=most)
    drawn = draws(stream, plans, 0, 2 * samples)
    batches = samples_of(stream, drawn)
    for epoch in range(2):
        inside = [batch for (first, _), batch in zip(drawn, batches, strict=True) if first // samples == epoch]
        assert sorted(chain.from_iterable(inside)) == list(range(samples))
    for (first, count), batch in zip(drawn, batches, strict=True):
        assert taken_mib(dataset, batch) <= plans[max(place for place in plans if place <= first)]
        assert count <= (most or count)
    assert draws(stream, plans, 0, 2 * samples) == drawn  # who comes later, as the loader's tail does, gets the same


@settings(max_examples=60, deadline=None)
@given(mixed_sets(least=4), PLANS, st.data())
def test_a_resume_has_what_was_packed_whatever_batches_are_priced_at_by_then(
    dataset, changes: Mapping[int, int], data: st.DataObject
) -> None:
    plans = {0: 300, **changes}
    whole, begun = stream_of(dataset), stream_of(dataset)
    drawn = draws(whole, plans, 0, 2 * len(dataset))
    stop = data.draw(st.integers(1, len(dataset)))
    last = draws(begun, plans, 0, stop)[-1]
    position = sum(last)
    again = stream_of(dataset, cost=PaddedUnits(1))  # the rest was packed under bytes
    again.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    rest_of_epoch = [
        (first, count)
        for first, count in drawn
        if first >= position and first < -(-position // len(dataset)) * len(dataset)
    ]
    later = [place for place in plans if place > last[0]]  # a plan of within the last batch packs the next one anew
    if not later:
        assert draws(again, plans, position, -(-position // len(dataset)) * len(dataset)) == rest_of_epoch
        assert samples_of(again, rest_of_epoch) == samples_of(whole, rest_of_epoch)
    again = stream_of(dataset)
    again.load_state_dict(begun.state_dict())
    rest = draws(again, plans, position, 2 * len(dataset))
    assert rest == [(first, count) for first, count in drawn if first >= position]
    assert samples_of(again, rest) == samples_of(whole, rest)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([250, 400, 700]), min_size=1, max_size=4))
def test_a_bound_under_which_nothing_was_drawn_leaves_no_trace_after_a_resume_either(asked: list[int]) -> None:
    dataset = mixed_set(120)
    hasty, calm = stream_of(dataset), stream_of(dataset)
    place = sum(draws(hasty, {0: 250}, 0, 40)[-1])
    draws(calm, {0: 250}, 0, 40)
    for bound in asked:
        hasty.pack_from(place, bound * MIB)
    again = stream_of(dataset)
    again.load_state_dict(hasty.state_dict())
    plans = {0: asked[-1], place + 30: 300}
    expected = draws(calm, plans, place, 240)
    assert draws(again, plans, place, 240) == expected
    assert samples_of(again, expected) == samples_of(calm, expected)


def test_a_resume_keeps_the_order_that_a_rollback_has_begun() -> None:
    dataset = mixed_set(40)
    whole, resumed = stream_of(dataset), stream_of(dataset)
    whole.reorder_from(10, 1)
    resumed.load_state_dict(whole.state_dict())
    plain, plans = stream_of(dataset), {0: 60}
    first, second, other = (samples_of(one, draws(one, plans, 0, 80)) for one in (whole, resumed, plain))
    assert first == second != other


def test_a_damaged_state_and_one_of_another_set_are_refused() -> None:
    stream = stream_of(mixed_set(20))
    draws(stream, {0: 300}, 0, 20)
    state = stream.state_dict()
    with pytest.raises(CheckpointError, match="none of 30 samples"):
        stream_of(mixed_set(30)).load_state_dict(state)
    state["0"][0]["order"] = "AAAA"
    with pytest.raises(CheckpointError, match="damaged"):
        stream.load_state_dict(state)


def test_a_sample_that_does_not_fit_alone_is_named() -> None:
    dataset = mixed_set(50)
    dataset.tokens[17] = 6400
    stream = stream_of(dataset)
    assert stream.least_bound == taken_mib(dataset, [17]) * MIB
    stream.check(stream.least_bound)
    with pytest.raises(
        SampleDoesNotFitError, match=rf"sample 17 \(task '{dataset.tasks[17]}', .* 6400 tokens\)"
    ) as error:
        stream.pack_from(0, 300 * MIB)
    assert (error.value.index, error.value.task) == (17, dataset.tasks[17])
    assert "the bound of a batch, 300.0 MiB" in str(error.value)
    with pytest.raises(SampleDoesNotFitError, match="others do not fit either"):
        stream.check(20 * MIB)
    with pytest.raises(SampleDoesNotFitError, match=r"takes 6,\d+ tokens"):
        stream_of(dataset, cost=PaddedUnits(64)).check(100)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_is_a_share(weight: float) -> None:
    with pytest.raises(InputError, match="task_diversity_weight"):
        stream_of(mixed_set(5), task_diversity_weight=weight)


def test_quotas_hold_in_every_epoch_with_replacement() -> None:
    stream = stream_of(
        mixed_set(1000), task_distribution={"T1": 0.1, "T2": 0.2, "T3": 0.7}, sampling="replacement", most_samples=16
    )
    for epoch in range(2):
        batches = samples_of(stream, draws(stream, {0: 2000}, epoch * 1000, (epoch + 1) * 1000))
        drawn = np.array(list(chain.from_iterable(batches)))
        assert len(drawn) == 1000
        shares = np.bincount(stream.table.task_ids[drawn], minlength=3) / 1000
        assert np.abs(shares - [0.1, 0.2, 0.7]).max() <= 0.02


def test_parts_of_a_draw_are_padded_to_their_most_images() -> None:
    dataset = mixed_set(100)
    stream = stream_of(dataset, task_diversity_weight=1.0)
    batcher = PackedDraws(stream)
    count = batcher.batch_size(0, Plan.of(bytes=600 * MIB))
    part = batcher.part_size(0, count, Plan.of(bytes=200 * MIB))
    indices = stream.indices(range(count))
    assert 1 <= part < count
    assert taken_mib(dataset, indices[:part]) <= 200 < taken_mib(dataset, indices[: part + 1])
    assert batcher.part_size(0, count, Plan.of(bytes=1)) == 1


def loader_of(texts: TokenTexts, dataset: Any, tokens: int = 900) -> LoopLoader:
    stream = stream_of(dataset, cost=PaddedUnits(20))
    loader = LoopLoader(
        texts, Plan.of(tokens=tokens), seed=1, lookahead=2, stream=stream, new_batcher=lambda *_: PackedDraws(stream)
    )
    loader.axes = (Axis("tokens", "tokens", 144, 10_000),)
    return loader


def taken(loader: LoopLoader, count: int) -> list[tuple[str, ...]]:
    return [batch.names for _, batch in zip(range(count), loader, strict=False)]


def test_our_loader_grows_shrinks_and_resumes_in_the_middle_of_an_epoch() -> None:
    dataset = mixed_set(60)
    texts = TokenTexts(dataset.tokens)
    with loader_of(texts, dataset) as whole, loader_of(texts, dataset) as begun, loader_of(texts, dataset) as resumed:
        first = taken(whole, 3)
        whole.update_plan(Plan.of(tokens=400))
        rest = taken(whole, 40)
        assert taken(begun, 3) == first
        begun.update_plan(Plan.of(tokens=400))
        assert taken(begun, 4) == rest[:4]
        resumed.load_state_dict(begun.state_dict())
        assert taken(resumed, 36) == rest[4:]
    names = [name for batch in first + rest for name in batch]
    assert sorted(names[:60]) == sorted(names[60:120]) == sorted(f"text {number}" for number in range(60))
    assert max(len(batch) for batch in rest) < max(len(batch) for batch in first)
