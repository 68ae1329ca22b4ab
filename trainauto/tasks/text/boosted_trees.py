"""Boosted decision trees as plain arrays, evaluated by numpy: what scikit-learn grew, without scikit-learn.

Scores are sums in fixed point: whole numbers, the same in any order of adding and on every platform.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainauto.tasks.text.stored_arrays import Numbers

FRACTION_BITS = 52
"""Of a score. Its whole part may then reach 2 ** 11, far above any log-odds, and rounding is below that of a float."""

Floats = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Trees whose leaves add up to a score.

    Attributes:
        roots: first node of each tree, shape (trees,).
        features: which feature a node compares, shape (nodes,).
        thresholds: what it is compared with, shape (nodes,).
        children: where it goes on at most the threshold, and above, shape (nodes, 2); a leaf goes on to itself.
        values: what a leaf adds, shape (nodes,); in fixed point, as are all scores.
        baseline: what the sum begins with.
        depth: most comparisons from a root to a leaf.
    """

    roots: IntArray
    features: IntArray
    thresholds: Floats
    children: IntArray
    values: IntArray
    baseline: int
    depth: int

    def scores(self, features: Floats) -> IntArray:
        """Return the score of every column.

        Args:
            features: shape (features, columns).
        """
        columns = features.shape[1]
        flat, column = features.reshape(-1), np.arange(columns)
        first_column = self.features * columns
        children = self.children.reshape(-1)
        node = np.repeat(self.roots[:, None], columns, axis=1)
        for _ in range(self.depth):
            above = flat.take(first_column.take(node) + column) > self.thresholds.take(node)
            node = children.take(2 * node + above)
        total: IntArray = self.baseline + self.values.take(node).sum(axis=0)
        return total

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what a file holds."""
        return {
            "roots": self.roots,
            "features": self.features.astype(np.int16),
            "thresholds": self.thresholds,
            "children": self.children.astype(np.int32),
            "values": self.values,
            "baseline": np.array(self.baseline, np.int64),
            "depth": np.array(self.depth, np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "BoostedTrees":
        """Return the trees of a file.

        Raises:
            KeyError: an array is missing.
            ValueError: arrays do not belong together.
        """
        whole, real = Numbers("i", 1), Numbers("f", 1)
        trees = cls(
            roots=whole.of(arrays, "roots"),
            features=whole.of(arrays, "features"),
            thresholds=real.of(arrays, "thresholds"),
            children=Numbers("i", 2).of(arrays, "children"),
            values=whole.of(arrays, "values"),
            baseline=int(Numbers("i", 0).of(arrays, "baseline")),
            depth=int(Numbers("i", 0, least=0).of(arrays, "depth")),
        )
        nodes = len(trees.values)
        same = trees.features.shape == trees.thresholds.shape == (nodes,) and trees.children.shape == (nodes, 2)
        places = np.concatenate([trees.roots, trees.children.reshape(-1)])
        if not (same and len(trees.roots) and ((places >= 0) & (places < nodes)).all() and trees.features.min() >= 0):
            raise ValueError("the arrays of the trees do not belong together")
        if not trees._end_in_leaves():
            raise ValueError("not every way through the trees ends in a leaf")
        if np.abs(trees.values.astype(np.float64)).max() * len(trees.roots) + abs(trees.baseline) >= 2.0**62:
            raise ValueError("scores of the trees do not fit whole numbers of 64 bits")
        return trees

    def _end_in_leaves(self) -> bool:
        """Return whether all ways from the roots end in leaves, after as many comparisons as there are at most."""
        own = np.arange(len(self.values))
        reached = self.roots
        if self.depth > len(own):
            return False
        for _ in range(self.depth):
            reached = np.unique(self.children[reached])
        return bool((self.children[reached] == own[reached, None]).all())


def in_fixed_point(values: Floats) -> IntArray:
    """Return numbers as scores have them."""
    return np.rint(np.ldexp(np.asarray(values, np.float64), FRACTION_BITS)).astype(np.int64)


def from_fixed_point(scores: IntArray) -> Floats:
    """Return scores as numbers."""
    numbers: Floats = np.ldexp(np.asarray(scores).astype(np.float64), -FRACTION_BITS)
    return numbers
