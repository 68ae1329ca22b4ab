"""The peak of a step as a function of its batch, exactly: the maximum over the moments of the step.

While a step does the same operators whatever the size of its batch, the bytes that are live at each moment are a sum of
tensors, and each of those is a product of sizes. With b samples of s tokens (units of any kind), every moment is

    c0 + c1 b + c2 s + c3 b s + c4 s^2 + c5 b s^2

and a few traces give all six of every moment. The peak is the highest moment, and which one that is changes with the
batch: lines through peaks cannot follow that, moments do. Where traces do not do the same operators, or sizes are
rounded (windows), their peaks are fitted instead, from above.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainauto.memory.tracing.trace import Trace

Floats = NDArray[np.float64]
Size = tuple[int, int]
"""Samples, and tokens of each."""

EXACT = 1e-4
"""Largest error of a moment, as a share of the least peak, up to which moments are taken for exact."""

TERMS = 6
LEAST_POINTS = TERMS + 1
"""Traces that are needed: one more than there are terms, so that it shows where the form does not hold."""

_MOST_SAMPLES, _MOST_UNITS = 2.0**20, 2.0**20


@dataclass(frozen=True)
class Moments:
    """Moments of a step one of which is its peak, for every size of batch.

    Attributes:
        coefficients: (moments, 6) bytes by 1, b, s, b s, s^2, b s^2.
        residual: how far the largest of them lies above the traces, at most, as a share; 0 where it is exact.
    """

    coefficients: Floats
    residual: float = 0.0

    def bytes(self, samples: ArrayLike, units: ArrayLike) -> Floats:
        """Return the peak of batches of so many samples of so many units each, at least one; broadcast."""
        b, s = np.maximum(1.0, np.asarray(samples, np.float64)), np.maximum(1.0, np.asarray(units, np.float64))
        highest = np.zeros(np.broadcast_shapes(b.shape, s.shape))
        for c0, c1, c2, c3, c4, c5 in self.coefficients.tolist():
            alone, each = c0 + s * (c2 + s * c4), c1 + s * (c3 + s * c5)
            np.maximum(highest, alone + b * each, out=highest)
        return highest


def moments_of(traces: Mapping[Size, Sequence[Trace]], held_bytes: int) -> Moments:
    """Return the moments of a step out of traces of it.

    Args:
        traces: at least seven sizes, with at least two numbers of samples and three of units; a step may have several
            parts, each a trace of its own, the same number everywhere.
        held_bytes: what is held whatever the batch is, and counted apart.

    Raises:
        ValueError: there are too few traces to tell.
    """
    sizes = list(traces)
    terms = _terms(np.array([b for b, _ in sizes], np.float64), np.array([s for _, s in sizes], np.float64))
    if len(sizes) < LEAST_POINTS or np.linalg.matrix_rank(terms / terms.max(axis=0)) < TERMS:
        raise ValueError(f"at least {LEAST_POINTS} traces, of two numbers of samples and three of units, got {sizes}")
    parts = [_moments(terms, list(part), held_bytes) for part in zip(*traces.values(), strict=True)]
    residual = max(residual for _, residual in parts)
    return Moments(_needed(_monotone(np.concatenate([moments for moments, _ in parts])), sizes), residual)


def _terms(b: Floats, s: Floats) -> Floats:
    return np.stack([np.ones_like(b), b, s, b * s, s * s, b * s * s], axis=-1)


def _moments(terms: Floats, traces: Sequence[Trace], held_bytes: int) -> tuple[Floats, float]:
    """Return moments of one part of a step, and how far they lie above its traces."""
    peaks = np.array([trace.peak_bytes - held_bytes for trace in traces], np.float64)
    lines = [_live(trace) - held_bytes for trace in traces]
    if len({tuple(np.sign(trace.sizes())) for trace in traces}) == 1:
        live = np.unique(np.stack(lines, axis=-1), axis=0)
        coefficients = _solved(terms, live)
        if np.abs(coefficients @ terms.T - live).max() <= EXACT * peaks.min():
            return coefficients, 0.0
    return _above(terms, peaks)


def _live(trace: Trace) -> Floats:
    """Return the live bytes of every moment of a trace, the beginning among them."""
    return np.cumsum([trace.persistent_bytes, *trace.sizes()], dtype=np.float64)


def _solved(terms: Floats, live: Floats) -> Floats:
    scales = terms.max(axis=0)
    solution = np.linalg.lstsq(terms / scales, live.T, rcond=None)[0]
    # Bytes of storages are whole: what is no thousandth of one is the solver's, as is what moves no peak.
    exact: Floats = np.round(solution / scales[:, None], 4).T
    return exact


def _above(terms: Floats, peaks: Floats) -> tuple[Floats, float]:
    """Fit peaks by what grows with the samples, and lift it until no trace lies above."""
    shape = terms * np.array([1, 1, 0, 1, 0, 1])
    scales = np.maximum(1.0, shape.max(axis=0))
    solution = np.linalg.lstsq(shape / scales / peaks[:, None], np.ones(len(peaks)), rcond=1e-9)[0] / scales
    solution = np.maximum(solution, 0.0)
    if not solution.any():
        solution = np.array([0.0, 0, 0, 1, 0, 0])
    ratios = peaks / (terms @ solution)
    return (solution * ratios.max())[None, :], float(ratios.max() / ratios.min() - 1)


def _monotone(coefficients: Floats) -> Floats:
    """Lift moments that would fall somewhere where a batch grows, from one sample of one unit on."""
    lifted = coefficients.copy()
    c1, c2, c3, c4, c5 = (coefficients[:, term] for term in range(1, TERMS))
    falls_with_samples = (c3 < 0) | (c5 < 0) | (c1 + c3 + c5 < 0)
    falls_with_units = (c4 + c5 < 0) | (c2 + c3 + 2 * (c4 + c5) < 0)
    lifted[falls_with_samples, 1::2] = np.maximum(0.0, lifted[falls_with_samples, 1::2])
    lifted[falls_with_units, 2::2] = np.maximum(0.0, lifted[falls_with_units, 2::2])
    return lifted


def _needed(coefficients: Floats, sizes: Sequence[Size]) -> Floats:
    """Return the moments that are the highest somewhere."""
    coefficients = np.unique(coefficients, axis=0)
    b = np.concatenate([np.geomspace(1, _MOST_SAMPLES, 41), [b for b, _ in sizes]])
    s = np.concatenate([np.geomspace(1, _MOST_UNITS, 41), [s for _, s in sizes]])
    grid = _terms(*(axis.ravel() for axis in np.meshgrid(b, s)))
    highest = np.zeros(len(grid), np.int64)
    best = np.full(len(grid), -np.inf)
    for number, moment in enumerate(coefficients):
        values = grid @ moment
        higher = values > best
        highest[higher], best = number, np.maximum(best, values)
    needed: Floats = coefficients[np.unique(highest)]
    return needed
