"""Conversations as tokens and labels (issue 20, part 3; D01 to D04)."""

import re
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

from tests.vision_models import FAMILIES, model_of, processor_of
from trainauto.core.errors import InputError
from trainauto.tasks.finetune.conversation_samples import ConversationSamples, for_model
from trainauto.tasks.finetune.conversations import Conversation, ImagePart, Part, TextPart, Turn
from trainauto.tasks.finetune.encoding import ConversationEncoder, Encoded, TooLongError
from trainauto.tasks.finetune.supervision import NOT_LEARNED, Supervision, expanded

GOLDEN = Path(__file__).parents[3] / "golden" / "supervised_words.txt"


def noise(width: int, height: int) -> ImagePart:
    pixels = np.random.default_rng(width * height).integers(0, 255, (height, width, 3), np.uint8)
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return ImagePart(buffer.getvalue())


def turn(role: str, *parts: Part | str) -> Turn:
    return Turn(role, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


CONVERSATIONS = {
    "a picture, two answers": Conversation(
        "chats:1",
        (
            turn("user", noise(32, 32), "Which colour is it?"),
            turn("assistant", "red"),
            turn("user", "and ", noise(16, 32)),
            turn("assistant", "a square\nand blue"),
        ),
    ),
    "words alone, an answer that asks like a user": Conversation(
        "chats:2", (turn("user", "the other one"), turn("assistant", "user assistant"))
    ),
    "a system message, two pictures in a turn": Conversation(
        "chats:3",
        (
            turn("system", "a picture"),
            turn("user", noise(32, 16), noise(32, 32), "Which"),
            turn("assistant", "green circle"),
        ),
    ),
}


def golden(family: str) -> dict[str, str]:
    """The hand-written blocks of a family, by the name of the conversation."""
    blocks = re.split(r"^== (.*)\n", GOLDEN.read_text().split("\n", 1)[1], flags=re.MULTILINE)[1:]
    named = zip(blocks[::2], blocks[1::2], strict=True)
    return {head.partition(": ")[2]: text for head, text in named if family in head.partition(": ")[0].split(", ")}


def marked(encoded: Encoded, processor: Any) -> str:
    """What is learned in [[ ]], pictures as the number of their tokens."""
    tokenizer, text = processor.tokenizer, ""
    picture = tokenizer.convert_tokens_to_ids(processor.image_token)
    kinds = [
        "picture" if token == picture else "learned" if label != NOT_LEARNED else "given"
        for token, label in zip(encoded.ids.tolist(), encoded.labels.tolist(), strict=True)
    ]
    place = 0
    for kind, run in groupby(kinds):
        count = len(list(run))
        words = tokenizer.decode(encoded.ids[place : place + count])
        text += {"picture": f"({count})", "learned": f"[[{words}]]", "given": words}[kind]
        place += count
    return text


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_is_learned_equals_the_golden_file(family: str) -> None:
    processor = processor_of(family)
    encoder, expected = ConversationEncoder(processor), golden(family)
    assert expected.keys() == CONVERSATIONS.keys()
    for name, conversation in CONVERSATIONS.items():
        assert marked(encoder.encode(conversation), processor) == expected[name], name


@pytest.mark.parametrize("side", ["left", "right"])
def test_batches_learn_what_their_conversations_do_one_by_one(family: str, side: str) -> None:
    processor, model = processor_of(family), model_of(family)
    encoder = ConversationEncoder(processor)
    samples = [encoder.encode(conversation) for conversation in [*CONVERSATIONS.values()] * 3][:8]
    workload = ConversationSamples(processor.tokenizer.pad_token_id, side)

    def learned(batch_size: int) -> tuple[float, torch.Tensor]:
        model.zero_grad()
        total = 0.0
        for start in range(0, len(samples), batch_size):
            batch = workload.batch(samples[start : start + batch_size])
            given = {name: tensor for name, tensor in for_model(batch).items() if name != "labels"}
            logits = model(**given).logits[:, :-1].flatten(0, 1)
            loss = cross_entropy(logits, batch["labels"][:, 1:].flatten(), reduction="sum", ignore_index=NOT_LEARNED)
            loss.backward()
            total += float(loss.detach())
        return total, torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])

    loss, gradient = learned(1)
    for batch_size in (2, 4, 8):
        other, others = learned(batch_size)
        assert other == pytest.approx(loss, rel=1e-5)
        assert (others - gradient).norm() <= 1e-5 * gradient.norm()


def test_marked_templates_are_believed() -> None:
    processor = processor_of("qwen3_vl")
    marks = "{%- if message.role == 'assistant' -%}{% generation %}{{- part.text -}}{% endgeneration %}{%- else -%}"
    words = "{{- 'PICTURE' if part.type == 'image' else part.text -}}"
    picture = "<|vision_start|><|image_pad|><|vision_end|>"
    words = words.replace("PICTURE", picture)
    assert words in processor.chat_template
    processor.chat_template = processor.chat_template.replace(words, f"{marks}{words}{{%- endif -%}}")
    encoded = ConversationEncoder(processor).encode(CONVERSATIONS["a picture, two answers"])
    assert marked(encoded, processor).count("[[red]]<|im_end|>") == 1


def test_a_template_that_rewrites_earlier_turns_is_refused() -> None:
    processor = processor_of("qwen3_vl")
    kept = "{{- '<|im_start|>' + message.role"
    assert kept in processor.chat_template
    processor.chat_template = processor.chat_template.replace(
        kept, "{%- if not loop.last and message.role == 'assistant' -%}{{- 'thought' -}}{%- endif -%}" + kept
    )
    with pytest.raises(InputError, match="chats:1: the chat template writes earlier turns otherwise"):
        ConversationEncoder(processor).encode(CONVERSATIONS["a picture, two answers"])


def test_a_template_that_refuses_says_where() -> None:
    processor = processor_of("qwen3_vl")
    processor.chat_template = "{{ raise_exception('no systems') }}"
    with pytest.raises(InputError, match="chats:3: the chat template refuses this conversation: no systems"):
        ConversationEncoder(processor).encode(CONVERSATIONS["a system message, two pictures in a turn"])


def test_a_processor_without_template_is_refused() -> None:
    processor = processor_of("qwen3_vl")
    processor.chat_template = None
    with pytest.raises(InputError, match="no chat template"):
        Supervision(processor)


def test_too_long_is_said_with_its_pictures() -> None:
    encoder = ConversationEncoder(processor_of("qwen3_vl"), max_length=20)
    with pytest.raises(TooLongError, match=r"chats:3: \d+ tokens, of 2 pictures and words, where 20 are allowed"):
        encoder.encode(CONVERSATIONS["a system message, two pictures in a turn"])


class TestExpanded:
    PLACEHOLDER = 9

    def test_what_stands_between_pictures_keeps_its_marks(self) -> None:
        plain, learned = [1, 9, 2, 9, 3, 4], np.array([0, 0, 1, 0, 0, 1], bool)
        tokens = [1, 7, 8, 7, 2, 8, 8, 3, 4]
        assert expanded(learned, plain, tokens, self.PLACEHOLDER, "here").nonzero()[0].tolist() == [4, 8]

    def test_pictures_beside_each_other(self) -> None:
        learned = np.array([0, 0, 0, 1], bool)
        assert expanded(learned, [1, 9, 9, 2], [1, 8, 8, 8, 2], 9, "here").nonzero()[0].tolist() == [4]

    @pytest.mark.parametrize("tokens", [[5, 8, 2], [1, 8, 5], [1, 8]])
    def test_changed_words_are_refused(self, tokens: list[int]) -> None:
        with pytest.raises(InputError, match="here: the processor changes words around pictures"):
            expanded(np.array([0, 0, 1], bool), [1, 9, 2], tokens, 9, "here")
