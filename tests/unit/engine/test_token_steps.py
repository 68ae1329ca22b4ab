"""Steps on texts: pieces weigh what is supervised in them, and samples need not be the first dimension."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.token_workloads import PackedTokens, TokenModel, TokenRows, batch_of
from trainauto.core.workload import Workload, split
from trainauto.data.split_batch import without_first
from trainauto.engine.step import optimize_parameters
from trainauto.engine.step_outcome import Stepped

KINDS: list[Workload] = [TokenRows(), PackedTokens()]
LENGTHS, SUPERVISED = (9, 3, 7, 5, 8, 4, 6), (1, 3, 0, 5, 2, 4, 6)


def stepped(model: TokenModel, workload: Workload, pieces: int) -> Stepped:
    outcome = optimize_parameters(model, batch_of(workload, LENGTHS, SUPERVISED, pieces))
    assert isinstance(outcome, Stepped)
    return outcome


@pytest.mark.parametrize("workload", KINDS, ids=["rows", "packed"])
@pytest.mark.parametrize("pieces", [2, 3, 7])
def test_a_step_in_pieces_equals_the_whole_step(workload: Workload, pieces: int) -> None:
    """With unequal numbers of supervised tokens, one sample without any: means of parts averaged would be far off."""
    whole, parts = TokenModel(), TokenModel()
    one, many = stepped(whole, workload, 1), stepped(parts, workload, pieces)
    assert len(parts.forwards) == pieces
    torch.testing.assert_close(parts.weights(), whole.weights(), rtol=1e-6, atol=1e-7)
    assert many.losses["ce"] == pytest.approx(one.losses["ce"], rel=1e-6)
    assert many.grad_norms["g"] == pytest.approx(one.grad_norms["g"], rel=1e-6)


@pytest.mark.parametrize("workload", KINDS, ids=["rows", "packed"])
def test_a_step_that_runs_out_of_memory_trains_the_same_samples(workload: Workload) -> None:
    whole, short = TokenModel(), TokenModel(fits=2)
    stepped(whole, workload, 1)
    outcome = stepped(short, workload, 1)
    assert short.forwards == [7, 4, 2, 2, 2, 1]
    assert [failure.pieces for failure in outcome.failures] == [2, 4]
    torch.testing.assert_close(short.weights(), whole.weights(), rtol=1e-6, atol=1e-7)


def test_a_batch_without_anything_to_learn_changes_nothing() -> None:
    model = TokenModel()
    before = model.weights()
    outcome = optimize_parameters(model, batch_of(TokenRows(), (4, 4), (0, 0), 2))
    assert isinstance(outcome, Stepped)
    assert torch.equal(model.weights(), before)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=9), st.integers(1, 9), st.data())
def test_parts_hold_every_token_once(lengths: list[int], largest: int, data: st.DataObject) -> None:
    supervised = [data.draw(st.integers(0, length)) for length in lengths]
    workload = PackedTokens()
    batch = batch_of(workload, lengths, supervised)
    parts = [part for _, part in split(workload, batch.tensors, len(batch), largest)]
    assert torch.cat([part["ids"] for part in parts]).equal(batch.tensors["ids"])
    assert sum(workload.weight(part) for part in parts) == sum(supervised)
    assert all(part["lengths"].sum() == len(part["ids"]) for part in parts)


def test_batches_in_flight_are_cut_by_their_kind() -> None:
    batch = batch_of(PackedTokens(), LENGTHS, SUPERVISED)
    rest = without_first(batch, 2)
    assert rest.tensors["ids"].equal(batch.tensors["ids"][12:])
    assert (rest.shape.samples, rest.shape.extent, rest.pixels) == (5, 8, 30)
    assert rest.names == tuple(f"text {number}" for number in range(2, 7))
