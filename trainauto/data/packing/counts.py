"""How many samples fit a batch that begins at each place of an order that falls in length."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trainauto.data.packing.costs import BatchCost
from trainauto.data.packing.sizes import IntArray, SampleSizes

_COARSER = 8
"""Every so-manieth place is decided before those between, which lie between its answer and the next one's."""

Fits = Callable[[IntArray, IntArray], NDArray[np.bool_]]
"""Says for counts, and the places they begin at, whether they fit; where a count does, smaller ones do."""


def fitting_counts(sizes: SampleSizes, limits: IntArray, cost: BatchCost, bound: int, most: int) -> IntArray:
    """Return how many samples from each place on fit one batch; one is taken to fit.

    Args:
        sizes: of the samples in their order, in each window the longest first.
        limits: where the window of each sample ends; a batch lies within one.
        cost: what batches cost.
        bound: greatest cost of a batch.
        most: most samples of a batch.
    """
    tokens, places = sizes.tokens, np.arange(len(sizes))
    if sizes.images is None:
        counts: IntArray = np.minimum(_counts_by_length(tokens, cost, bound, most), limits - places)
        return counts
    before = np.concatenate([[0], np.cumsum(sizes.images)])

    def fits(tried: IntArray, places: IntArray) -> NDArray[np.bool_]:
        ends = np.minimum(places + tried, limits[places])
        costs = cost.cost(tried, tokens[places], before[ends] - before[places])
        return np.asarray((costs <= bound) & (ends == places + tried))

    return _counts_at(places, fits, most)


def largest_counts(fits: Fits, least: IntArray, most: IntArray) -> IntArray:
    """Return the largest count that fits, between two limits at each place; the lower one is taken to fit.

    Counts are doubled while they fit, and bisected then. Costs are never asked for much more than what fits, so that
    whole numbers of 64 bits do not overflow.
    """
    fitting, limit = least.copy(), most.copy()
    undecided = np.flatnonzero(fitting < limit)
    while len(undecided):
        low, high = fitting[undecided], limit[undecided]
        tried = np.minimum(2 * low, (low + high + 1) // 2)
        does_fit = fits(tried, undecided)
        fitting[undecided] = low = np.where(does_fit, tried, low)
        limit[undecided] = high = np.where(does_fit, high, tried - 1)
        undecided = undecided[low < high]
    return fitting


def _counts_by_length(tokens: IntArray, cost: BatchCost, bound: int, most: int) -> IntArray:
    """Without images, as many fit wherever the longest has the same length."""
    begins = np.flatnonzero(np.diff(tokens, prepend=-1))
    lengths, none = tokens[begins], np.zeros(1, np.int64)

    def fits(counts: IntArray, runs: IntArray) -> NDArray[np.bool_]:
        return np.asarray(cost.cost(counts, lengths[runs], none) <= bound)

    counts = largest_counts(fits, np.ones_like(lengths), np.full_like(lengths, most))
    return np.repeat(counts, np.diff(begins, append=len(tokens)))


def _counts_at(places: IntArray, fits: Fits, most: int) -> IntArray:
    """Return counts at rising places, of batches none of which ends before one that begins earlier."""
    if len(places) <= _COARSER:
        ones = np.ones_like(places)
        return largest_counts(lambda counts, chosen: fits(counts, places[chosen]), ones, most * ones)
    coarse = places[::_COARSER]
    ends = coarse + _counts_at(coarse, fits, most)
    least = np.repeat(ends, _COARSER)[: len(places)] - places
    greatest = np.repeat(np.append(ends[1:], places[-1] + most), _COARSER)[: len(places)] - places
    return largest_counts(
        lambda counts, chosen: fits(counts, places[chosen]), np.maximum(least, 1), np.minimum(greatest, most)
    )
