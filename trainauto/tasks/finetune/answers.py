"""What a vision-language model answers beside what it should: greedily, in batches that shrink where they must."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.monitor.release import release_memory
from trainauto.tasks.finetune.conversation_samples import ConversationSamples, for_model
from trainauto.tasks.finetune.conversations import Conversation
from trainauto.tasks.finetune.datasets import ConversationCollator, ConversationDataset
from trainauto.tasks.finetune.encoding import IDS, LABELS, ConversationEncoder, Encoded
from trainauto.tasks.finetune.supervision import NOT_LEARNED

logger = logging.getLogger(__name__)

ROOM_FOR_OTHERS = 8
"""Tokens that an answer may have beyond the longest of those that are expected: a wrong one need not end in time."""


@dataclass(frozen=True)
class Answer:
    """What a model said to a question.

    Attributes:
        place: file and line of the conversation.
        question: the words of the last who asked.
        expected: what stands there as the answer.
        given: what the model says.
    """

    place: str
    question: str
    expected: str
    given: str

    @property
    def is_exact(self) -> bool:
        """Whether both are the same, white space around them aside."""
        return self.expected.strip() == self.given.strip()


@dataclass(frozen=True)
class _Question:
    """A conversation up to where the model is asked, and what it should say."""

    prompt: Encoded
    conversation: Conversation
    turn: int
    expected_tokens: Sequence[int]

    @property
    def asked(self) -> str:
        return self.conversation.turns[self.turn - 1].text


def answer_all(
    model: nn.Module,
    encoder: ConversationEncoder,
    conversations: Sequence[Conversation],
    *,
    padding_id: int,
    batch_size: int,
    example: Encoded | None,
) -> Iterator[Answer]:
    """Have a model answer each question of conversations, those before answered as they stand there.

    Args:
        model: where it runs; it is put into evaluation mode.
        encoder: of its processor.
        conversations: with their answers.
        padding_id: token that rows are padded with.
        batch_size: questions at a time; halved where they do not fit.
        example: an encoded conversation with pictures; ``None`` where there are none.
    """
    model.eval()
    collate = ConversationCollator(ConversationSamples(padding_id, "left"), example)
    questions = [(conversation, turn) for conversation in conversations for turn in conversation.answers()]
    start = 0
    while start < len(questions):
        batch = [_question(encoder, *pair) for pair in questions[start : start + batch_size]]
        try:
            said = _generated(model, encoder, collate, batch, padding_id)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or len(batch) == 1:
                raise
            said = None
        if said is None:  # outside the handler: the traceback holds what the attempt took
            release_memory(next(model.parameters()).device)
            batch_size = (len(batch) + 1) // 2
            logger.warning("out of memory with %d questions at a time: %d from now on", len(batch), batch_size)
            continue
        start += len(batch)
        for question, words in zip(batch, said, strict=True):
            (expected,) = encoder.words([question.expected_tokens])  # without marks, as what is said
            yield Answer(question.conversation.place, question.asked, expected, words)


def mean_loss(
    model: nn.Module, dataset: ConversationDataset, collate: ConversationCollator, batch_size: int
) -> tuple[float, int]:
    """Return the mean loss of the learned tokens of a dataset, and how many there are.

    Args:
        model: where it runs; it is put into evaluation mode.
        dataset: with at least one conversation.
        collate: makes batches.
        batch_size: conversations at a time; halved where they do not fit.
    """
    model.eval()
    device = next(model.parameters()).device
    total, tokens, start = 0.0, 0, 0
    while start < len(dataset):
        samples = [dataset[place] for place in range(start, min(len(dataset), start + batch_size))]
        batch = collate(samples)
        count = collate.samples.weight(batch)
        try:
            with torch.inference_mode():
                loss = float(model(**_on(for_model(batch), device)).loss) if count else 0.0
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or len(samples) == 1:
                raise
            loss = None
        if loss is None:
            release_memory(device)
            batch_size = (len(samples) + 1) // 2
            continue
        total, tokens, start = total + loss * count, tokens + count, start + len(samples)
    return total / max(1, tokens), tokens


def _question(encoder: ConversationEncoder, conversation: Conversation, turn: int) -> _Question:
    whole = encoder.encode(conversation.first(turn + 1))
    return _Question(encoder.encode_prompt(conversation, turn), conversation, turn, _last_answer(whole))


def _last_answer(encoded: Encoded) -> list[int]:
    """Return the tokens of a conversation's last answer: those before it are learned as well."""
    learned = (encoded.labels != NOT_LEARNED).tolist()
    end = len(learned) - learned[::-1].index(True)
    start = end - next((place for place, is_learned in enumerate(learned[:end][::-1]) if not is_learned), end)
    tokens: list[int] = encoded.ids[start:end].tolist()
    return tokens


def _generated(
    model: nn.Module,
    encoder: ConversationEncoder,
    collate: ConversationCollator,
    questions: Sequence[_Question],
    padding_id: int,
) -> list[str]:
    """Return what the model says to each."""
    device = next(model.parameters()).device
    batch = collate([question.prompt for question in questions])
    inputs = {name: tensor for name, tensor in _on(for_model(batch), device).items() if name != LABELS}
    longest = max(len(question.expected_tokens) for question in questions)
    ends = [question.expected_tokens[-1] for question in questions]
    generate: Any = model.generate
    with torch.inference_mode():
        rows = generate(
            **inputs,
            max_new_tokens=longest + ROOM_FOR_OTHERS,
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,  # a model's own generation_config would have a say
            no_repeat_ngram_size=0,
            use_cache=True,
            pad_token_id=padding_id,
            eos_token_id=sorted(_ends(model) | encoder.end_tokens(ends)) or None,
        )
    said = rows[:, inputs[IDS].shape[1] :].tolist()
    room = [len(question.expected_tokens) + ROOM_FOR_OTHERS for question in questions]
    return encoder.words([row[:most] for row, most in zip(said, room, strict=True)])  # whoever stands beside it


def _ends(model: nn.Module) -> set[int]:
    """Return the tokens that end an answer as the model itself has them."""
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return set(ends) if isinstance(ends, list) else set() if ends is None else {int(ends)}


def _on(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    return {name: tensor.to(device) for name, tensor in batch.items()}
