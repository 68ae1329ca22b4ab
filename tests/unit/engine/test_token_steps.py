"""Steps on texts: pieces weigh what is supervised in them, and samples need not be the first dimension."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.token_workloads import IGNORED, PackedTokens, TextsWithImages, TokenModel, TokenRows, batch_of
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.core.workload import Tensors, Workload, even_ends, split
from trainauto.data.dynamic_loader import without_first
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


class ManySmallRows(TokenRows):
    """Rows of which twice as many as was thought of the largest find room in a part."""

    def ends(self, tensors: Tensors, largest: int) -> Sequence[int]:
        return even_ends(len(tensors["ids"]), 2 * largest)


def test_where_room_for_the_largest_is_not_enough_for_several_small_ones_each_is_a_part() -> None:
    whole, short = TokenModel(), TokenModel(fits=1)
    stepped(whole, TokenRows(), 1)
    outcome = stepped(short, ManySmallRows(), 1)
    assert short.forwards == [7, 7, 4, 2, *[1] * 7]
    assert outcome.failures[-1].pieces == len(LENGTHS)
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


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(1, 3), max_size=3), min_size=1, max_size=6), st.integers(1, 6))
def test_texts_keep_their_images_through_parts_and_back(images: list[list[int]], largest: int) -> None:
    """Any number of images a sample, of any number of patches: all patches of a batch lie in one dimension."""
    texts = batch_of(PackedTokens(), [2] * len(images), [1] * len(images))
    sides = [side for of_sample in images for side in of_sample]
    batch = {
        **texts.tensors,
        "images": torch.tensor([len(of_sample) for of_sample in images]),
        "grids": torch.tensor([[1, side, side] for side in sides]).reshape(-1, 3),
        "patches": torch.arange(sum(side**2 for side in sides))[:, None],
    }
    workload = TextsWithImages()
    parts = [part for _, part in split(workload, batch, len(images), largest)]
    begun = 0
    for part in parts:
        mine = images[begun : begun + len(part["images"])]
        assert len(part["patches"]) == sum(side**2 for of_sample in mine for side in of_sample)
        begun += len(mine)
    joined = workload.join(parts)
    assert joined.keys() == batch.keys()
    assert all(torch.equal(joined[name], batch[name]) for name in batch)


def test_rows_are_as_wide_as_the_longest_of_them() -> None:
    workload, batch = TokenRows(), batch_of(TokenRows(), LENGTHS, SUPERVISED)
    parts = [part for _, part in split(workload, batch.tensors, len(batch), 3)]
    assert [part["ids"].shape for part in parts] == [(3, 9), (2, 8), (2, 6)]
    joined = workload.join(parts)
    assert all(torch.equal(joined[name], batch.tensors[name]) for name in batch.tensors)
    assert joined["labels"][1, 3:].unique().tolist() == [IGNORED]


class TwoPasses(TokenModel):
    """The first pass hands its predictions on, which the second one learns from; neither weighs the other's."""

    def __init__(self) -> None:
        super().__init__()
        self.optimizers["d"] = torch.optim.SGD(self.network.parameters(), lr=0.1)
        self.passes = (
            Objective("g", self.optimizers["g"], self.first),
            Objective("d", self.optimizers["d"], self.second),
        )

    def objectives(self) -> Sequence[Objective]:
        return self.passes

    def first(self, micro_batch: MicroBatch) -> LossTerms:
        micro_batch["predicted"] = self.network(micro_batch["ids"]).argmax(-1)
        return self.loss(micro_batch)

    def second(self, micro_batch: MicroBatch) -> LossTerms:
        learned = micro_batch["labels"] != IGNORED
        terms = self.loss({**micro_batch, "labels": micro_batch["predicted"].where(learned, IGNORED)})
        return {"again": terms["ce"]}


@pytest.mark.parametrize("workload", KINDS, ids=["rows", "packed"])
@pytest.mark.parametrize("pieces", [2, 4])
def test_what_parts_hand_on_is_joined_whatever_their_width(workload: Workload, pieces: int) -> None:
    whole, parts = TwoPasses(), TwoPasses()
    for model, count in ((whole, 1), (parts, pieces)):
        outcome = optimize_parameters(model, batch_of(workload, LENGTHS, SUPERVISED, count))
        assert isinstance(outcome, Stepped)
    assert len(parts.forwards) == 2 * pieces
    torch.testing.assert_close(parts.weights(), whole.weights(), rtol=1e-6, atol=1e-7)


def test_a_plan_that_counts_nothing_divides_what_there_is() -> None:
    batch, model = batch_of(TokenRows(), LENGTHS, SUPERVISED), TokenModel()
    plan = batch.plan.of(tokens=40, micro_batches=3)
    assert isinstance(optimize_parameters(model, replace(batch, plan=plan, drawn=plan)), Stepped)
    assert model.forwards == [3, 2, 2]


def test_batches_in_flight_are_cut_by_their_kind() -> None:
    batch = batch_of(PackedTokens(), LENGTHS, SUPERVISED)
    rest = without_first(batch, 2)
    assert rest.tensors["ids"].equal(batch.tensors["ids"][12:])
    assert (rest.shape.samples, rest.shape.extent, rest.units) == (5, 8, 30)
    assert rest.names == tuple(f"text {number}" for number in range(2, 7))
