"""What a language model learns from, before it is tokenized."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainauto.core.errors import InputError, Problem
from trainauto.core.shuffling import shuffled_order
from trainauto.core.words import counted


@dataclass(frozen=True)
class PlainText:
    """A text of which every token is learned."""

    text: str


@dataclass(frozen=True)
class Completion:
    """A text of which only what follows the prompt is learned."""

    prompt: str
    completion: str


@dataclass(frozen=True)
class TextPair:
    """What an encoder-decoder model reads, and what it is to write."""

    source: str
    target: str


@dataclass(frozen=True)
class Chat:
    """A conversation, of which the assistant's words are learned: (role, words) in turns."""

    messages: tuple[tuple[str, str], ...]


Content = PlainText | Completion | TextPair | Chat


@dataclass(frozen=True)
class TextSample:
    """A sample before it is tokenized.

    Attributes:
        place: the file and the line it begins in, for messages.
        content: what it says.
    """

    place: str
    content: Content

    @property
    def texts(self) -> tuple[str, ...]:
        """All its texts, for a tokenizer to be trained on."""
        match self.content:
            case PlainText(text):
                return (text,)
            case Completion(prompt, completion):
                return prompt, completion
            case TextPair(source, target):
                return source, target
            case Chat(messages):
                return tuple(words for _, words in messages)


def set_aside(
    samples: Sequence[TextSample], share: float, seed: int, argument: str = "share"
) -> tuple[list[TextSample], list[TextSample]]:
    """Divide samples into those to train on and those to validate on, both in their order.

    Args:
        samples: all there are.
        share: of them that is set aside, above 0 and below 1.
        seed: decides which.
        argument: what errors blame.

    Raises:
        InputError: one of both would be empty.
    """
    count = round(share * len(samples))
    if not 0 < count < len(samples):
        nothing, all_of_them = "train" if count else "validate", counted(len(samples), "sample")
        message = f"a share of {share} of {all_of_them} leaves nothing to {nothing} on"
        advice = f"Write a share from {1 / len(samples):.2g} to below 1, or a path of texts of their own."
        raise InputError(Problem(message, advice=advice if len(samples) > 1 else "", argument=argument))
    chosen = set(shuffled_order(len(samples), seed, 0)[:count].tolist())
    kept = [sample for place, sample in enumerate(samples) if place not in chosen]
    return kept, [sample for place, sample in enumerate(samples) if place in chosen]
