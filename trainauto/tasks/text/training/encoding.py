"""Texts as tokens in flat arrays: what a model reads, and what of it is learned."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted
from trainauto.data.packing import IntArray
from trainauto.tasks.text.training.chats import chat_tokens
from trainauto.tasks.text.training.text_samples import Chat, Completion, PlainText, TextPair, TextSample
from trainauto.tasks.text.training.tokenizers import Vocabulary

logger = logging.getLogger(__name__)

ModelKind = Literal["causal", "encoder_decoder"]

TooLong = Literal["cut", "drop", "split"]
"""What becomes of a text that is too long: its beginning, nothing, or (of plain texts) several samples."""

TEXTS_AT_ONCE = 1024
"""Fast tokenizers work on so many side by side; the lists of numbers that they return are short-lived."""

NOT_LEARNED = -100
"""Label of what losses leave out, in torch and in transformers."""

Ids = list[int]


@dataclass(frozen=True)
class EncodingCounts:
    """What became of samples.

    Attributes:
        read: samples of the files.
        cut: those of which only the beginning is kept.
        split: those that became several.
        dropped: those that were too long.
        empty: those of which nothing could be learned.
    """

    read: int = 0
    cut: int = 0
    split: int = 0
    dropped: int = 0
    empty: int = 0


@dataclass(frozen=True, eq=False)
class TokenizedSamples:
    """Samples as tokens, one behind the other.

    Attributes:
        places: file and line of each sample.
        tokens: what the model reads, flat.
        lengths: tokens of each sample.
        labels: what it is to predict, flat: of causal models as many as tokens, else those of the targets.
        label_lengths: labels of each sample.
        counts: what became of the samples of the files.
    """

    places: Sequence[str]
    tokens: NDArray[np.int32]
    lengths: IntArray
    labels: NDArray[np.int32]
    label_lengths: IntArray
    counts: EncodingCounts

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def ends(self) -> IntArray:
        """Where in the tokens each sample ends."""
        return np.cumsum(self.lengths)

    @cached_property
    def label_ends(self) -> IntArray:
        """Where in the labels each sample ends."""
        return np.cumsum(self.label_lengths)

    @property
    def learned(self) -> NDArray[np.int32]:
        """All tokens that are learned, flat."""
        learned: NDArray[np.int32] = self.labels[self.labels != NOT_LEARNED]
        return learned


@dataclass(frozen=True)
class Encoder:
    """Makes samples tokens.

    Attributes:
        tokenizer: of transformers.
        vocabulary: what a model knows of it.
        kind: of the model.
        max_length: most tokens of a sample; of what an encoder reads.
        max_target_length: most tokens of what a decoder is to write.
        too_long: see :data:`TooLong`.
        halves: whether plain texts are pairs of their halves.
        set_name: of the dataset, for messages.
    """

    tokenizer: Any
    vocabulary: Vocabulary
    kind: ModelKind
    max_length: int
    max_target_length: int
    too_long: TooLong
    halves: bool
    set_name: str

    def run(self, samples: Sequence[TextSample]) -> TokenizedSamples:
        """Tokenize samples.

        Raises:
            InputError: a sample is of a kind that the model does not learn from, or none is left.
        """
        collected = _Collected()
        for start in range(0, len(samples), TEXTS_AT_ONCE):
            some = samples[start : start + TEXTS_AT_ONCE]
            for sample, (tokens, labels) in zip(some, self._encoded(some), strict=True):
                self._keep(sample, tokens, labels, collected)
        result = collected.result(len(samples))
        _say(result, self)
        if not len(result):
            message = f"dataset '{self.set_name}': of {counted(len(samples), 'sample')} none is left"
            raise InputError(Problem(message, advice=f"max_length is {self.max_length}: allow more."))
        return result

    def _encoded(self, samples: Sequence[TextSample]) -> Iterator[tuple[Ids, Ids]]:
        """Yield tokens and labels of each sample, uncut."""
        if self.kind == "encoder_decoder":
            pairs = [self._pair_of(sample) for sample in samples]
            sources = self._ids([source for source, _ in pairs])
            targets = self._ids([target for _, target in pairs], as_targets=True)
            for source, target, (_, words) in zip(sources, targets, pairs, strict=True):
                # An empty target teaches nothing but the end.
                yield self._ended(source), self._ended(target) if words.strip() else []
            return
        texts = [sample.content.text for sample in samples if isinstance(sample.content, PlainText)]
        plain = iter(self._ids(texts))
        for sample in samples:
            match sample.content:
                case PlainText():
                    ids = self._ended(next(plain))
                    yield ids, ids
                case Completion(prompt, completion):
                    yield self._completion(prompt, completion)
                case Chat(messages):
                    ids, is_learned = chat_tokens(self.tokenizer, messages, sample.place)
                    yield ids, [token if known else NOT_LEARNED for token, known in zip(ids, is_learned, strict=True)]
                case TextPair():
                    raise self._error(
                        sample, "is a pair of source and target", "Take `kind: encoder_decoder` for pairs."
                    )

    def _pair_of(self, sample: TextSample) -> tuple[str, str]:
        match sample.content:
            case TextPair(source, target) | Completion(source, target):
                return source, target
            case PlainText(text) if self.halves:
                middle = text.find(" ", len(text) // 2)
                return (text[:middle], text[middle + 1 :]) if middle >= 0 else (text, "")
        kind = "a chat" if isinstance(sample.content, Chat) else "a plain text"
        advice = (
            'An encoder-decoder model learns from {"source": ..., "target": ...}, or from both halves of plain texts '
            "(halves: true); take kind: causal for others."
        )
        raise self._error(sample, f"is {kind}", advice)

    def _error(self, sample: TextSample, what: str, advice: str) -> InputError:
        return InputError(Problem(f"dataset '{self.set_name}': {sample.place} {what}", advice=advice))

    def _ids(self, texts: Sequence[str], *, as_targets: bool = False) -> list[Ids]:
        if not texts:
            return []
        given = {"text_target": list(texts)} if as_targets else {"text": list(texts)}
        rows: list[Ids] = self.tokenizer(**given, verbose=False, return_attention_mask=False)["input_ids"]
        return rows

    def _completion(self, prompt: str, completion: str) -> tuple[Ids, Ids]:
        """Tokenize both apart: when the model is used, it will get a prompt's tokens without what follows."""
        (before,) = self._ids([prompt])
        if before and before[-1] == self.vocabulary.end:
            before = before[:-1]
        after = self.tokenizer(completion, add_special_tokens=False, verbose=False)["input_ids"]
        after = self._ended(after)
        return [*before, *after], [NOT_LEARNED] * len(before) + after

    def _ended(self, ids: Ids) -> Ids:
        return ids if ids and ids[-1] == self.vocabulary.end else [*ids, self.vocabulary.end]

    def _keep(self, sample: TextSample, tokens: Ids, labels: Ids, collected: "_Collected") -> None:
        is_pair = self.kind == "encoder_decoder"
        is_long = len(tokens) > self.max_length or (is_pair and len(labels) > self.max_target_length)
        if not is_long:
            collected.add(sample.place, tokens, labels, is_pair)
        elif self.too_long == "drop":
            collected.dropped += 1
        elif self.too_long == "split" and isinstance(sample.content, PlainText):
            collected.split += 1
            for start in range(0, len(tokens), self.max_length):
                part = tokens[start : start + self.max_length]
                if len(part) > 1:  # a last token alone has nothing before it
                    collected.add(sample.place, part, part, is_pair)
        else:
            collected.cut += 1
            if is_pair:
                ending = tokens[-1:] if len(tokens) > self.max_length else []
                tokens = tokens[: self.max_length - len(ending)] + ending
                labels = labels[: self.max_target_length]
            else:
                tokens, labels = tokens[: self.max_length], labels[: self.max_length]
            collected.add(sample.place, tokens, labels, is_pair)


class _Collected:
    """Samples while they are tokenized."""

    def __init__(self) -> None:
        self.cut = self.split = self.dropped = self._empty = 0
        self._places: list[str] = []
        self._tokens: list[NDArray[np.int32]] = []
        self._labels: list[NDArray[np.int32]] = []

    def add(self, place: str, tokens: Ids, labels: Ids, is_pair: bool) -> None:
        # The first token of a causal text has nothing before it that it could be predicted from.
        labels = labels if is_pair else [NOT_LEARNED, *labels[1:]]
        if all(label == NOT_LEARNED for label in labels):
            self._empty += 1
            return
        self._places.append(place)
        self._tokens.append(np.array(tokens, np.int32))
        self._labels.append(np.array(labels, np.int32))

    def result(self, read: int) -> TokenizedSamples:
        counts = EncodingCounts(read, self.cut, self.split, self.dropped, self._empty)
        tokens, lengths = _flat(self._tokens)
        return TokenizedSamples(self._places, tokens, lengths, *_flat(self._labels), counts)


def _flat(rows: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], IntArray]:
    lengths = np.array([len(row) for row in rows], np.int64)
    return np.concatenate([*rows, np.zeros(0, np.int32)]), lengths


def _say(result: TokenizedSamples, encoder: Encoder) -> None:
    """Log what the samples are, and warn of what was lost."""
    counts, limit = result.counts, counted(encoder.max_length, "token")
    lost = [
        f"{number} {what}"
        for number, what in (
            (counts.cut, f"cut to {limit}"),
            (counts.split, f"split into parts of {limit}"),
            (counts.dropped, f"longer than {limit} and left out"),
            (counts.empty, "without a token to learn and left out"),
        )
        if number
    ]
    logger.info(
        "dataset '%s': %s, %d tokens%s",
        encoder.set_name,
        counted(len(result), "sample"),
        int(result.lengths.sum()),
        f"; of {counted(counts.read, 'text')} {', '.join(lost)}" if lost else "",
    )


def encode_samples(
    samples: Sequence[TextSample],
    tokenizer: Any,
    vocabulary: Vocabulary,
    *,
    kind: ModelKind = "causal",
    max_length: int,
    max_target_length: int | None = None,
    too_long: TooLong = "cut",
    halves: bool = False,
    set_name: str = "texts",
) -> TokenizedSamples:
    """Tokenize samples once; what was cut or left out is counted and said.

    A plain text or a completion ends with the token that ends texts; the first token of a text is not learned, since
    nothing stands before it. Of a chat the assistant's words are learned.

    Args:
        samples: of :func:`~trainauto.tasks.text.training.text_files.read_texts`.
        tokenizer: of transformers.
        vocabulary: of that tokenizer.
        kind: of the model: ``causal``, or ``encoder_decoder``, which learns pairs.
        max_length: most tokens of a sample; of an encoder-decoder's sources.
        max_target_length: most tokens of targets; ``max_length`` where nobody says.
        too_long: what becomes of longer ones.
        halves: of an encoder-decoder's plain texts the first half is read, the second is to be written.
        set_name: of the dataset, for messages.

    Raises:
        InputError: a sample is of a kind that the model does not learn from, or none is left.
    """
    targets = max_length if max_target_length is None else max_target_length
    return Encoder(tokenizer, vocabulary, kind, max_length, targets, too_long, halves, set_name).run(samples)
