"""Texts as a workload: tokens of all samples lie behind each other, and become rows where a model reads them."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainauto.core.plan import BatchShape
from trainauto.core.workload import Tensors
from trainauto.data.packing import IntArray
from trainauto.tasks.text.training.row_layouts import PackedRows, PaddedRows, RowLayout
from trainauto.tasks.text.training.tokenized_samples import NOT_LEARNED, ModelKind, TokenizedSamples

INPUT_IDS, LABELS = "input_ids", "labels"
LENGTHS, LABEL_LENGTHS, LEARNED = "lengths", "label_lengths", "learned"
"""Of each sample: its tokens, its labels, and how many of these are learned. Arrays of numpy, which stay on the host,
so that neither division nor weights wait for a device, and traces know them."""

COUNTS = (LENGTHS, LABEL_LENGTHS, LEARNED)


class TokenSamples:
    """Samples of a language model.

    A batch holds flat tensors ``input_ids`` and ``labels`` (int64) and the arrays above. The size of a sample is its
    tokens; of a pair the larger side counts, in proportion to the longest sources and targets there are, so that
    samples times the largest size is never less than what is padded.

    Attributes:
        kind: of the model.
        layout: how its rows are made.
        longest_source: tokens of the longest sample, of what an encoder reads.
        longest_target: labels of the longest target; 0 for causal models.
    """

    weighs_samples = False

    def __init__(self, kind: ModelKind, layout: RowLayout, longest_source: int, longest_target: int = 0) -> None:
        if kind == "encoder_decoder" and not isinstance(layout, PaddedRows):
            raise ValueError("pairs are padded: packed rows are for causal models")
        self.kind = kind
        self.layout = layout
        self.longest_source = longest_source
        self.longest_target = longest_target if kind == "encoder_decoder" else 0

    @classmethod
    def of(cls, kind: ModelKind, layout: RowLayout, samples: TokenizedSamples) -> "TokenSamples":
        """Return the workload of samples."""
        return cls(kind, layout, int(samples.lengths.max()), int(samples.label_lengths.max()))

    @property
    def longest(self) -> int:
        """Size of the largest sample."""
        return self.longest_source + self.longest_target

    def sizes(self, lengths: IntArray, label_lengths: IntArray) -> IntArray:
        """Return the size of each sample."""
        if self.kind == "causal":
            return lengths
        sources = -(-lengths * self.longest // self.longest_source)
        targets = -(-label_lengths * self.longest // self.longest_target)
        return np.maximum(sources, targets)

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        """Return samples ``start`` to ``stop``."""
        counts = {name: _array(tensors, name)[start:stop] for name in COUNTS}
        return _batch(
            _of_samples(tensors[INPUT_IDS], _array(tensors, LENGTHS), start, stop),
            _of_samples(tensors[LABELS], _array(tensors, LABEL_LENGTHS), start, stop),
            counts,
        )

    def join(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        """Return the samples of all parts, behind each other."""
        if not parts[0]:
            return {}  # nothing was handed on
        counts = {name: np.concatenate([_array(part, name) for part in parts]) for name in COUNTS}
        return _batch(
            torch.cat([part[INPUT_IDS] for part in parts]), torch.cat([part[LABELS] for part in parts]), counts
        )

    def weight(self, tensors: Tensors) -> int:
        """Return the tokens that are learned."""
        return int(_array(tensors, LEARNED).sum())

    def shape(self, tensors: Tensors) -> BatchShape:
        """Say how many samples a batch has, the largest size, and its tokens with padding."""
        lengths, targets = _array(tensors, LENGTHS), _array(tensors, LABEL_LENGTHS)
        tokens = self.layout.tokens(lengths)
        if self.kind == "encoder_decoder":
            tokens += self.layout.tokens(targets)
        return BatchShape(len(lengths), int(self.sizes(lengths, targets).max(initial=0)), tokens=tokens)

    def units(self, tensors: Tensors) -> int:
        """Return the tokens of the texts themselves, without padding."""
        tokens = int(_array(tensors, LENGTHS).sum())
        return tokens if self.kind == "causal" else tokens + int(_array(tensors, LABEL_LENGTHS).sum())

    def shrink(self, tensors: Tensors, extent: int, smaller: int) -> dict[str, Tensor]:
        """Cut samples that are larger, to their beginnings."""
        del extent
        source, target = self._sides(smaller)
        lengths, targets = _array(tensors, LENGTHS), _array(tensors, LABEL_LENGTHS)
        labels, kept = _cut(tensors[LABELS], targets, source if self.kind == "causal" else target)
        learned = np.array([int((part != NOT_LEARNED).sum()) for part in torch.split(labels, kept.tolist())], np.int64)
        tokens, left = _cut(tensors[INPUT_IDS], lengths, source)
        return _batch(tokens, labels, {LENGTHS: left, LABEL_LENGTHS: kept, LEARNED: learned})

    def dummy(self, samples: int, extent: int) -> dict[str, Tensor]:
        """Return samples of that size."""
        source, target = self._sides(extent)
        lengths = np.full(samples, source)
        labels = lengths if self.kind == "causal" else np.full(samples, target)
        counts = {LENGTHS: lengths, LABEL_LENGTHS: labels, LEARNED: np.maximum(labels - 1, 1)}
        return _batch(_same(lengths), _same(labels), counts)

    def largest(self, tokens: int) -> dict[str, Tensor]:
        """Return the largest batch of a budget of tokens: rows of the largest size, or full rows of two texts each."""
        if not isinstance(self.layout, PackedRows):
            return self.dummy(max(1, tokens // self.longest), self.longest)
        row = self.layout.row_length
        half = self.dummy(max(1, tokens // row), max(1, row // 2))
        rest = self.dummy(max(1, tokens // row), row - row // 2)
        return self.join([rest, half])

    def _sides(self, size: int) -> tuple[int, int]:
        """Return the longest source and target of samples of a size."""
        if self.kind == "causal":
            return size, 0
        return max(1, size * self.longest_source // self.longest), max(1, size * self.longest_target // self.longest)


def batch_of(samples: TokenizedSamples, indices: Sequence[int]) -> dict[str, Tensor]:
    """Return some samples as a batch."""
    places = np.asarray(indices, np.int64)
    tokens = _gathered(samples.tokens, samples.ends, samples.lengths, places)
    labels = _gathered(samples.labels, samples.label_ends, samples.label_lengths, places)
    counts = {
        LENGTHS: samples.lengths[places],
        LABEL_LENGTHS: samples.label_lengths[places],
        LEARNED: samples.learned_counts[places],
    }
    return _batch(tokens, labels, counts)


def _gathered(flat: NDArray[np.int32], ends: IntArray, lengths: IntArray, places: IntArray) -> Tensor:
    spans = zip((ends - lengths)[places].tolist(), ends[places].tolist(), strict=True)
    gathered = np.concatenate([flat[start:end] for start, end in spans])
    return torch.from_numpy(gathered.astype(np.int64))


def _batch(tokens: Tensor, labels: Tensor, counts: dict[str, IntArray]) -> dict[str, Tensor]:
    # The engine hands leaves on as they are; those that are no tensors are this workload's own business.
    return cast(dict[str, Tensor], {INPUT_IDS: tokens, LABELS: labels, **counts})


def _array(tensors: Tensors, name: str) -> IntArray:
    return cast(IntArray, tensors[name])


def _same(lengths: IntArray) -> Tensor:
    """Return a token over and over; the first one of most vocabularies is for padding, which is no text."""
    return torch.ones(int(lengths.sum()), dtype=torch.int64)


def _of_samples(flat: Tensor, lengths: IntArray, start: int, stop: int) -> Tensor:
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return flat[int(ends[start]) : int(ends[stop])]


def _cut(flat: Tensor, lengths: IntArray, longest: int) -> tuple[Tensor, IntArray]:
    kept = np.minimum(lengths, longest)
    parts = torch.split(flat, lengths.tolist())
    return torch.cat([part[:count] for part, count in zip(parts, kept.tolist(), strict=True)]), kept
