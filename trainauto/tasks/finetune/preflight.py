"""Conversations looked through before a run: what cannot be learned is said, what is too long left out or cut."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainauto.core.errors import InputError, Problem
from trainauto.tasks.finetune.conversations import Conversation
from trainauto.tasks.finetune.encoding import ConversationEncoder, TooLongError

TooLong = Literal["drop", "cut", "refuse"]
"""What becomes of a conversation with too many tokens: it is left out, cut to the turns that fit, or refused."""

Sizes = Sequence[tuple[int, int]]
"""Width and height of pictures."""

MOST_PROBLEMS = 20
"""Conversations that are named where many cannot be used."""

THREADS = 4
"""Pictures that are read at a time: reading them waits for the disk, and decoding lets other threads run."""


@dataclass(frozen=True)
class LookedThrough:
    """Conversations that can be learned from.

    Attributes:
        conversations: in their order.
        lengths: tokens of each, pictures included, (N,).
        sizes: width and height of the pictures of each.
        dropped: places of those that are left out since they are too long.
        cut: places of those that end earlier than they did.
    """

    conversations: Sequence[Conversation]
    lengths: NDArray[np.int64]
    sizes: Sequence[Sizes]
    dropped: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()


def look_through(
    conversations: Sequence[Conversation], encoder: ConversationEncoder, max_length: int | None, too_long: TooLong
) -> LookedThrough:
    """Count the tokens of conversations, and read every picture.

    Args:
        conversations: to learn from.
        encoder: makes them tokens.
        max_length: most tokens of one; ``None`` for any.
        too_long: what becomes of longer ones.

    Raises:
        InputError: some cannot be used (each is named, up to :data:`MOST_PROBLEMS`), or none is left.
    """
    kept: list[Conversation] = []
    lengths: list[int] = []
    kept_sizes: list[Sizes] = []
    dropped: list[str] = []
    cut: list[str] = []
    for conversation, sizes, length in _measured(conversations, encoder):
        if max_length is None or length <= max_length:
            kept.append(conversation)
            lengths.append(length)
            kept_sizes.append(sizes)
            continue
        if too_long == "refuse":
            raise TooLongError(conversation.place, length, max_length, len(conversation.images))
        shorter = _cut(conversation, sizes, encoder, max_length) if too_long == "cut" else None
        if shorter is None:
            dropped.append(conversation.place)
            continue
        cut.append(conversation.place)
        kept.append(shorter[0])
        lengths.append(shorter[1])
        kept_sizes.append(sizes[: len(shorter[0].images)])
    if not kept:
        advice = "Allow more (max_length), or smaller pictures (max_pixels)."
        raise InputError(Problem(f"all {len(dropped)} conversations have more than {max_length} tokens", advice=advice))
    return LookedThrough(kept, np.asarray(lengths, np.int64), kept_sizes, tuple(dropped), tuple(cut))


def _measured(
    conversations: Sequence[Conversation], encoder: ConversationEncoder
) -> Iterator[tuple[Conversation, Sizes, int]]:
    """Yield each conversation with the sizes of its pictures and its tokens.

    Raises:
        InputError: names all that cannot be used, as far as there is room.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        looked_at = list(pool.map(_look, conversations))
    errors: list[InputError] = []
    measured: list[tuple[Conversation, Sizes, int]] = []
    for conversation, sizes in zip(conversations, looked_at, strict=True):
        if isinstance(sizes, InputError):
            errors.append(sizes)
            continue
        try:
            measured.append((conversation, sizes, encoder.count(conversation, sizes)))
        except InputError as error:
            errors.append(error)
    if errors:
        problems = [problem for error in errors[:MOST_PROBLEMS] for problem in error.problems]
        if len(errors) > MOST_PROBLEMS:
            problems.append(Problem(f"{len(errors) - MOST_PROBLEMS} more conversations cannot be used"))
        raise InputError(problems)
    yield from measured


def _look(conversation: Conversation) -> Sizes | InputError:
    """Return the sizes of its pictures, or what is wrong with them."""
    try:
        return [image.look(conversation.place) for image in conversation.images]
    except InputError as error:
        return error


def _cut(
    conversation: Conversation, sizes: Sizes, encoder: ConversationEncoder, max_length: int
) -> tuple[Conversation, int] | None:
    """Return the longest beginning of a conversation that fits, with its tokens; ``None`` where no answer does."""
    for answer in reversed(list(conversation.answers())[:-1]):
        shorter = conversation.first(answer + 1)
        length = encoder.count(shorter, sizes[: len(shorter.images)])
        if length <= max_length:
            return shorter, length
    return None
