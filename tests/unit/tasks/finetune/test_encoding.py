"""Conversations as tokens and labels (issue 20, part 3; D01 to D04)."""

import re
from io import BytesIO
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
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
from trainauto.tasks.finetune.encoding import ConversationEncoder, Encoded
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


def learned(
    model: torch.nn.Module, workload: ConversationSamples, samples: list[Encoded], batch_size: int
) -> tuple[float, torch.Tensor]:
    """The summed loss of conversations and its gradients, so many at a time."""
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


def equal_in_any_batches(
    model: torch.nn.Module, workload: ConversationSamples, samples: list[Encoded], sizes: tuple[int, ...]
) -> None:
    """Batches of these sizes give the loss and the gradients of their conversations one by one."""
    loss, gradient = learned(model, workload, samples, 1)
    for batch_size in sizes:
        other, others = learned(model, workload, samples, batch_size)
        assert other == pytest.approx(loss, rel=1e-5)
        assert (others - gradient).norm() <= 1e-5 * gradient.norm()


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
    equal_in_any_batches(model, workload, samples, (2, 4, 8))


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


def test_the_mark_of_a_picture_among_words_is_refused_before_a_run(family: str) -> None:
    """As LLaVA's own data has it in every turn: the processor would take it for a picture that is not there."""
    processor = processor_of(family)
    encoder, mark = ConversationEncoder(processor), processor.image_token
    shown = Conversation("chats:4", (turn("user", noise(16, 16), f"{mark}Which?"), turn("assistant", "red")))
    with pytest.raises(InputError, match=r"chats:4: .* stands 2 times in it, beside 1 pictures"):
        encoder.count(shown, [(16, 16)])
    words = Conversation("chats:5", (turn("user", f"{mark}Which?"), turn("assistant", "red")))
    with pytest.raises(InputError, match=r"chats:5: .* stands 1 times in it, beside 0 pictures"):
        encoder.count(words, [])


def test_a_template_that_leaves_pictures_out_is_refused() -> None:
    processor = processor_of("qwen3_vl")
    processor.chat_template = processor.chat_template.replace("<|vision_start|><|image_pad|><|vision_end|>", "")
    shown = Conversation("chats:4", (turn("user", noise(16, 16), "Which?"), turn("assistant", "red")))
    with pytest.raises(InputError, match=r"stands 0 times in it, beside 1 pictures\n.*leaves pictures out"):
        ConversationEncoder(processor).count(shown, [(16, 16)])


def test_a_word_that_begins_in_the_prompts_last_space_is_learned() -> None:
    processor = processor_of("qwen3_vl")
    processor.chat_template = (
        "{%- for message in messages -%}{{- message.role + ': ' -}}"
        "{%- for part in message.content -%}{{- part.text -}}{%- endfor -%}{{- '<|im_end|>' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- 'assistant: ' -}}{%- endif -%}"
    )
    encoded = ConversationEncoder(processor).encode(
        Conversation("chats:1", (turn("user", "Which colour is it?"), turn("assistant", "red square")))
    )
    assert marked(encoded, processor).endswith("assistant:[[ red square<|im_end|>]]")


def test_a_template_that_does_not_ask_is_refused() -> None:
    """Its header of answers would be learned."""
    processor = processor_of("qwen3_vl")
    ask = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
    assert ask in processor.chat_template
    processor.chat_template = processor.chat_template.replace(ask, "")
    with pytest.raises(InputError, match="does not say where an answer begins"):
        ConversationEncoder(processor).encode(CONVERSATIONS["words alone, an answer that asks like a user"])


def test_answers_without_a_mark_at_their_end_are_told() -> None:
    processor = processor_of("qwen3_vl")
    talk = CONVERSATIONS["words alone, an answer that asks like a user"]
    encoder = ConversationEncoder(processor)
    assert encoder.ends_answers(encoder.encode(talk))
    processor.chat_template = processor.chat_template.replace("{{- '<|im_end|>\n' -}}", "{{- '\n' -}}")
    encoder = ConversationEncoder(processor)
    assert not encoder.ends_answers(encoder.encode(talk))


def test_tokens_of_a_picture_are_those_that_are_made_where_a_processor_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processor = processor_of("qwen3_vl")
    sizes = [(16, 16), (32, 16), (32, 32)]

    def counts() -> list[int]:
        encoder = ConversationEncoder(processor)
        return [encoder.picture_tokens(size, "here") for size in sizes]

    right = counts()
    monkeypatch.setattr(
        type(processor), "_get_num_multimodal_tokens", lambda *_a, **_k: SimpleNamespace(num_image_tokens=[99])
    )
    assert counts() == right


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
