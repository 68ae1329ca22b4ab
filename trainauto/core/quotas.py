"""Whole numbers in proportion to shares."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def quotas(shares: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Return whole numbers in proportion to shares, with a sum of ``total``: the largest remainders round up."""
    exact = shares * total
    counts = np.floor(exact).astype(np.int64)
    up = np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]
    counts[up] += 1
    return counts


def apportioned(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Share ``total`` things out by name as ``weights`` say, as :func:`quotas` does.

    Nothing is shared out where there is no weight at all.
    """
    shares = np.array(list(weights.values()), np.float64)
    if not shares.sum() > 0:
        return {}
    return dict(zip(weights, quotas(shares / shares.sum(), total).tolist(), strict=True))
