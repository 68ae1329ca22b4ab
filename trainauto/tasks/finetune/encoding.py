"""Conversations as a processor makes them: tokens, labels, and what its pictures became."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainauto.core.errors import InputError, Problem
from trainauto.tasks.finetune.conversations import Conversation
from trainauto.tasks.finetune.supervision import NOT_LEARNED, Supervision, expanded

IDS, MASK, LABELS = "input_ids", "attention_mask", "labels"


@dataclass(frozen=True)
class Encoded:
    """A conversation as a model takes it.

    Attributes:
        ids: (T,) int64.
        labels: (T,) int64, -100 where nothing is learned.
        along: tensors with a value for each token, (T,): token types.
        pictures: tensors whose first dimension is pictures, or parts of them: (rows, ...).
        images: how many pictures.
    """

    ids: Tensor
    labels: Tensor
    along: Mapping[str, Tensor]
    pictures: Mapping[str, Tensor]
    images: int


class ConversationEncoder:
    """Makes conversations tokens by the processor of a model.

    Args:
        processor: of transformers, for pictures and words.
        max_length: most tokens of a conversation; ``None`` for any.

    Raises:
        InputError: the processor has no fast tokenizer or no chat template.
    """

    def __init__(self, processor: Any, max_length: int | None = None) -> None:
        self._processor = processor
        self._tokenizer = getattr(processor, "tokenizer", processor)
        self._supervision = Supervision(processor)
        self.max_length = max_length
        self._tokens_of_sizes: dict[tuple[int, int], int] = {}

    def count(self, conversation: Conversation, sizes: Sequence[tuple[int, int]]) -> int:
        """Return how many tokens a conversation has.

        Args:
            conversation: whose words are made tokens.
            sizes: width and height of each of its pictures, as :meth:`ImagePart.look` returns them.

        Raises:
            InputError: the template refuses it, or nothing is learned.
        """
        _, plain, _ = self._supervision.of(conversation)
        return len(plain) + sum(self._tokens_of(size, conversation.place) - 1 for size in sizes)

    def _tokens_of(self, size: tuple[int, int], place: str) -> int:
        """Return the tokens that stand for a picture of a width and height; they do not depend on what it shows."""
        if size not in self._tokens_of_sizes:
            from PIL import Image

            tokenizer = self._tokenizer
            text = str(tokenizer.convert_ids_to_tokens(self._placeholder()))
            self._tokens_of_sizes[size] = len(self._processed(text, [Image.new("RGB", size)], place)[IDS][0])
        return self._tokens_of_sizes[size]

    def encode(self, conversation: Conversation) -> Encoded:
        """Return a conversation as tokens.

        Raises:
            InputError: a picture cannot be read, the template refuses it, nothing is learned, or it is too long.
        """
        text, plain, learned = self._supervision.of(conversation)
        images = [image.open(conversation.place) for image in conversation.images]
        made = self._processed(text, images, conversation.place)
        ids = made.pop(IDS)[0]
        if images:
            learned = expanded(learned, plain, ids.tolist(), self._placeholder(), conversation.place)
        elif ids.tolist() != plain:
            raise InputError(f"{conversation.place}: the processor makes other tokens of its words than its tokenizer")
        if self.max_length is not None and len(ids) > self.max_length:
            raise TooLongError(conversation.place, len(ids), self.max_length, len(images))
        labels = torch.where(torch.from_numpy(np.asarray(learned)), ids, NOT_LEARNED)
        return self._encoded(ids, labels, made, len(images))

    def encode_prompt(self, conversation: Conversation, turn: int) -> Encoded:
        """Return a conversation up to where an answer is asked for, none of it learned.

        Args:
            conversation: with the answer, or without.
            turn: place of the answer.

        Raises:
            InputError: as :meth:`encode`.
        """
        text = self._supervision.render(conversation, turn, asks=True)
        images = [image.open(conversation.place) for image in conversation.first(turn).images]
        made = self._processed(text, images, conversation.place)
        ids = made.pop(IDS)[0]
        return self._encoded(ids, torch.full_like(ids, NOT_LEARNED), made, len(images))

    def words(self, rows: Tensor) -> list[str]:
        """Return rows of tokens as words, marks of turns and padding left out."""
        words: list[str] = self._tokenizer.batch_decode(rows, skip_special_tokens=True)
        return words

    @staticmethod
    def _encoded(ids: Tensor, labels: Tensor, made: dict[str, Tensor], images: int) -> Encoded:
        """Return what a processor made: what goes along the tokens, and what pictures became."""
        made.pop(MASK, None)
        tokens = {name: value for name, value in made.items() if tuple(value.shape[:2]) == (1, len(ids))}
        pictures = {name: value for name, value in made.items() if name not in tokens}
        return Encoded(ids, labels, {name: value[0] for name, value in tokens.items()}, pictures, images)

    def _processed(self, text: str, images: list[Any], place: str) -> dict[str, Tensor]:
        given: dict[str, Any] = {"text": [text], "return_tensors": "pt", "add_special_tokens": False}
        if images:
            given["images"] = [images]
        try:
            return dict(self._processor(**given))
        except (ValueError, TypeError, RuntimeError, IndexError) as error:
            raise InputError(f"{place}: the processor refuses it: {error}") from error

    def _placeholder(self) -> int:
        """Return the token that stands for a picture before it is expanded.

        Raises:
            InputError: the processor names none.
        """
        for name in ("boi_token", "image_token"):
            token = getattr(self._processor, name, None)
            if isinstance(token, str):
                return int(self._tokenizer.convert_tokens_to_ids(token))
        raise InputError("the processor does not say which token stands for a picture (image_token)")


class TooLongError(InputError):
    """A conversation has more tokens than it may."""

    def __init__(self, place: str, tokens: int, limit: int, images: int) -> None:
        shown = f", of {images} pictures and words" if images else ""
        advice = "Allow more (max_length), smaller pictures (max_pixels), or shorten it."
        super().__init__(Problem(f"{place}: {tokens} tokens{shown}, where {limit} are allowed", advice=advice))
