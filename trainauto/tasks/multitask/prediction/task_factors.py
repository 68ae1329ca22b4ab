"""By which factor batches take more than predicted, learned from measured ones and told apart by task.

The logarithm of a batch's factor is one that all tasks share, and what each has to itself, weighted by how many samples
of the batch are its:

    log(measured / predicted) = shared + sum over tasks of share_t * own_t + noise

with Gaussian priors on all of them. So a batch of several tasks teaches about each by its share, and a task that was
never measured follows the others. Noise is Student's t with 4 degrees of freedom, fitted by reweighting (Lange, Little
and Taylor 1989): one peak that something else took part in moves nothing once there are others.

What is compared is always the prediction without any factor: a factor on top of a corrected prediction would be fed
back, and never settle (the documented guardian compared so).
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainauto.memory.cost.ratio_prior import FREEDOM

Floats = NDArray[np.float64]

REMEMBERED = 20
"""Batches that are kept of each task (of the one with most samples in it): older ones ran under other conditions."""

NOISE = 0.02
"""Scale of a batch's own logarithm before any was seen; what is seen replaces it soon."""

LEAST_NOISE = 0.003
"""Smallest scale of it: peaks of equal steps differ by so much."""

NOISE_WORTH = 2.0
"""Records that the assumed scale of noise is worth."""

_ROUNDS = 12

LOOSE = 1e4
"""Multiple of the prior variances that bounds nothing any more."""


@dataclass(frozen=True)
class _Record:
    shares: Mapping[str, float]
    log_ratio: float
    scale: float


class TaskFactors:
    """Factors of tasks.

    Args:
        shared: how far off what all tasks share may be before anything was measured, a scale of the logarithm.
        own: likewise of what each task has to itself.
    """

    def __init__(self, shared: float, own: float) -> None:
        self._shared, self._own = shared, own
        self._records: dict[str, deque[_Record]] = {}
        self._fitted: tuple[dict[str, int], Floats, Floats, float] | None = None

    def record(self, shares: Mapping[str, float], log_ratio: float, scale: float = 0.0) -> None:
        """Learn from a measured batch.

        Args:
            shares: of each task among its samples; they sum to 1.
            log_ratio: logarithm of measured over predicted bytes, the prediction without any factor.
            scale: of what this batch in particular has to itself, such as a constant that is much of a small one.
        """
        main = max(shares, key=lambda task: shares[task])
        self._records.setdefault(main, deque(maxlen=REMEMBERED)).append(_Record(dict(shares), log_ratio, scale))
        self._fitted = None

    def mean(self, shares: Mapping[str, float]) -> float:
        """Return the logarithm of the factor that a batch of such tasks is expected to have."""
        places, mean, _, _ = self._fit()
        return float(_row(shares, places) @ mean)

    def scale(self, shares: Mapping[str, float], own: float = 0.0) -> float:
        """Return the scale of its doubt.

        Args:
            shares: of each task.
            own: what the batch in particular has to itself.
        """
        places, _, covariance, noise = self._fit()
        row = _row(shares, places)
        unknown = sum(share**2 for task, share in shares.items() if task not in places)
        return hypot(sqrt(float(row @ covariance @ row) + unknown * self._own**2), noise, own)

    def state_dict(self) -> dict[str, Any]:
        """Return what was measured, for a checkpoint."""
        return {
            "records": [
                [dict(record.shares), record.log_ratio, record.scale]
                for records in self._records.values()
                for record in records
            ]
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self._records.clear()
        self._fitted = None
        for shares, log_ratio, scale in state["records"]:
            self.record({str(task): float(share) for task, share in shares.items()}, float(log_ratio), float(scale))

    def _fit(self) -> tuple[dict[str, int], Floats, Floats, float]:
        """Return tasks by their place, the factors' mean and covariance, and the scale of noise."""
        if self._fitted is None:
            records = [record for kept in self._records.values() for record in kept]
            tasks = sorted({task for record in records for task in record.shares})
            places = {task: place for place, task in enumerate(tasks, 1)}
            prior = np.diag([self._shared**2, *[self._own**2] * len(tasks)])
            self._fitted = (places, *_posterior(records, places, prior))
        return self._fitted


def _row(shares: Mapping[str, float], places: Mapping[str, int]) -> Floats:
    row = np.zeros(len(places) + 1)
    row[0] = 1.0
    for task, share in shares.items():
        if task in places:
            row[places[task]] = share
    return row


def _posterior(records: Sequence[_Record], places: Mapping[str, int], prior: Floats) -> tuple[Floats, Floats, float]:
    """Return mean and covariance of the factors, and the scale of noise, by reweighting."""
    if not records:
        return np.zeros(len(prior)), prior, NOISE
    rows = np.stack([_row(record.shares, places) for record in records])
    seen = np.array([record.log_ratio for record in records])
    own = np.array([record.scale for record in records])
    weights, noise = np.ones(len(records)), NOISE
    # What most batches say is looked for without the prior: far from it, they would all seem to be outliers.
    for _ in range(_ROUNDS):
        mean, _ = _solved(rows, seen, weights / (noise**2 + own**2), LOOSE * prior)
        residuals = seen - rows @ mean
        typical = 1.4826 * float(np.median(np.abs(residuals)))  # of a Gaussian, half lie within 0.67 scales
        scale = sqrt((NOISE_WORTH * NOISE**2 + len(records) * typical**2) / (NOISE_WORTH + len(records)))
        noise = max(LEAST_NOISE, scale)
        weights = (FREEDOM + 1) / (FREEDOM + (residuals / np.hypot(noise, own)) ** 2)
    return *_solved(rows, seen, np.minimum(1.0, weights) / (noise**2 + own**2), prior), noise


def _solved(rows: Floats, seen: Floats, by_row: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Return mean and covariance of the factors where noise has these reciprocal variances."""
    precision = np.linalg.inv(prior) + (rows * by_row[:, None]).T @ rows
    covariance: Floats = np.asarray(np.linalg.inv(precision), np.float64)
    mean: Floats = covariance @ (rows.T @ (by_row * seen))
    return mean, covariance
