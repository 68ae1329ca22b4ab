"""Batches of given counts, as the classifier admits them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trainauto.data.packing import CandidateCounts, IntArray, SampleSizes, padded_width
from trainauto.tasks.text.batch_features import BatchSizes
from trainauto.tasks.text.spike_classifier import Bools, SpikeClassifier


@dataclass(frozen=True)
class ClassifiedCounts(CandidateCounts):
    """Batches of given counts: at every point the largest that a classifier admits.

    As in :class:`~trainauto.data.packing.CandidateCounts`, the first batch holds ``base`` samples and so does one of
    which no candidate is admitted, and a window ends with what is left, where that is admitted together. The
    classifier sees the texts of each candidate, their longest and all their tokens. ``cost`` and ``bound`` are for
    whoever corrects a cost by what is measured, such as ``map``; no batch of this rule is decided by them.

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
        ends, place, admitted, samples = [], 0, 0, len(ordered)
        while place < samples:
            left = int(limits[place]) - place
            if place == 0 or left <= self.base:
                count = min(self.base, left)
            else:
                tried = self._tried(left)
                tokens = before[place + tried] - before[place]
                admitted = self._admitted(tried, int(widths[place]), tokens, admitted)
                count = int(tried[admitted - 1]) if admitted else min(self.base, left)
            place += count
            ends.append(place)
        return np.array(ends, np.int64)

    def admits(self, counts: IntArray, longest: int, tokens: IntArray) -> Bools:
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

    def _tried(self, left: int) -> IntArray:
        """Return the counts to choose from where so many samples are left."""
        if left > self.candidates[-1]:
            return np.array(self.candidates, np.int64)
        # All that is left together comes last, even where that is no candidate.
        return np.array([*(count for count in self.candidates if count < left), left], np.int64)

    def _admitted(self, tried: IntArray, longest: int, tokens: IntArray, likely: int) -> int:
        """Return how many of the counts are admitted; where one is, so are those before it.

        Args:
            tried: counts, ascending.
            longest: width of all.
            tokens: of each.
            likely: what it was for the batch before, and mostly is again.
        """
        low, high = 0, len(tried)  # so many are admitted; no more than so many are
        begin, end = max(0, min(likely, high) - 1), min(likely + 2, high)
        while low < high:
            step = -(-(end - begin) // _AT_ONCE)
            asked = np.arange(end - 1, begin - 1, -step)[::-1]
            is_admitted = self.admits(tried[asked], longest, tokens[asked])
            first_refused = len(asked) if is_admitted.all() else int(is_admitted.argmin())
            if first_refused:
                low = int(asked[first_refused - 1]) + 1
            if first_refused < len(asked):
                high = int(asked[first_refused])
            begin, end = low, high
        return low


_AT_ONCE = 6
"""Counts that are asked for together."""
