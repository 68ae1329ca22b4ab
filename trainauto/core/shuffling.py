"""Orders that a seed decides, the same on every platform and under every version of numpy."""

import numpy as np
from numpy.typing import NDArray

from trainauto.core.hashing import splitmix64


def shuffled_order(samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return an order of ``samples`` things that the seed and the epoch decide, shape (samples,).

    They are sorted by scrambled numbers: a generator's own permutation may change between versions of a library.
    """
    start = np.uint64(splitmix64(splitmix64(seed) ^ splitmix64(~epoch & 0xFFFFFFFFFFFFFFFF)))
    keys = _splitmix64_array(np.arange(samples, dtype=np.uint64) ^ start)
    return np.argsort(keys, kind="stable").astype(np.int64)


def _splitmix64_array(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Do :func:`~trainauto.core.hashing.splitmix64` on an array (unsigned arithmetic wraps, as intended)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
