"""Says of a batch to be whether it may take more memory than the first one did, and where it does not know.

Learned by ``scripts/train_classifier.py`` from recorded batches of ``generate`` (docs/classifier.md). What is shipped
and read are plain arrays, and numpy is all that evaluates them.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainauto.core.errors import InputError
from trainauto.core.files import write_atomically
from trainauto.tasks.text.batch_features import FEATURES, BatchSizes, features_of
from trainauto.tasks.text.boosted_trees import BoostedTrees, Floats, IntArray
from trainauto.tasks.text.stored_arrays import Arrays, Numbers

SHIPPED = Path(__file__).with_name("spike_classifier.npz")
"""Learned from all the recordings; ``python scripts/train_classifier.py`` writes it."""

FORMAT = 1
"""Of the file; others are refused."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Probability of a spike by score, a staircase that rises.

    Attributes:
        knots: greatest score of every step but the last, ascending, shape (steps - 1,).
        probabilities: of every step, rising, shape (steps,).
    """

    knots: IntArray
    probabilities: Floats

    def probability(self, scores: IntArray) -> Floats:
        """Return the probability of a spike at such scores: that of their step, which is its highest."""
        found: Floats = self.probabilities[np.searchsorted(self.knots, scores, side="left")]
        return found

    def greatest_score(self, threshold: float) -> int:
        """Return the greatest score whose probability is at most a threshold; below all scores where none is."""
        steps = int(np.searchsorted(self.probabilities, threshold, side="right"))
        limits = np.iinfo(np.int64)
        if steps == 0:
            return int(limits.min)
        return int(self.knots[steps - 1]) if steps <= len(self.knots) else int(limits.max)


@dataclass(frozen=True, eq=False)
class TrainingRange:
    """Which batches the recordings tell something about, decided by sizes alone.

    Attributes:
        length_ratios: ends of bins of longest text / longest text of the first batch, ascending, shape (bins - 1,).
        most_growth: by bin, the greatest number of texts over that of the first batch that at least a few recorded
            runs had, shape (bins,).
        least_first: smallest first batch of all runs: its texts, tokens of the longest.
        most_first: the largest.
    """

    length_ratios: Floats
    most_growth: Floats
    least_first: Floats
    most_first: Floats

    def holds(self, first: BatchSizes, batches: BatchSizes) -> Bools:
        """Return which batches are like some that were recorded; where one is, so are smaller ones of its length."""
        bins = np.searchsorted(self.length_ratios, batches.longest / np.maximum(first.longest, 1), side="right")
        known = batches.samples / np.maximum(first.samples, 1) <= self.most_growth[bins]
        sizes = (first.samples, first.longest)
        for size, least, most in zip(sizes, self.least_first, self.most_first, strict=True):
            known = known & (least <= np.asarray(size)) & (np.asarray(size) <= most)
        return np.asarray(known)


@dataclass(frozen=True, eq=False)
class SpikeClassifier:
    """A classifier of batches, relative to the first one.

    Attributes:
        trees: give a score; more texts in a batch never score less.
        calibration: what scores mean.
        range: outside of it the classifier abstains.
        runs: names of the runs it learned from.
    """

    trees: BoostedTrees
    calibration: Calibration
    range: TrainingRange
    runs: tuple[str, ...]

    def scores(self, first: BatchSizes, batches: BatchSizes, max_input_length: IntArray) -> IntArray:
        """Return the score of every batch; fields broadcast against each other, shape (batches,)."""
        return self.trees.scores(features_of(first, batches, max_input_length))

    def probability(self, first: BatchSizes, batches: BatchSizes, max_input_length: IntArray) -> Floats:
        """Return the probability of every batch that it takes more than 0.9 of what the first one took."""
        return self.calibration.probability(self.scores(first, batches, max_input_length))

    def admits(self, first: BatchSizes, batches: BatchSizes, max_input_length: IntArray, threshold: float) -> Bools:
        """Return which batches are known to spike with at most a probability; an abstention is none of them."""
        is_low = self.scores(first, batches, max_input_length) <= self.calibration.greatest_score(threshold)
        return is_low & self.range.holds(first, batches)

    def save(self, path: Path) -> None:
        """Write the file that :meth:`load` reads, whole or not at all; equal classifiers make equal files."""
        arrays: dict[str, NDArray[Any]] = {
            "format": np.array(FORMAT),
            "names": np.array([name for name, _ in FEATURES]),
            "runs": np.array(self.runs),
            "knots": self.calibration.knots,
            "probabilities": self.calibration.probabilities,
            **self.trees.to_arrays(),
            **{name: getattr(self.range, name) for name in _RANGE},
        }

        def write(file: Path) -> None:
            with file.open("wb") as stream:
                np.savez_compressed(stream, allow_pickle=False, **arrays)

        write_atomically(path, write)

    @classmethod
    def load(cls, path: str | Path) -> "SpikeClassifier":
        """Read a classifier; nothing in the file is executed.

        Raises:
            InputError: there is no such file, or it is none of a classifier.
        """
        try:
            # Opened here: numpy leaves a file open that it cannot read.
            with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                return cls._from_arrays(dict(file))
        except Exception as error:  # a damaged file fails in zipfile, zlib or numpy with a dozen kinds of error
            why = f"it has no {error}" if isinstance(error, KeyError) else error
            raise InputError(f"{path} is no classifier that scripts/train_classifier.py wrote: {why}") from error

    @classmethod
    def _from_arrays(cls, arrays: Arrays) -> "SpikeClassifier":
        if (made := int(Numbers("i", 0).of(arrays, "format"))) != FORMAT:
            raise ValueError(f"its format is {made}, not {FORMAT}")
        if arrays["names"].tolist() != [name for name, _ in FEATURES]:
            raise ValueError("it looks at other features")
        if arrays["runs"].dtype.kind != "U" or arrays["runs"].ndim != 1:
            raise ValueError("runs are no list of names")
        trees = BoostedTrees.from_arrays(arrays)
        if int(trees.features.max()) >= len(FEATURES):
            raise ValueError("its trees look at features that there are not")
        calibration = Calibration(
            Numbers("i", 1).of(arrays, "knots"), Numbers("f", 1, least=0, most=1).of(arrays, "probabilities")
        )
        limits = TrainingRange(**{name: Numbers("f", 1, least=0).of(arrays, name) for name in _RANGE})
        for steps, ends in ((calibration.probabilities, calibration.knots), (limits.most_growth, limits.length_ratios)):
            if len(steps) != len(ends) + 1 or (np.diff(ends) <= 0).any():
                raise ValueError("its steps do not rise")
        if (np.diff(calibration.probabilities) < 0).any():
            raise ValueError("its probabilities fall as scores rise")
        if not len(limits.least_first) == len(limits.most_first) == 2:
            raise ValueError("limits of first batches are of two sizes, texts and tokens of the longest")
        return cls(trees, calibration, limits, tuple(arrays["runs"].tolist()))


_RANGE = ("length_ratios", "most_growth", "least_first", "most_first")


@cache
def shipped_classifier() -> SpikeClassifier:
    """Return the classifier that is part of the package."""
    return SpikeClassifier.load(SHIPPED)
