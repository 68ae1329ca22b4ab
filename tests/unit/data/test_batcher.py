"""Draws that hold as many samples as a batcher says: here texts of different lengths under a budget of tokens."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripted_loader import fetched_ahead, follow, logged
from tests.scripted_loader import run as run_script
from tests.token_workloads import PackedTokens, TokenBudget, TokenRows, TokenTexts
from trainauto.core.batch import Batch
from trainauto.core.plan import Plan
from trainauto.core.sharding import SINGLE_PROCESS, SampleSharding
from trainauto.data import DynamicDataLoader
from trainauto.data.batcher import KnownDraws
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.data.sampler import (
    DynamicBatchSampler,
    LoggedBatch,
    PlannedBatch,
    ShuffledStream,
    StreamState,
)

LENGTHS = (9, 3, 17, 5, 8, 4, 26, 6, 11, 2, 7)
START, LARGE, SMALL = Plan.of(tokens=40), Plan.of(tokens=90), Plan.of(tokens=16)
SCRIPT = {4: LARGE, 13: SMALL, 24: START}
"""Growth, and a cut far below what is in flight: some texts alone are longer than the budget then."""

SHARDINGS = [SINGLE_PROCESS, SampleSharding.equal(2), SampleSharding.equal(3), SampleSharding((1.0, 0.5))]
IDS = ["1 rank", "2 ranks", "3 ranks", "unequal ranks"]


def loader_of(sharding: SampleSharding = SINGLE_PROCESS, rank: int = 0, **more: Any) -> DynamicDataLoader:
    texts = TokenTexts(LENGTHS, more.pop("workload", TokenRows()))
    budget = partial(TokenBudget, LENGTHS)
    more = {"seed": 7, "lookahead": 3, "sharding": sharding, "rank": rank, "new_batcher": budget, **more}
    return DynamicDataLoader(texts, more.pop("plan", START), **more)


run = partial(run_script, script=SCRIPT)


def facts(batches: Sequence[Batch]) -> list[tuple[Any, ...]]:
    return [
        (b.first_sample, b.names, b.plan, b.drawn, b.draw_samples, {n: t.tolist() for n, t in b.tensors.items()})
        for b in batches
    ]


def positions(batches: Sequence[Batch]) -> list[int]:
    return [p for batch in batches for p in range(batch.first_sample, batch.first_sample + batch.step_samples)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 80), st.sampled_from(SHARDINGS))
def test_a_draw_is_the_largest_that_fits(lengths: list[int], tokens: int, sharding: SampleSharding) -> None:
    order, plan = ShuffledStream(len(lengths), 3), Plan.of(tokens=tokens)
    budget = TokenBudget(lengths, order, sharding)
    position = StreamState.start(plan, budget)
    for _ in range(6):
        draw = position.next_draw
        position = position.advanced(sharding, budget)
        assert position.next_draw.first_sample == draw.first_sample + sharding.total(draw.batch_size)
        assert draw.batch_size == 1 or budget.fits(draw.first_sample, draw.batch_size, tokens)
        assert not budget.fits(draw.first_sample, draw.batch_size + 1, tokens)
        assert StreamState.from_dict(position.to_dict()) == position


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5), st.integers(0, 5), st.sampled_from([LARGE, SMALL]))
def test_head_ahead_or_not_draws_the_same(ahead_a: int, ahead_b: int, plan: Plan) -> None:
    def keys(ahead: int) -> list[list[SampleKey]]:
        order = ShuffledStream(len(LENGTHS), 0)
        budget = TokenBudget(LENGTHS, order, SINGLE_PROCESS)
        stream = DynamicBatchSampler(order, StreamState.start(START, budget), batcher=budget)
        return fetched_ahead(stream, ahead, 3 + 5, plan)

    assert keys(ahead_a) == keys(ahead_b)


@pytest.mark.parametrize("sharding", SHARDINGS, ids=IDS)
@pytest.mark.parametrize("workload", [TokenRows(), PackedTokens()], ids=["rows", "packed"])
def test_every_rank_keeps_to_its_budget_and_no_sample_is_lost(
    sharding: SampleSharding, workload: TokenRows | PackedTokens
) -> None:
    """Growth waits for the lookahead; a smaller plan cuts what is in flight by texts, and texts longer than it."""
    ranks, order = [], ShuffledStream(len(LENGTHS), 7)
    for rank in range(sharding.world_size):
        with loader_of(sharding, rank, workload=workload) as loader:
            ranks.append(run(loader, range(1, 36)))
    for step, batches in enumerate(zip(*ranks, strict=True), 1):
        first = batches[0]
        assert {(b.first_sample, b.plan, b.drawn, b.step_samples, b.draw_samples) for b in batches} == {
            (first.first_sample, first.plan, first.drawn, first.step_samples, first.draw_samples)
        }
        names = sorted(name for batch in batches for name in batch.names)
        assert names == sorted(f"text {order.index_at(position)}" for position in positions([first]))
        for batch, weight in zip(batches, sharding.weights, strict=True):
            assert len(batch) <= 1 or len(batch) * batch.shape.extent <= weight * batch.plan.size, step
            assert batch.shape.extent <= batch.plan.size
    plans = [batch.plan for batch in ranks[0]]
    assert plans[:7] == [START] * 7  # four trained when growth was asked for, three more under way
    assert plans[7:13] == [LARGE] * 6
    assert plans[13:24] == [SMALL] * 11
    cut = [batch for batch in ranks[0] if batch.drawn != batch.plan]
    assert cut
    assert all(batch.step_samples <= batch.draw_samples for batch in cut)
    assert positions(ranks[0]) == list(range(len(positions(ranks[0]))))


def logged_of_all(batches: Sequence[Batch]) -> list[LoggedBatch]:
    return [entry._replace(samples=batch.step_samples) for entry, batch in zip(logged(batches), batches, strict=True)]


@pytest.mark.parametrize("stop_after", [1, 8, 14, 15, 16, 17, 18, 26])
def test_a_resume_goes_on_in_the_middle_of_a_draw(stop_after: int) -> None:
    with loader_of() as loader:
        want = facts(run(loader, range(1, 36)))
    with loader_of() as first:
        before = run(first, range(1, stop_after + 1))
        state = first.state_dict()
    with loader_of(plan=SMALL) as second:
        second.load_state_dict(state)
        after = run(second, range(stop_after + 1, 36))
    assert facts(before) + facts(after) == want


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("stop_after", [3, 15])
def test_another_number_of_ranks_goes_on_with_the_next_sample(ranks: int, stop_after: int) -> None:
    with loader_of(SampleSharding.equal(2), 1) as loader:
        before = run(loader, range(1, stop_after + 1))
        state = loader.state_dict()
    assert (state["given"] > 0) is (stop_after == 15), "in the middle of a draw, or between two"
    after, sharding = [], SampleSharding.equal(ranks)
    for rank in range(ranks):
        with loader_of(sharding, rank) as loader:
            loader.load_state_dict(state)
            after.append(run(loader, range(16, 30), script={}))
    budget, first = TokenBudget(LENGTHS, ShuffledStream(len(LENGTHS), 7), sharding), after[0][0]
    assert first.draw_samples == sharding.total(budget.batch_size(first.first_sample, first.drawn))
    assert positions(before) + positions(after[0]) == list(range(len(positions(before) + positions(after[0]))))
    for batches in after:
        assert all(len(b) == 1 or len(b) * b.shape.extent <= b.plan.size for b in batches)


def test_a_batch_given_back_comes_again_within_the_smaller_plan() -> None:
    with loader_of(plan=LARGE) as loader:
        batches = iter(loader)
        first = next(batches)
        loader.update_plan(SMALL)
        loader.requeue(first)
        again = []
        while sum(len(batch) for batch in again) < len(first):
            again.append(next(batches))
    assert positions(again) == positions([first])
    assert [name for batch in again for name in batch.names] == list(first.names)
    assert len(again) > 1
    assert all(batch.plan == SMALL and batch.shape.extent <= SMALL.size for batch in again)
    assert torch.equal(again[0].tensors["ids"][0], first.tensors["ids"][0, : again[0].shape.extent])


@pytest.mark.parametrize("trained", [0, 15])
def test_a_log_is_followed_and_its_position_too(trained: int) -> None:
    with loader_of() as loader:
        begun = loader.state_dict()
        batches = run(loader, range(1, 16))
        within = loader.state_dict()
        batches += run(loader, range(16, 30))
        state = loader.state_dict()
    with loader_of() as loader:
        loader.load_state_dict(within if trained else begun)
        followed = follow(loader, logged(batches), trained, SCRIPT)
        again = loader.state_dict()
    assert facts(followed) == facts(batches[trained:])
    assert again == state


def test_the_log_of_two_ranks_is_followed_by_one() -> None:
    """Under a budget for each of them one rank alone would draw otherwise: the log says what a draw held."""
    sharding = SampleSharding.equal(2)
    with loader_of(sharding) as loader:
        batches = run(loader, range(1, 30))
    with loader_of() as loader:
        loader.replay(logged_of_all(batches))
        followed = list(loader)
        beyond = loader.state_dict()["tail"]
    assert [(len(b), b.first_sample) for b in followed] == [(b.step_samples, b.first_sample) for b in batches]
    assert beyond["first_sample"] == len(positions(batches))


def test_known_draws_hold_what_they_held() -> None:
    budget = TokenBudget(LENGTHS, ShuffledStream(len(LENGTHS), 7), SINGLE_PROCESS)
    known = KnownDraws({0: 2}, budget)
    assert known.batch_size(0, LARGE) == 2 < budget.batch_size(0, LARGE)
    assert known.batch_size(2, LARGE) == budget.batch_size(2, LARGE)


def test_a_position_from_before_draws_had_a_count_is_read() -> None:
    position = StreamState.start(Plan.of(batch_size=4, lq_size=48)).advanced().with_change(3, Plan.of(batch_size=2))
    written = position.to_dict()
    del written["batch_size"]
    assert StreamState.from_dict(written) == position


def test_a_plan_that_counts_says_nothing_more_of_a_draw() -> None:
    counted = PlannedBatch(0, 0, Plan.of(batch_size=4, tokens=9), 4)
    assert counted.is_as_counted
    assert not replace(counted, batch_size=3).is_as_counted
    assert not PlannedBatch(0, 0, Plan.of(tokens=9), 1).is_as_counted
    with DynamicDataLoader(TokenTexts(LENGTHS), Plan.of(batch_size=4, tokens=9), seed=1) as loader:
        assert next(iter(loader)).draw_samples == 0
    with loader_of() as loader:
        assert (batch := next(iter(loader))).draw_samples == len(batch)


def test_plans_without_a_size_or_without_anything() -> None:
    """Nothing is cut where no axis says how large a sample is."""
    texts = TokenTexts(LENGTHS)
    with DynamicDataLoader(texts, Plan.of(batch_size=4), seed=1) as loader:
        batches = iter(loader)
        first = next(batches)
        assert first.shape.extent == max(LENGTHS[int(name.split()[1])] for name in first.names)
        with pytest.raises(ValueError, match="batch_size 4: it has no size"):
            loader.update_size(3)
        loader.update_batch_size(2)
        assert (len(first), len(next(batches))) == (4, 2)
    with DynamicDataLoader(texts, Plan.of(), seed=1) as loader:
        with pytest.raises(ValueError, match="does not count samples"):
            loader.update_batch_size(2)
        assert [len(batch) for _, batch in zip(range(3), loader, strict=False)] == [1, 1, 1]
