"""Texts as tokens: what a model reads, and what of it is learned."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted
from trainauto.tasks.text.training.chats import chat_tokens
from trainauto.tasks.text.training.marks import marks_of, say_marks
from trainauto.tasks.text.training.text_samples import Chat, Completion, PlainText, TextPair, TextSample
from trainauto.tasks.text.training.tokenized_samples import NOT_LEARNED, ModelKind, SampleCollector, TokenizedSamples
from trainauto.tasks.text.training.tokenizers import Vocabulary

logger = logging.getLogger(__name__)

TooLong = Literal["cut", "drop", "split"]
"""What becomes of a text that is too long: its beginning, nothing, or (of plain texts) several samples."""

TEXTS_AT_ONCE = 1024
"""Fast tokenizers work on so many side by side; the lists of numbers that they return are short-lived."""

Ids = list[int]


@dataclass(frozen=True)
class _Encoder:
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
        collected = SampleCollector()
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

    def _keep(self, sample: TextSample, tokens: Ids, labels: Ids, collected: SampleCollector) -> None:
        is_pair = self.kind == "encoder_decoder"
        is_long = len(tokens) > self.max_length or (is_pair and len(labels) > self.max_target_length)
        if not is_long:
            collected.add(sample.place, tokens, labels, is_pair=is_pair)
        elif self.too_long == "drop":
            collected.dropped += 1
        elif self.too_long == "split" and isinstance(sample.content, PlainText):
            collected.split += 1
            for start in range(0, len(tokens), self.max_length):
                part = tokens[start : start + self.max_length]
                if len(part) > 1:  # a last token alone has nothing before it
                    collected.add(sample.place, part, part, is_pair=is_pair)
        else:
            collected.cut += 1
            if is_pair:
                ending = tokens[-1:] if len(tokens) > self.max_length else []
                tokens = tokens[: self.max_length - len(ending)] + ending
                labels = labels[: self.max_target_length]
            else:
                tokens, labels = tokens[: self.max_length], labels[: self.max_length]
            collected.add(sample.place, tokens, labels, is_pair=is_pair)


def _say(result: TokenizedSamples, encoder: _Encoder) -> None:
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
    """Tokenize samples once; what was cut or left out is counted and said, as are special tokens among words.

    A plain text or a completion ends with the token that ends texts; the first token of a text is not learned, since
    nothing stands before it. Of a chat the assistant's words are learned.

    Args:
        samples: of :func:`~trainauto.tasks.text.training.text_files.read_texts`.
        tokenizer: of transformers.
        vocabulary: of that tokenizer.
        kind: of the model: ``causal``, or ``encoder_decoder``, which learns pairs.
        max_length: most tokens of a sample; of an encoder-decoder's sources.
        max_target_length: most tokens of targets; ``max_length`` if unknown.
        too_long: what becomes of longer ones.
        halves: of an encoder-decoder's plain texts the first half is read, the second is to be written.
        set_name: of the dataset, for messages.

    Raises:
        InputError: a sample is of a kind that the model does not learn from, or none is left.
    """
    marks = marks_of(tokenizer)
    between = marks - {tokenizer.eos_token}  # which may part the texts that a plain one is of
    whole = ((one.place, words) for one in samples if not isinstance(one.content, PlainText) for words in one.texts)
    plain = ((one.place, one.content.text) for one in samples if isinstance(one.content, PlainText))
    for texts, some in ((whole, marks), (plain, between)):
        say_marks(texts, some, f"dataset '{set_name}'")
    targets = max_length if max_target_length is None else max_target_length
    return _Encoder(tokenizer, vocabulary, kind, max_length, targets, too_long, halves, set_name).run(samples)
