"""Batches of given counts, as the classifier admits them."""

from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

from trainauto.data.packing import CandidateCounts, IntArray, SampleSizes, padded_width
from trainauto.tasks.text.batch_features import BatchSizes
from trainauto.tasks.text.spike_classifier import SpikeClassifier


@dataclass(frozen=True)
class ClassifiedCounts(CandidateCounts):
    """Batches of given counts: at every point the largest that a classifier admits.

    As in :class:`~trainauto.data.packing.CandidateCounts`, the first batch holds ``base`` samples and so does one of
    which no candidate is admitted, and a window ends with what is left, where that is admitted together. The classifier
    sees the texts of each candidate, their longest and all their tokens. ``cost`` and ``bound`` are for whoever corrects
    a cost by what is measured, such as ``map``; no batch of this rule is decided by them.

    Attributes:
        classifier: admits batches; more texts are never admitted where fewer are not.
        threshold: probability with which an admitted batch may spike.
        first: the batch that all are compared with.
        max_input_length: to which texts are cut.
        multiple: widths are multiples of this.
    """

    classifier: SpikeClassifier
    threshold: float
    first: BatchSizes
    max_input_length: int
    multiple: int = 1

    def ends(self, ordered: SampleSizes, limits: IntArray) -> IntArray:
        """Return where batches of the largest admitted candidates end."""
        widths = padded_width(ordered.tokens, self.multiple)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(ordered.tokens)])
        ends, place, samples = [], 0, len(ordered)
        while place < samples:
            left = int(limits[place]) - place
            if place == 0 or left <= self.base:
                count = min(self.base, left)
            else:
                count = self._largest(int(widths[place]), before[place : place + self.candidates[-1] + 1], left)
            place += count
            ends.append(place)
        return np.array(ends, np.int64)

    def admits(self, counts: IntArray, longest: int, tokens: IntArray) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """Return which batches are admitted.

        Args:
            counts: samples of each.
            longest: width of all of them.
            tokens: of all samples of each, without padding.
        """
        batches = BatchSizes(counts, np.full_like(counts, longest), tokens)
        return self.classifier.admits(self.first, batches, np.array(self.max_input_length), self.threshold)

    def to_dict(self) -> dict[str, Any]:
        """Return threshold and counts; what the classifier makes of them shows in the batches' checksum."""
        return {"threshold": self.threshold, "candidates": list(self.candidates), "base": self.base}

    def _largest(self, longest: int, before: IntArray, left: int) -> int:
        """Return the largest admitted count of at most what is left, by asking for a few and then between those."""
        counts = [count for count in self.candidates if count < left]
        if left <= self.candidates[-1]:
            counts.append(left)  # all that is left together, even where that is no candidate
        tried = np.array(counts, np.int64)
        tokens = before[tried] - before[0]
        step = isqrt(len(tried) - 1) + 1
        coarse = slice(step - 1, None, step)
        admitted = _leading(self.admits(tried[coarse], longest, tokens[coarse])) * step
        between = slice(admitted, admitted + step - 1)
        if len(tried[between]):
            admitted += _leading(self.admits(tried[between], longest, tokens[between]))
        return int(tried[admitted - 1]) if admitted else min(self.base, left)


def _leading(admitted: "np.ndarray[Any, np.dtype[np.bool_]]") -> int:
    """Return how many are admitted before the first that is not."""
    return len(admitted) if admitted.all() else int(admitted.argmin())
