"""Conversations as a processor makes them: tokens, labels, and what its pictures became."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainauto.core.errors import InputError, Problem
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.tasks.finetune.conversations import Conversation
from trainauto.tasks.finetune.processors import limit_pixels, pixel_bounds
from trainauto.tasks.finetune.supervision import NOT_LEARNED, Supervision, expanded

IDS, MASK, LABELS = "input_ids", "attention_mask", "labels"

PICTURE_MARKS = ("boi_token", "image_token")
"""Attributes of processors that name the token which stands for a picture before it is expanded."""


@dataclass(frozen=True)
class Encoded:
    """A conversation as a model takes it.

    Attributes:
        ids: (T,) int64.
        labels: (T,) int64, -100 where nothing is learned.
        along: tensors with a value for each token, (T,): token types.
        pictures: tensors whose first dimension is pictures, or parts of them: (rows, ...).
        images: how many pictures.
        length: tokens by which steps are ordered, whatever pictures have become since; ``None`` for those of ``ids``.
    """

    ids: Tensor
    labels: Tensor
    along: Mapping[str, Tensor]
    pictures: Mapping[str, Tensor]
    images: int
    length: int | None = None


class ConversationEncoder:
    """Makes conversations tokens by the processor of a model.

    Args:
        processor: of transformers, for pictures and words.

    Raises:
        InputError: the processor has no fast tokenizer or no chat template.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self._tokenizer = getattr(processor, "tokenizer", processor)
        self._supervision = Supervision(processor)
        self._tokens_of_sizes: dict[tuple[int, int], int] = {}
        self._says_right = False
        self._marks_pictures = any(isinstance(getattr(processor, name, None), str) for name in PICTURE_MARKS)

    def count(self, conversation: Conversation, sizes: Sequence[tuple[int, int]]) -> int:
        """Return how many tokens a conversation has.

        Args:
            conversation: whose words are made tokens.
            sizes: width and height of each of its pictures, as :meth:`ImagePart.look` returns them.

        Raises:
            InputError: the template refuses it, nothing is learned, or its words hold the mark of a picture.
        """
        _, plain, _ = self._supervision.of(conversation)
        self._check_marks(plain, len(sizes), conversation.place)
        return len(plain) + sum(self.picture_tokens(size, conversation.place) - 1 for size in sizes)

    @property
    def picture_pixels(self) -> tuple[int, int]:
        """Least and most pixels of a picture as models get it; those of any picture where its processor has no such."""
        return pixel_bounds(self._processor)

    def limit_pictures(self, pixels: int) -> None:
        """Have pictures be reduced to so many pixels from now on.

        Raises:
            InputError: its processor reduces none, or not so far.
        """
        limit_pixels(self._processor, pixels)
        self._tokens_of_sizes.clear()

    def picture_tokens(self, size: tuple[int, int], place: str = "a picture") -> int:
        """Return the tokens that stand for a picture of a width and height; they do not depend on what it shows.

        Args:
            size: width and height in pixels.
            place: of its conversation, for messages.
        """
        if size not in self._tokens_of_sizes:
            # The first size is asked both ways: what a processor says of itself is believed where it has been right.
            said, known = self._said_tokens(size), self._tokens_of_sizes
            if said is None or not known or not self._says_right:
                known[size] = self._made_tokens(size, place)
                self._says_right = said == known[size]
            else:
                known[size] = said
        return self._tokens_of_sizes[size]

    def _said_tokens(self, size: tuple[int, int]) -> int | None:
        """Return the tokens of a picture as the processor says them; ``None`` where it does not."""
        say = getattr(self._processor, "_get_num_multimodal_tokens", None)
        try:
            counts = say(image_sizes=[(size[1], size[0])]).num_image_tokens if say is not None else None
        except Exception:  # of many hands, and no public method
            return None
        return int(counts[0]) if counts else None

    def _made_tokens(self, size: tuple[int, int], place: str) -> int:
        """Return the tokens that the processor makes of a picture that shows nothing."""
        from PIL import Image

        text = str(self._tokenizer.convert_ids_to_tokens(self._placeholder()))
        return len(self._processed(text, [Image.new("RGB", size)], place)[IDS][0])

    def _check_marks(self, plain: Sequence[int], pictures: int, place: str) -> None:
        """Refuse words that hold the mark of a picture, which the processor would take for one."""
        mark = self._placeholder() if pictures or self._marks_pictures else None
        count = plain.count(mark) if mark is not None else 0
        if count != pictures:
            token = self._tokenizer.convert_ids_to_tokens(mark)
            advice = (
                'Remove the mark from its words: a picture is a part of a message, {"type": "image", ...}.'
                if count > pictures
                else "The chat template leaves pictures out: name another, chat_template: FILE."
            )
            message = f"{place}: {token} stands {count} times in it, beside {pictures} pictures"
            raise InputError(Problem(message, advice=advice))

    def ends_answers(self, encoded: Encoded) -> bool:
        """Whether a conversation's answers end with a token that is no word, as far as its last answer tells."""
        learned = encoded.ids[encoded.labels != NOT_LEARNED]
        return bool(self.end_tokens([int(learned[-1])]))

    def encode(self, conversation: Conversation) -> Encoded:
        """Return a conversation as tokens.

        Raises:
            InputError: a picture cannot be read, the template refuses it, or nothing is learned.
        """
        text, plain, learned = self._supervision.of(conversation)
        images = [image.open(conversation.place) for image in conversation.images]
        made = self._processed(text, images, conversation.place)
        ids = made.pop(IDS)[0]
        if images:
            learned = expanded(learned, plain, ids.tolist(), self._placeholder(), conversation.place)
        elif ids.tolist() != plain:
            raise InputError(f"{conversation.place}: the processor makes other tokens of its words than its tokenizer")
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

    def end_tokens(self, tokens: Sequence[int]) -> set[int]:
        """Return those of some tokens that end an answer: marks, and no words."""
        return set(tokens) & set(self._tokenizer.all_special_ids)

    def words(self, rows: Tensor | Sequence[Sequence[int]]) -> list[str]:
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
            if is_out_of_memory(error):
                raise
            raise InputError(f"{place}: the processor refuses it: {error}") from error

    def _placeholder(self) -> int:
        """Return the token that stands for a picture before it is expanded.

        Raises:
            InputError: the processor names none.
        """
        for name in PICTURE_MARKS:
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
