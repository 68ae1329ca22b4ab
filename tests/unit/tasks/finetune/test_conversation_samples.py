"""Batches of encoded conversations (issue 20, part 3; D01, D02, D04)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainauto.tasks.finetune.conversation_samples import IMAGES, ROWS_OF, ConversationSamples, for_model
from trainauto.tasks.finetune.encoding import Encoded

PADDING = 9


def conversation(tokens: int, patches: tuple[int, ...] = ()) -> Encoded:
    ids = torch.arange(1, tokens + 1)
    labels = torch.where(ids > tokens // 2, ids, -100)
    pictures: dict[str, Tensor] = {}
    if patches:
        rows = torch.arange(sum(patches), dtype=torch.float32)[:, None].repeat(1, 3) + 100 * tokens
        pictures = {"pixel_values": rows, "image_grid_thw": torch.tensor([[1, 1, count] for count in patches])}
    return Encoded(ids, labels, {"mm_token_type_ids": torch.zeros_like(ids)}, pictures, len(patches))


SHAPES = st.lists(
    st.builds(conversation, st.integers(2, 9), st.lists(st.integers(1, 4), max_size=2).map(tuple)),
    min_size=1,
    max_size=5,
)


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_are_padded_on_their_side_and_not_learned_there(side: str) -> None:
    batch = ConversationSamples(PADDING, side).batch([conversation(2), conversation(4)])
    padded = slice(0, 2) if side == "left" else slice(2, 4)
    assert batch["input_ids"][0, padded].tolist() == [PADDING] * 2
    assert batch["labels"][0, padded].tolist() == [-100] * 2
    assert batch["attention_mask"][0, padded].tolist() == [0, 0]
    assert batch["attention_mask"].sum(1).tolist() == [2, 4]


@pytest.mark.parametrize("side", ["left", "right"])
@given(samples=SHAPES, data=st.data())
def test_parts_are_the_batches_of_their_samples(side: str, samples: list[Encoded], data: st.DataObject) -> None:
    workload = ConversationSamples(PADDING, side)
    whole = workload.batch(samples)
    cut = data.draw(st.integers(0, len(samples) - 1))
    stop = data.draw(st.integers(cut + 1, len(samples)))
    part, alone = workload.part(whole, cut, stop), workload.batch(samples[cut:stop])
    assert same(for_model(part), for_model(alone))
    assert workload.shape(part) == workload.shape(alone)


@given(samples=SHAPES, data=st.data())
def test_joined_parts_are_the_whole(samples: list[Encoded], data: st.DataObject) -> None:
    workload = ConversationSamples(PADDING, "right")
    cut = data.draw(st.integers(1, len(samples)))
    whole = workload.batch(samples)
    parts = [workload.part(whole, start, stop) for start, stop in ((0, cut), (cut, len(samples))) if start < stop]
    assert same(workload.join(parts), whole)


def test_the_model_gets_no_counts_and_no_empty_pictures() -> None:
    workload = ConversationSamples(PADDING, "right")
    whole = workload.batch([conversation(3, (2, 1)), conversation(5)])
    assert whole[ROWS_OF + "pixel_values"].tolist() == [3, 0]
    assert whole[IMAGES].tolist() == [2, 0]
    assert for_model(whole).keys() == {
        "input_ids", "labels", "attention_mask", "mm_token_type_ids", "pixel_values", "image_grid_thw"
    }  # fmt: skip
    assert "pixel_values" not in for_model(workload.part(whole, 1, 2))


def test_weight_counts_what_is_learned() -> None:
    workload = ConversationSamples(PADDING, "left")
    assert workload.weight(workload.batch([conversation(4), conversation(6)])) == 2 + 3
    first_is_learned = Encoded(torch.tensor([1, 2]), torch.tensor([1, 2]), {}, {}, 0)
    assert workload.weight(workload.batch([first_is_learned])) == 1
