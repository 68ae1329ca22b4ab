"""What a model answers, beside what it should (issue 20, part 7)."""

from typing import Any

import pytest
import torch

from tests.unit.tasks.finetune.test_encoding import CONVERSATIONS, noise, turn
from tests.vision_models import model_of, processor_of
from trainauto.tasks.finetune.answers import Answer, answer_all
from trainauto.tasks.finetune.conversations import Conversation
from trainauto.tasks.finetune.encoding import ConversationEncoder


class Parrot(torch.nn.Module):
    """Says what each row is expected to say, or something else."""

    def __init__(self, says: list[list[int]], padding: int, most: int = 99) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.says, self.padding, self.most, self.asked = says, padding, most, []

    def generate(self, input_ids: torch.Tensor, **given: Any) -> torch.Tensor:
        if len(input_ids) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.asked.append(given)
        rows = [self.says.pop(0) for _ in input_ids]
        wide = max(map(len, rows))
        padded = [[*row, *[self.padding] * (wide - len(row))] for row in rows]
        return torch.cat([input_ids, torch.tensor(padded)], 1)


@pytest.fixture
def encoder() -> ConversationEncoder:
    return ConversationEncoder(processor_of("qwen3_vl"))


def said(encoder: ConversationEncoder, words: str) -> list[int]:
    ids: list[int] = processor_of("qwen3_vl").tokenizer(words + "<|im_end|>")["input_ids"]
    return ids


def answers(encoder: ConversationEncoder, model: torch.nn.Module, some: list[Conversation], size: int) -> list[Answer]:
    padding = processor_of("qwen3_vl").tokenizer.pad_token_id
    example = encoder.encode(CONVERSATIONS["a picture, two answers"])
    return list(answer_all(model, encoder, some, padding_id=padding, batch_size=size, example=example))


def test_each_answer_is_compared_with_its_own_turn(encoder: ConversationEncoder) -> None:
    """Of two turns the second one is expected to say what stands there, and not the first one as well."""
    padding = processor_of("qwen3_vl").tokenizer.pad_token_id
    talk = CONVERSATIONS["a picture, two answers"]
    parrot = Parrot([said(encoder, "red"), said(encoder, "a square\nand blue")], padding)
    first, second = answers(encoder, parrot, [talk], 2)
    assert (first.expected, second.expected) == ("red", "a square\nand blue")
    assert first.is_exact
    assert second.is_exact
    assert second.question == "and "
    assert parrot.asked[0]["eos_token_id"] == [processor_of("qwen3_vl").tokenizer.convert_tokens_to_ids("<|im_end|>")]


def test_questions_that_do_not_fit_are_asked_in_smaller_batches(encoder: ConversationEncoder) -> None:
    padding = processor_of("qwen3_vl").tokenizer.pad_token_id
    some = [
        Conversation(f"chats:{number}", (turn("user", noise(16, 16), "Which"), turn("assistant", "red")))
        for number in range(5)
    ]
    parrot = Parrot([said(encoder, "red")] * 5, padding, most=2)
    given = answers(encoder, parrot, some, 4)
    assert [answer.place for answer in given] == [f"chats:{number}" for number in range(5)]
    assert all(answer.is_exact for answer in given)


def test_a_real_model_answers_alike_one_by_one_and_in_batches(encoder: ConversationEncoder) -> None:
    model, some = model_of("qwen3_vl"), list(CONVERSATIONS.values())
    alone, together = (answers(encoder, model, some, size) for size in (1, 4))
    assert len(alone) == 4
    assert [answer.given for answer in alone] == [answer.given for answer in together]
