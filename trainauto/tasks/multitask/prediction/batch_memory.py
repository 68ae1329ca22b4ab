"""What a step takes as a function of its batch, and how far to trust that.

A batch is padded to its longest text and to its most images, so that three numbers say what it is. Traces of a few
sizes span a grid of them; between its points, each phase of a step is interpolated linearly in every direction, and the
step takes what its highest phase does. Beyond the largest points the outermost cells go on as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from math import hypot, log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainauto.memory.cost.ratio_prior import UPPER, RatioPrior, student4

Floats = NDArray[np.float64]


class PaddedShape(NamedTuple):
    """A batch, padded.

    Attributes:
        samples: how many it holds.
        tokens: of its longest text.
        images: of the sample with most.
    """

    samples: int
    tokens: int
    images: int


@dataclass(frozen=True)
class Grid:
    """Sizes that are traced, in ascending order.

    Attributes:
        samples: numbers of samples.
        tokens: lengths of texts.
        images: numbers of images.
    """

    samples: tuple[int, ...]
    tokens: tuple[int, ...]
    images: tuple[int, ...]

    def shapes(self) -> list[PaddedShape]:
        """Return all points."""
        return [PaddedShape(n, length, m) for n in self.samples for length in self.tokens for m in self.images]


@dataclass(frozen=True, eq=False)
class BatchMemory:
    """Bytes of a step beside what is held between steps.

    Attributes:
        pieces: what the step takes is the highest of these; shape (pieces, 2, 2, 2), bytes by samples^i tokens^j
            images^k.
        least: no batch is taken to be smaller than that in tokens and images.
        held_bytes: weights, and the optimizer's state.
        belief: what is thought of real bytes over these.
        counts_held: the belief is one of all bytes, what is held among them (CUDA); else of a step's alone.
        residual: how far pieces lie above the traces, at most, as a share.
        task_doubt: scale of what tasks differ by beyond their sizes; they are the same model's.
    """

    pieces: Floats
    least: tuple[int, int]
    held_bytes: int
    belief: RatioPrior
    counts_held: bool = False
    residual: float = 0.0
    task_doubt: float = 0.01

    def live_bytes(self, samples: ArrayLike, tokens: ArrayLike, images: ArrayLike) -> Floats:
        """Return what tensors take at most at one time; never less where a batch grows.

        Args:
            samples: of each batch, at least one.
            tokens: of its longest text.
            images: of the sample with most; may be a fraction.
        """
        n = np.maximum(1.0, np.asarray(samples, np.float64))
        length, m = (
            np.maximum(float(low), np.asarray(x, np.float64))
            for low, x in zip(self.least, (tokens, images), strict=True)
        )
        return np.maximum(1.0, _highest(self.pieces, n, length, m))

    def typical_bytes(self, samples: ArrayLike, tokens: ArrayLike, images: ArrayLike) -> Floats:
        """Return what is measured as a step's peak in half of all cases, beside what is held."""
        base = self.live_bytes(samples, tokens, images) + self.belief.constant_bytes
        if not self.counts_held:
            return self.belief.median_ratio * base
        whole: Floats = self.belief.median_ratio * (base + self.held_bytes) - self.held_bytes
        return np.maximum(1.0, whole)

    def own_scale(self, typical_bytes: float) -> float:
        """Return the scale of what one batch has to itself, as a share of such bytes."""
        constant = self.belief.constant_scale_bytes / (typical_bytes + 4 * self.belief.constant_scale_bytes)
        in_bytes = min(0.05, self.belief.own_bytes / typical_bytes)
        missed = log1p(self.residual) / student4(UPPER)  # at that quantile no more than the trace they lie above most
        return max(hypot(self.belief.own, self.belief.local, constant, in_bytes), missed)


def interpolated(grid: Grid, phases: Mapping[PaddedShape, Mapping[str, float]]) -> tuple[Floats, float]:
    """Return the pieces of traced steps, and how far they lie above the traces at most, as a share.

    Args:
        grid: what was traced.
        phases: for each of its points, the peak bytes of every phase beside what is held.
    """
    names = sorted({name for peaks in phases.values() for name in peaks})
    found = []
    for name in names:
        table = _table(grid, {shape: peaks.get(name, 0.0) for shape, peaks in phases.items()})
        for (n, by_n), (s, by_s), (m, by_m) in product(*map(_cells, (grid.samples, grid.tokens, grid.images))):
            found.append(np.einsum("ai,bj,ck,ijk->abc", by_n, by_s, by_m, table[np.ix_(n, s, m)]))
    pieces = np.unique(np.round(np.stack(found), 4), axis=0)
    peaks = np.array([max(phases[shape].values()) for shape in grid.shapes()])
    highest = _highest(pieces, *np.array(grid.shapes(), np.float64).T)
    return pieces, max(0.0, float((highest / np.maximum(1.0, peaks)).max()) - 1)


def _table(grid: Grid, peaks: Mapping[PaddedShape, float]) -> Floats:
    """Return peaks over the grid, none of which falls where a batch grows."""
    shape = len(grid.samples), len(grid.tokens), len(grid.images)
    table = np.array([peaks[point] for point in grid.shapes()]).reshape(shape)
    for axis in range(3):
        table = np.maximum.accumulate(table, axis=axis)
    return table


def _cells(knots: tuple[int, ...]) -> list[tuple[list[int], Floats]]:
    """Return for each cell of an axis its knots' places, and what makes a constant and a slope of values there."""
    if len(knots) == 1:
        return [([0], np.array([[1.0], [0.0]]))]
    return [
        ([place, place + 1], np.array([[high, -low], [-1.0, 1.0]]) / (high - low))
        for place, (low, high) in enumerate(pairwise(knots))
    ]


def _highest(pieces: Floats, n: Floats, s: Floats, m: Floats) -> Floats:
    highest = np.full(np.broadcast_shapes(n.shape, s.shape, m.shape), -np.inf)
    # By hand, in this form: numpy's polyval3d takes six times as long, and whole epochs are priced by it.
    for (alone, alone_by_token), (each, each_by_token) in pieces.tolist():
        constant = alone[0] + alone[1] * m + s * (alone_by_token[0] + alone_by_token[1] * m)
        slope = each[0] + each[1] * m + s * (each_by_token[0] + each_by_token[1] * m)
        np.maximum(highest, constant + n * slope, out=highest)
    return highest
