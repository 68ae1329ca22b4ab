"""A cost in bytes, corrected by the peaks that were measured."""

from math import exp, log, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainauto.memory.cost.ratio_prior import FREEDOM, RatioPrior, student4

IntArray = NDArray[np.int64]

UNKNOWN = RatioPrior(1.0, 2.0, 0.0, 0.05, 0.0, 0.0)
"""Belief where nothing is known of how predictions compare with measured peaks: a factor of 2, and 5 % of noise."""


class PredictedBytes(Protocol):
    """A cost in bytes that may be off by a factor."""

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return what batches take."""


class MeasuredCost:
    """Another cost times the ratio by which measured peaks exceed it.

    The logarithm of measured over predicted is taken as a ratio that all batches share, known beforehand as the belief
    says, and what every batch has to itself. Each observation tells of both: the posterior of the shared ratio is that
    of a Gaussian mean; the scale of what batches have to themselves is the prior's, which counts as four observations,
    and theirs together. Quantiles are Student's with 4 degrees of freedom, as all others here (``ratio_prior.py``).

    Args:
        base: predicts bytes.
        belief: of measured over predicted before anything was measured.
    """

    unit = "bytes"

    def __init__(self, base: PredictedBytes, belief: RatioPrior = UNKNOWN) -> None:
        self.base, self._belief = base, belief
        self._logs: list[float] = []

    @property
    def ratio(self) -> float:
        """Measured over predicted, as it is expected of a batch to come."""
        return exp(self._posterior()[0])

    def observe(self, predicted: int, measured: int) -> None:
        """Take in the peak of a batch.

        Args:
            predicted: what the base says of it.
            measured: what it took, beside what is held anyway, as the prediction has it.
        """
        if predicted > 0 and measured > 0:
            self._logs.append(log(measured / predicted))

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the bytes of batches as they are expected to be measured."""
        corrected: IntArray = np.ceil(self.base.cost(samples, longest, images) * self.ratio).astype(np.int64)
        return corrected

    def margin(self, probability: float) -> float:
        """Return how far a batch's bytes relative to another's may lie above the prediction: the ratio cancels."""
        return max(1.0, exp(self._doubt(probability) * sqrt(2) * self._own()))

    def upper_margin(self, probability: float) -> float:
        """Return how far a batch's bytes may lie above :meth:`cost`: for bounds that are no measured batch's."""
        _, variance = self._posterior()
        return max(1.0, exp(self._doubt(probability) * sqrt(variance + self._own() ** 2)))

    def _doubt(self, probability: float) -> float:
        if not 0 < probability < 1:
            raise ValueError(f"a probability lies between 0 and 1, got {probability}")
        return student4(1 - probability)

    def _own(self) -> float:
        """Scale of what a batch has to itself."""
        own = max(self._belief.own, 1e-3)
        if not self._logs:
            return own
        spread = float(np.square(np.array(self._logs) - np.mean(self._logs)).sum())
        return sqrt((FREEDOM * own**2 + spread) / (FREEDOM + len(self._logs) - 1))

    def _posterior(self) -> tuple[float, float]:
        """Return expectation and variance of the logarithm of the shared ratio."""
        before, known = log(self._belief.median_ratio), 1 / max(self._belief.ratio, 1e-6) ** 2
        each = 1 / self._own() ** 2
        weight = known + each * len(self._logs)
        return (before * known + each * sum(self._logs)) / weight, 1 / weight
