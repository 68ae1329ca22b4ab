"""Batches of given counts, as the classifier admits them."""

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trainauto.data.packing import CandidateCounts, IntArray, Packing, SampleSizes, padded_width
from trainauto.tasks.text.batch_features import BatchSizes
from trainauto.tasks.text.spike_classifier import Bools, SpikeClassifier

logger = logging.getLogger(__name__)

_AT_ONCE = 6
"""Counts that are asked for together at a place."""
_STARTS_AT_ONCE = (8, 128)
"""Batches that are asked for together: twice as many each time, from the first to the second."""


class _OrderedTexts(NamedTuple):
    """Texts in the order that is cut into batches.

    Attributes:
        widths: of a batch that begins with each, shape (texts,).
        tokens_before: of all texts before each, and of all, shape (texts + 1,).
    """

    widths: IntArray
    tokens_before: IntArray

    @classmethod
    def of(cls, ordered: SampleSizes, multiple: int) -> "_OrderedTexts":
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(ordered.tokens)])
        return cls(padded_width(ordered.tokens, multiple), before)

    def batches(self, places: IntArray, counts: IntArray) -> BatchSizes:
        """Return the batches of so many texts from each place on; shape of both is (batches,)."""
        tokens = self.tokens_before[places + counts] - self.tokens_before[places]
        return BatchSizes(counts, self.widths[places], tokens)


@dataclass(frozen=True)
class ClassifiedCounts(CandidateCounts):
    """Batches of given counts: at every point the largest that a classifier admits.

    As in :class:`~trainauto.data.packing.CandidateCounts`, the first batch holds ``base`` samples and so does one of
    which no candidate is admitted, and a window ends with what is left, where that is admitted together. The
    classifier sees the texts of each candidate, their longest and all their tokens. ``cost`` and ``bound`` are for code
    that corrects a cost by what is measured, such as ``map``; no batch of this rule is decided by them.

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
        texts = _OrderedTexts.of(ordered, self.multiple)
        ends, place, admitted, samples = list[int](), 0, 0, len(ordered)
        while place < samples:
            limit = int(limits[place])
            left = limit - place
            if place == 0 or left <= self.base:
                place += min(self.base, left)
                ends.append(place)
                continue
            tried = self._tried(left)
            admitted = self._admitted(texts, place, tried, admitted)
            count = int(tried[admitted - 1]) if admitted else min(self.base, left)
            repeated = self._repeated(texts, place + count, limit, admitted)
            ends += range(place + count, place + (repeated + 1) * count + 1, count)
            place = ends[-1]
        return np.array(ends, np.int64)

    def admits(self, batches: BatchSizes) -> Bools:
        """Return which batches are admitted; ``longest`` is the width of each."""
        return self.classifier.admits(self.first, batches, np.array(self.max_input_length), self.threshold)

    def log(self, sizes: SampleSizes, packing: Packing) -> None:
        """Say how many batches are larger than the first, and how many it abstained from; warn where none is larger."""
        if len(packing) < 2 or self.candidates[-1] <= self.base:
            return
        texts = _OrderedTexts.of(sizes.take(packing.order), self.multiple)
        is_known = self.classifier.range.holds(self.first, texts.batches(packing.starts, packing.counts))
        larger, unknown = int((packing.counts > self.base).sum()), int((~is_known).sum())
        said = f"of {len(packing)} batches {larger} hold more than {self.base} texts, and it abstained from {unknown}"
        if larger:
            logger.info("The classifier admits batches at a threshold of %g: %s.", self.threshold, said)
            return
        logger.warning(
            "The classifier admits no larger batch at a threshold of %g: %s. It foretells a spike with a probability "
            "of %.3g at least; a larger threshold admits more, and so may a cost in place of the classifier.",
            self.threshold,
            said,
            self.classifier.calibration.probabilities[0],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return threshold and counts; what the classifier makes of them shows in the batches' checksum."""
        return {"threshold": self.threshold, "candidates": list(self.candidates), "base": self.base}

    def _tried(self, left: int) -> IntArray:
        """Return the counts to choose from where so many samples are left."""
        if left > self.candidates[-1]:
            return np.array(self.candidates, np.int64)
        # All that is left together comes last, even where that is no candidate.
        return np.array([*(count for count in self.candidates if count < left), left], np.int64)

    def _admitted(self, texts: _OrderedTexts, place: int, tried: IntArray, likely: int) -> int:
        """Return how many of the counts are admitted at a place; where one is, so are those before it.

        Args:
            texts: all of them.
            place: of the batch's first.
            tried: counts, ascending.
            likely: what it was for the batch before, and mostly is again.
        """
        low, high = 0, len(tried)  # so many are admitted; no more than so many are
        begin, end = max(0, min(likely, high) - 1), min(likely + 2, high)
        while low < high:
            step = -(-(end - begin) // _AT_ONCE)
            asked = np.arange(end - 1, begin - 1, -step)[::-1]
            is_admitted = self.admits(texts.batches(np.full(len(asked), place), tried[asked]))
            first_refused = len(asked) if is_admitted.all() else int(is_admitted.argmin())
            if first_refused:
                low = int(asked[first_refused - 1]) + 1
            if first_refused < len(asked):
                high = int(asked[first_refused])
            begin, end = low, high
        return low

    def _repeated(self, texts: _OrderedTexts, place: int, limit: int, admitted: int) -> int:
        """Return how many batches from a place on hold as many as the one before it, as far as that is soon known.

        Where one batch ends is known once the one before it is, and a call for each takes most of the time. But lengths
        fall slowly and most batches hold as many as the last: many that would are asked for together.

        Args:
            texts: all of them.
            place: behind the batch before.
            limit: where the window ends; batches near it have other candidates, and are left out.
            admitted: candidates that were admitted for the batch before.
        """
        candidates = np.array(self.candidates, np.int64)
        count = int(candidates[admitted - 1]) if admitted else self.base
        most = max(int(candidates[-1]), self.base)
        batches = max(0, -(-(limit - most - place) // count))
        alike, asked = 0, _STARTS_AT_ONCE[0]
        while alike < batches:
            places = place + count * np.arange(alike, min(alike + asked, batches))
            is_alike = self._admitted_alike(texts, places, candidates, admitted)
            if not is_alike.all():
                return alike + int(is_alike.argmin())
            alike, asked = alike + len(places), min(2 * asked, _STARTS_AT_ONCE[1])
        return alike

    def _admitted_alike(self, texts: _OrderedTexts, places: IntArray, tried: IntArray, admitted: int) -> Bools:
        """Return at which places so many of the counts are admitted, and no more."""
        around = [number for number in (admitted - 1, admitted) if 0 <= number < len(tried)]
        batches = texts.batches(np.tile(places, len(around)), np.repeat(tried[around], len(places)))
        is_admitted = self.admits(batches).reshape(len(around), len(places))
        is_alike: Bools = (is_admitted == (np.array(around) < admitted)[:, None]).all(axis=0)
        return is_alike
