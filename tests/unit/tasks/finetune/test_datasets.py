"""Conversations as a Trainer draws them: batches that look alike, parts that make up the whole (D01 to D04, D06)."""

from collections.abc import Mapping
from functools import cache
from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.vision_models import FAMILIES, model_of, processor_of
from trainauto.core.workload import split
from trainauto.tasks.finetune.conversation_samples import IMAGES, ConversationSamples, for_model
from trainauto.tasks.finetune.conversations import Conversation, ImagePart, TextPart, Turn
from trainauto.tasks.finetune.datasets import ConversationCollator, ConversationDataset, PlannedConversations
from trainauto.tasks.finetune.encoding import ConversationEncoder
from trainauto.tasks.finetune.supervision import NOT_LEARNED

SIZES_PX = ((16, 32), (32, 32), (24, 16))


def conversation(pictures: int, words: int) -> Conversation:
    """A question about some pictures, and its answer."""
    asked = (*(noise(*SIZES_PX[place]) for place in range(pictures)), TextPart("Which colour " * words))
    return Conversation("here", (Turn("user", asked), Turn("assistant", (TextPart("red square " * words),))))


def noise(width: int, height: int) -> ImagePart:
    buffer = BytesIO()
    pixels = np.random.default_rng(width).integers(0, 255, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return ImagePart(buffer.getvalue())


@cache
def dataset(family: str) -> ConversationDataset:
    """No picture, one, none, three, and two."""
    some = [conversation(pictures, words) for pictures, words in ((0, 3), (1, 1), (0, 1), (3, 2), (2, 1))]
    return ConversationDataset(some, ConversationEncoder(processor_of(family)))


def collator(family: str, side: str = "right") -> ConversationCollator:
    return ConversationCollator(ConversationSamples(0, side), dataset(family)[3])


def batch_of(family: str, *numbers: int, side: str = "right") -> dict[str, Tensor]:
    return collator(family, side)([dataset(family)[number] for number in numbers])


def planned(family: str, side: str = "right") -> PlannedConversations:
    return PlannedConversations.of(ConversationSamples(0, side), batch_of(family, 3, side=side))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_batch_has_the_same_keys(family: str) -> None:
    """Words alone or with pictures: what is learned from one batch of how a run divides them holds for all."""
    batches = [batch_of(family, *numbers) for numbers in ((0,), (1, 3), (0, 2), (0, 1, 2, 3, 4))]
    assert len({tuple(batch) for batch in batches}) == 1
    assert next(iter(batches[0])) == "input_ids"
    assert [batch[IMAGES].tolist() for batch in batches] == [[0], [1, 3], [0, 0], [0, 1, 0, 3, 2]]
    assert "pixel_values" not in for_model(batches[0])
    assert "pixel_values" in for_model(batches[1])


def test_a_run_of_words_alone_has_no_pictures() -> None:
    words = ConversationCollator(ConversationSamples(0, "right"), None)([dataset("llava")[0]])
    assert set(words) == {"input_ids", "labels", "attention_mask", IMAGES}


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_parts_join_to_the_batch(family: str, side: str) -> None:
    workload, whole = planned(family, side), batch_of(family, 0, 1, 2, 3, 4, side=side)
    for cuts in ((0, 5), (0, 2, 5), (0, 1, 3, 4, 5), (0, 1, 2, 3, 4, 5)):
        parts = [workload.part(whole, start, stop) for start, stop in pairwise(cuts)]
        assert same(workload.join(parts), whole)
        assert [workload.shape(part).samples for part in parts] == [stop - start for start, stop in pairwise(cuts)]
        assert sum(workload.units(part) for part in parts) == workload.units(whole)
    for start in range(5):
        part = workload.part(whole, start, start + 1)
        alone = batch_of(family, start, side=side)
        assert same(for_model(part), for_model(alone))


def test_what_a_loss_hands_on_is_joined_by_rows() -> None:
    first, second = ({"scores": torch.full((rows, 2), float(rows))} for rows in (1, 2))
    assert planned("llava").join([first, second])["scores"].tolist() == [[1, 1], [2, 2], [2, 2]]


def test_plans_go_by_the_largest_sample() -> None:
    workload = planned("qwen3_vl")
    repeated = workload.dummy(3, 1)
    assert workload.fullness(repeated, 3) == workload.fullness(repeated, 8) == 1.0
    assert repeated[IMAGES].tolist() == [3, 3, 3]
    assert workload.shape(repeated).tokens == 3 * workload.shape(workload.dummy(1, 1)).tokens
    assert workload.fullness(batch_of("qwen3_vl", 2), 1) < 0.6


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_passes_hold_as_much_as_so_many_of_the_largest(family: str, side: str) -> None:
    """Few long conversations or many short ones, each once; never more tokens or pictures than there is room for."""
    workload = planned(family, side)
    collate = ConversationCollator(workload._samples, dataset(family)[3], longest_first=True)
    whole = collate([dataset(family)[number] for number in (0, 2, 1, 2, 3, 2, 4, 2, 0)])
    tokens = whole["attention_mask"].sum(1).tolist()
    assert tokens == sorted(tokens, reverse=True)
    most_tokens, most_rows = max(tokens), workload.template.leaves["pixel_values"].shape[0]
    fewer = []
    for largest in (1, 2, 3):
        passes = [part for _, part in split(workload, whole, 9, largest)]
        assert sum(len(part["input_ids"]) for part in passes) == 9
        assert len(passes) <= -(-9 // largest)
        assert same(workload.join(passes), whole)
        fewer.append(len(passes) < -(-9 // largest))
        for part in passes:
            fits = part["input_ids"].numel() <= largest * most_tokens
            assert len(part["input_ids"]) <= largest or (fits and len(part["pixel_values"]) <= largest * most_rows)
    assert any(fewer)
    assert [len(part["input_ids"]) for _, part in split(workload, whole, 9, 9)] == [9]


def test_what_does_not_come_by_length_counts_as_what_comes_after_it() -> None:
    """Where pictures have shrunk, conversations keep their places in a step: no pass holds more than there is room."""
    workload = planned("qwen3_vl")
    mixed = batch_of("qwen3_vl", 3, 1, 2, 1, 2, 1, 2)
    most_tokens, most_rows = (
        workload.template.leaves[name].shape[axis] for name, axis in (("input_ids", 1), ("pixel_values", 0))
    )
    passes = [part for _, part in split(workload, mixed, 7, 2)]
    assert same(workload.join(passes), mixed)
    assert len(passes) < 4
    for part in passes:
        assert part["input_ids"].numel() <= 2 * most_tokens
        assert len(part.get("pixel_values", ())) <= 2 * most_rows


def test_a_step_keeps_its_order_when_pictures_shrink() -> None:
    """A part of it may be trained already, and the rest is drawn anew: none may come twice, and none be left out."""
    processor = processor_of("qwen3_vl")
    encoder = ConversationEncoder(processor)
    encoder.limit_pictures(256 * 256)
    picture = noise(96, 96)
    shown = Conversation("here", (Turn("user", (picture, TextPart("Which?"))), Turn("assistant", (TextPart("red"),))))
    some = [conversation(0, 2), shown]
    lengths = np.asarray([len(encoder.encode(each).ids) for each in some])
    data = ConversationDataset(some, encoder, lengths)
    collate = ConversationCollator(ConversationSamples(0, "right"), data[1], longest_first=True)
    assert lengths[0] < lengths[1]
    before = collate([data[0], data[1]])
    encoder.limit_pictures(32 * 32)
    after = collate([data[0], data[1]])
    assert after["attention_mask"].sum(1).argmax() == 1  # the words alone are longer now
    assert before[IMAGES].tolist() == after[IMAGES].tolist() == [1, 0]


@pytest.mark.parametrize("family", FAMILIES)
def test_of_several_as_large_as_the_largest_one_is_padded(family: str) -> None:
    """Models leave masks out where nothing is padded, and take less than they do for other batches."""
    workload = planned(family)
    one, three = workload.dummy(1, 1), workload.dummy(3, 1)
    assert one["attention_mask"].all()
    assert (three["attention_mask"] == 0).sum() == 1
    assert same(for_model(workload.part(three, 0, 1)), for_model(one))
    assert three["pixel_values"].shape[0] == 3 * one["pixel_values"].shape[0]


def test_traces_are_told_all_but_what_pictures_show() -> None:
    workload = planned("qwen3_vl")
    told = {name for name, leaf in workload.template.leaves.items() if any(leaf is other for other in workload.told())}
    assert workload.template.leaves.keys() - told == {"pixel_values"}
    assert {"input_ids", "image_grid_thw", "mm_token_type_ids"} < told


def gradients(model: nn.Module, parts: list[Mapping[str, Tensor]], weight: int) -> tuple[float, Tensor]:
    model.zero_grad()
    total = 0.0
    for part in parts:
        given = {name: tensor for name, tensor in for_model(part).items() if name != "labels"}
        logits = model(**given).logits[:, :-1].flatten(0, 1)
        loss = cross_entropy(logits, part["labels"][:, 1:].flatten(), reduction="sum", ignore_index=NOT_LEARNED)
        (loss / weight).backward()
        total += float(loss.detach()) / weight
    return total, torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_give_loss_and_gradients_of_the_batch(family: str) -> None:
    """D06: the mean over the words of a step that are learned, in however many passes it runs."""
    model, workload, whole = model_of(family), planned(family), batch_of(family, 0, 1, 2, 3, 4)
    weight = ConversationSamples(0, "right").weight(whole)
    loss, gradient = gradients(model, [whole], weight)
    for cuts in ((0, 2, 5), (0, 1, 2, 3, 4, 5)):
        parts = [workload.part(whole, start, stop) for start, stop in pairwise(cuts)]
        in_parts, others = gradients(model, parts, weight)
        assert in_parts == pytest.approx(loss, rel=1e-5)
        assert (others - gradient).norm() <= 1e-5 * gradient.norm()
