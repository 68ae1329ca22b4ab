"""Samples in batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainauto.data.packing.costs import BatchCost
from trainauto.data.packing.sizes import IntArray, SampleSizes


@dataclass(frozen=True, eq=False)
class Packing:
    """Samples in the order of their batches, and where each batch ends.

    Attributes:
        order: indices of the samples, batch after batch, shape (samples,).
        ends: where in ``order`` each batch ends, shape (batches,); batch ``i`` is ``order[ends[i - 1] : ends[i]]``.
    """

    order: IntArray
    ends: IntArray

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def starts(self) -> IntArray:
        """Where in ``order`` each batch begins, shape (batches,)."""
        return self.ends - self.counts

    @property
    def counts(self) -> IntArray:
        """How many samples each batch holds, shape (batches,)."""
        return np.diff(self.ends, prepend=0)

    def batch(self, number: int) -> IntArray:
        """Return the indices of a batch's samples."""
        return self.order[self.ends[number - 1] if number else 0 : self.ends[number]]

    def batches(self) -> Iterator[IntArray]:
        """Yield the indices of each batch's samples."""
        start = 0
        for end in self.ends.tolist():
            yield self.order[start:end]
            start = end

    def reordered(self, batches: IntArray) -> "Packing":
        """Return the same batches in another order, given by their numbers."""
        counts = self.counts[batches]
        ends = np.cumsum(counts)
        moved_by = self.starts[batches] - (ends - counts)
        return Packing(self.order[np.arange(len(self.order)) + np.repeat(moved_by, counts)], ends)

    def longest(self, sizes: SampleSizes) -> IntArray:
        """Return the length of each batch's longest sample, shape (batches,)."""
        return _per_batch(np.maximum, sizes.tokens[self.order], self.starts)

    def images(self, sizes: SampleSizes) -> IntArray:
        """Return the images of each batch, shape (batches,)."""
        if sizes.images is None:
            return np.zeros(len(self), np.int64)
        return _per_batch(np.add, sizes.images[self.order], self.starts)

    def costs(self, sizes: SampleSizes, cost: BatchCost) -> IntArray:
        """Return what each batch costs, shape (batches,)."""
        return cost.cost(self.counts, self.longest(sizes), self.images(sizes))

    def padded_tokens(self, sizes: SampleSizes) -> int:
        """Return the tokens of all batches, each padded to its own longest sample."""
        return int((self.counts * self.longest(sizes)).sum())

    def waste(self, sizes: SampleSizes) -> float:
        """Return the share of the padded tokens that is padding, from 0 to below 1."""
        padded = self.padded_tokens(sizes)
        return 1 - int(sizes.tokens[self.order].sum()) / padded if padded else 0.0


def _per_batch(reduction: np.ufunc, values: IntArray, starts: IntArray) -> IntArray:
    if not len(starts):
        return np.zeros(0, np.int64)
    reduced: IntArray = reduction.reduceat(values, starts)
    return reduced
