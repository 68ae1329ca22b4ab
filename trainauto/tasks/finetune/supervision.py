"""Which tokens of a conversation are learned: the assistant's words with the token that ends them, and nothing else."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainauto.core.errors import InputError, Problem
from trainauto.tasks.finetune.conversations import Conversation

NOT_LEARNED = -100
"""Label of tokens that no loss counts, as in torch and transformers."""

MARK = "{% generation %}"
"""What a chat template has around what the assistant says, where it says so itself."""

Mask = NDArray[np.bool_]


class Supervision:
    """Finds what of conversations is learned.

    A template that marks the assistant's words (``{% generation %}``) is believed. Of any other the conversation is
    rendered up to each answer: what an answer adds behind what asks for it is learned. Of both the white space is left
    out that follows the token that ends an answer.

    Args:
        processor: of transformers, with a fast tokenizer and a chat template.

    Raises:
        InputError: it has neither.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self._tokenizer = getattr(processor, "tokenizer", processor)
        if not getattr(self._tokenizer, "is_fast", False):
            raise InputError("conversations need a fast tokenizer: take one that transformers has in Rust")
        template = getattr(processor, "chat_template", None) or self._tokenizer.chat_template
        if not template:
            advice = "Take a processor that has one (those of chat models), or name a file: chat_template: FILE."
            raise InputError(Problem("the processor has no chat template", advice=advice))
        self._is_marked = MARK in str(template).replace("{%-", "{%").replace("-%}", "%}")

    def render(self, conversation: Conversation, turns: int | None = None, *, asks: bool = False) -> str:
        """Return the first turns as the template writes them, pictures as one placeholder each.

        Args:
            conversation: what is rendered.
            turns: how many; all where no number is given.
            asks: whether the template then asks for an answer.

        Raises:
            InputError: the template refuses it.
        """
        try:
            text = self._processor.apply_chat_template(
                conversation.messages(turns), tokenize=False, add_generation_prompt=asks
            )
        except Exception as error:  # templates are programs: they raise what they like
            lines = str(error).strip().splitlines()
            what = lines[0] if lines else type(error).__name__
            raise InputError(f"{conversation.place}: the chat template refuses this conversation: {what}") from error
        return str(text)

    def of(self, conversation: Conversation) -> tuple[str, list[int], Mask]:
        """Return a conversation as text, as tokens with one for each picture, and which of these are learned.

        Raises:
            InputError: the template refuses it, or writes earlier turns otherwise later on, or marks no word.
        """
        whole = self.render(conversation)
        spans = self._marked(conversation, whole) if self._is_marked else self._added(conversation, whole)
        encoded = self._tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        offsets = np.asarray(encoded["offset_mapping"], np.int64).reshape(-1, 2)
        learned = np.zeros(len(offsets), np.bool_)
        for start, end in spans:
            # A token that begins before an answer and reaches into it holds the answer's first letters.
            learned |= (offsets[:, 1] > start) & (offsets[:, 0] < end) & (offsets[:, 1] > offsets[:, 0])
        if not learned.any():
            advice = "See that the answers are not empty and that the chat template writes them."
            raise InputError(Problem(f"{conversation.place}: no token of it would be learned", advice=advice))
        return whole, list(encoded["input_ids"]), learned

    def _added(self, conversation: Conversation, whole: str) -> list[tuple[int, int]]:
        spans = []
        for place in conversation.answers():
            before = self.render(conversation, place, asks=True)
            after = self.render(conversation, place + 1)
            if before == self.render(conversation, place):
                raise self._asks_for_nothing(conversation)
            if not (whole.startswith(after) and after.startswith(before)):
                raise self._rewritten(conversation, place)
            spans.append((len(before), len(after.rstrip())))
        return spans

    def _marked(self, conversation: Conversation, whole: str) -> list[tuple[int, int]]:
        """Return the spans of the text that the template marks, without white space at their ends."""
        rendered = self._tokenizer.apply_chat_template(
            conversation.messages(),
            chat_template=getattr(self._processor, "chat_template", None) or None,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
            tokenizer_kwargs={"return_offsets_mapping": True},
        )
        marks, offsets = rendered["assistant_masks"], rendered["offset_mapping"]
        marked = [(start, end) for mark, (start, end) in zip(marks, offsets, strict=True) if mark and end > start]
        return [(start, start + len(whole[start:end].rstrip())) for start, end in _joined(marked)]

    def _asks_for_nothing(self, conversation: Conversation) -> InputError:
        message = f"{conversation.place}: the chat template does not say where an answer begins (add_generation_prompt)"
        advice = "Name a template that marks answers ({% generation %}): chat_template: FILE."
        return InputError(Problem(message, advice=advice))

    def _rewritten(self, conversation: Conversation, place: int) -> InputError:
        message = (
            f"{conversation.place}: the chat template writes earlier turns otherwise once message {place + 1} is "
            "answered, so that its tokens cannot be told"
        )
        advice = "Name a template that marks answers ({% generation %}): chat_template: FILE."
        return InputError(Problem(message, advice=advice))


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of which those that touch are one."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined


def expanded(learned: Mask, plain: Sequence[int], tokens: Sequence[int], placeholder: int, place: str) -> Mask:
    """Carry what is learned over to tokens in which a processor has put many for each picture.

    What stands between placeholders is the same in both, and is looked for in its order; what a processor puts in place
    of a placeholder is never learned.

    Args:
        learned: (P,), of the plain tokens.
        plain: tokens with one placeholder for each picture.
        tokens: as the processor has made them.
        placeholder: token of a picture among the plain ones.
        place: of the conversation, for messages.

    Returns:
        (T,), of the tokens.

    Raises:
        InputError: the processor has changed more than the placeholders.
    """
    ids, wanted = np.asarray(tokens), np.asarray(plain)
    cuts = np.flatnonzero(wanted == placeholder)
    starts, ends = [0, *(cuts + 1)], [*cuts, len(wanted)]
    result, reached = np.zeros(len(ids), np.bool_), 0
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        segment = wanted[start:end]
        is_last = number == len(cuts)
        found = _find(ids, segment, reached, at_start=number == 0, at_end=is_last)
        if found is None:
            raise InputError(f"{place}: the processor changes words around pictures, so that answers cannot be told")
        result[found : found + len(segment)] = learned[start:end]
        reached = found + len(segment)
    return result


def _find(ids: NDArray[Any], segment: NDArray[Any], start: int, *, at_start: bool, at_end: bool) -> int | None:
    """Return where a segment stands from a place on; ``None`` where it does not."""
    last = len(ids) - len(segment)
    candidates = [last] if at_end else [0] if at_start else range(start, last + 1)
    for place in candidates:
        if place >= start and np.array_equal(ids[place : place + len(segment)], segment):
            return place if not (at_start and at_end) or len(ids) == len(segment) else None
    return None
