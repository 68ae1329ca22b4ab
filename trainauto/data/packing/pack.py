"""Sizes in, batches out."""

from collections.abc import Sequence

import numpy as np

from trainauto.data.packing.costs import BatchCost
from trainauto.data.packing.packing import Packing
from trainauto.data.packing.rules import CandidateCounts, FewestBatches, PackingRule
from trainauto.data.packing.sizes import IntArray, SampleSizes


def pack(sizes: SampleSizes, cost: BatchCost, bound: int, *, most_samples: int | None = None) -> Packing:
    """Return the fewest batches within a bound, from the longest samples to the shortest.

    Batches hold neighbours by length. Where cost does not depend on images, no packing of any kind has fewer. Of those
    with as few, one that pads no more than filling from either end does is taken.

    Args:
        sizes: of all samples.
        cost: what batches cost.
        bound: greatest cost of a batch, in the cost's unit.
        most_samples: most samples of a batch; None for as many as fit.

    Raises:
        SampleTooLargeError: a sample does not fit alone.
    """
    return pack_by(FewestBatches(cost, bound, most_samples), sizes)


def pack_candidates(
    sizes: SampleSizes, cost: BatchCost, bound: int, candidates: Sequence[int], *, base: int | None = None
) -> Packing:
    """Return batches of given counts, from the longest samples to the shortest.

    The first batch holds ``base`` samples; then at every point the largest candidate that the bound allows is taken, or
    ``base`` where none is. The last batch holds what is left.

    Args:
        sizes: of all samples.
        cost: what batches cost.
        bound: greatest cost of a batch, in the cost's unit; what the first one costs, as a rule.
        candidates: counts to choose from, ascending.
        base: samples of the first batch; None for the smallest candidate.
    """
    counts = tuple(int(count) for count in candidates)
    return pack_by(CandidateCounts(cost, bound, counts, base or min(counts, default=1)), sizes)


def pack_by(rule: PackingRule, sizes: SampleSizes) -> Packing:
    """Return the batches that a rule makes of all samples, from the longest to the shortest.

    Raises:
        SampleTooLargeError: a sample does not fit alone.
    """
    order = sizes.longest_first()
    return pack_ordered(rule, sizes, order, np.full(len(order), len(order)))


def pack_ordered(rule: PackingRule, sizes: SampleSizes, order: IntArray, limits: IntArray) -> Packing:
    """Return the batches that a rule makes of samples in windows, each of them sorted already.

    Args:
        rule: how many samples a batch holds.
        sizes: of all samples.
        order: indices of the samples, in each window from the longest to the shortest.
        limits: where in ``order`` the window of each sample ends.

    Raises:
        SampleTooLargeError: a sample does not fit alone.
    """
    rule.check(sizes)
    return Packing(order, rule.ends(sizes.take(order), limits))
