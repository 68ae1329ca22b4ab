"""How many samples fit a batch that begins at each place of an order that falls in length."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trainauto.data.packing.costs import BatchCost
from trainauto.data.packing.sizes import IntArray, SampleSizes


def largest_counts(fits: Callable[[IntArray], NDArray[np.bool_]], most: IntArray) -> IntArray:
    """Return the largest count in 1..``most`` that fits, at each place; 1 is taken to fit.

    Counts are doubled while they fit and bisected then, so that costs are never asked for more than twice of what fits:
    whole numbers of 64 bits do not overflow there.

    Args:
        fits: says for a count at each place whether it fits; where one does, so do smaller ones.
        most: upper limit at each place, at least 1.
    """
    fitting, too_many = np.ones_like(most), most + 1
    while np.any(too_many - fitting > 1):
        tried = np.minimum(2 * fitting, (fitting + too_many) // 2)
        does_fit = fits(tried)
        fitting, too_many = np.where(does_fit, tried, fitting), np.where(does_fit, too_many, tried)
    return fitting


def fitting_counts(sizes: SampleSizes, cost: BatchCost, bound: int, most: int) -> IntArray:
    """Return how many samples from each place on fit one batch; beyond the last sample come such without images.

    Args:
        sizes: of the samples in their order, the longest first.
        cost: what batches cost.
        bound: greatest cost of a batch.
        most: most samples of a batch.
    """
    if sizes.images is not None:
        return _counts_with_images(sizes.tokens, sizes.images, cost, bound, most)
    # Without images, how many fit is the same wherever the longest has one length.
    begins = np.flatnonzero(np.diff(sizes.tokens, prepend=-1))
    lengths = sizes.tokens[begins]
    none = np.zeros(1, np.int64)
    fit = largest_counts(lambda counts: cost.cost(counts, lengths, none) <= bound, np.full(len(lengths), most))
    return np.repeat(fit, np.diff(begins, append=len(sizes)))


def _counts_with_images(tokens: IntArray, images: IntArray, cost: BatchCost, bound: int, most: int) -> IntArray:
    before = np.concatenate([[0], np.cumsum(images)])
    places = np.arange(len(tokens))

    def fits(counts: IntArray) -> NDArray[np.bool_]:
        ends = np.minimum(places + counts, len(tokens))
        return np.asarray(cost.cost(counts, tokens, before[ends] - before[:-1]) <= bound)

    return largest_counts(fits, np.full(len(tokens), most))
