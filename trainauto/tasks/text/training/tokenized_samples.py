"""Samples as tokens in flat arrays, and what became of those of the files."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainauto.data.packing import IntArray

ModelKind = Literal["causal", "encoder_decoder"]

NOT_LEARNED = -100
"""Label of what losses leave out, in torch and in transformers."""

MOST_FILES = 256
"""Whose checksums a checkpoint keeps one by one."""


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

    @cached_property
    def checksums(self) -> dict[str, int]:
        """CRC-32 of what became of each file, in their order; of very many files, of all together."""
        firsts: dict[str, int] = {}
        for number, place in enumerate(self.places):
            firsts.setdefault(place.rpartition(":")[0] or place, number)
        if len(firsts) > MOST_FILES:
            firsts = {f"{len(firsts)} files": 0}
        starts = list(firsts.values())
        stops = [*starts[1:], len(self)]
        return {file: self._checksum(start, stop) for file, start, stop in zip(firsts, starts, stops, strict=True)}

    def _checksum(self, start: int, stop: int) -> int:
        """Return that of the samples from one to before another."""
        checksum = zlib.crc32(np.ascontiguousarray(self.lengths[start:stop]).data)
        for flat, lengths, ends in (
            (self.tokens, self.lengths, self.ends),
            (self.labels, self.label_lengths, self.label_ends),
        ):
            first = int(ends[start] - lengths[start]) if start < len(ends) else 0
            last = int(ends[stop - 1]) if stop else 0
            checksum = zlib.crc32(np.ascontiguousarray(flat[first:last]).data, checksum)
        return checksum

    @cached_property
    def learned_counts(self) -> IntArray:
        """How many tokens of each sample are learned."""
        sums = np.concatenate([[0], np.cumsum(self.labels != NOT_LEARNED)])
        counts: IntArray = sums[self.label_ends] - sums[self.label_ends - self.label_lengths]
        return counts

    @property
    def learned(self) -> NDArray[np.int32]:
        """All tokens that are learned, flat."""
        learned: NDArray[np.int32] = self.labels[self.labels != NOT_LEARNED]
        return learned


class SampleCollector:
    """Samples while they are tokenized.

    Attributes:
        cut: samples of which only the beginning was kept so far.
        split: those that became several.
        dropped: those that were too long.
    """

    def __init__(self) -> None:
        self.cut = self.split = self.dropped = self._empty = 0
        self._places: list[str] = []
        self._tokens: list[NDArray[np.int32]] = []
        self._labels: list[NDArray[np.int32]] = []

    def add(self, place: str, tokens: Sequence[int], labels: Sequence[int], *, is_pair: bool) -> None:
        """Keep a sample, unless nothing of it is learned."""
        # The first token of a causal text has nothing before it that it could be predicted from.
        labels = labels if is_pair else [NOT_LEARNED, *labels[1:]]
        if all(label == NOT_LEARNED for label in labels):
            self._empty += 1
            return
        self._places.append(place)
        self._tokens.append(np.array(tokens, np.int32))
        self._labels.append(np.array(labels, np.int32))

    def result(self, read: int) -> TokenizedSamples:
        """Return all that was kept, of so many samples."""
        counts = EncodingCounts(read, self.cut, self.split, self.dropped, self._empty)
        tokens, lengths = _flat(self._tokens)
        return TokenizedSamples(self._places, tokens, lengths, *_flat(self._labels), counts)


def _flat(rows: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], IntArray]:
    lengths = np.array([len(row) for row in rows], np.int64)
    return np.concatenate([*rows, np.zeros(0, np.int32)]), lengths
