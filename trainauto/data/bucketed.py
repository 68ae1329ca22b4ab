"""Streams of samples that differ in length: neighbours are alike, and a draw holds what fits a budget."""

import numpy as np
from numpy.typing import NDArray

from trainauto.core.plan import Plan
from trainauto.data.packing import BatchCost
from trainauto.data.sampler import ShuffledStream

LEAST_WINDOW, MOST_WINDOW, WINDOWS = 64, 1024, 8
"""Samples of a window of lengths, and how many windows an epoch is to have at least: one would sort all of it."""

FIRST_LOOK = 256
"""Samples that are looked at first to fill a draw; twice as many next, where all of them fit."""


class BucketedStream(ShuffledStream):
    """A shuffled stream in which neighbours are of similar length, so that batches of them need little padding.

    The samples of an epoch are shuffled, cut into windows, and each window is sorted by length: one rising, the next
    one falling, so that lengths never jump. Batches take any number of neighbours, whatever the plan of then.

    Args:
        lengths: of each sample.
        seed: decides order and seeds.
        window: samples of a window; larger ones need less padding, and bring the same samples together more often.
    """

    def __init__(self, lengths: NDArray[np.int64], seed: int, window: int | None = None) -> None:
        super().__init__(len(lengths), seed)
        self.lengths = lengths
        self._window = window or max(LEAST_WINDOW, min(MOST_WINDOW, len(lengths) // WINDOWS))

    def _new_order(self, epoch: int) -> NDArray[np.int64]:
        shuffled = super()._new_order(epoch)
        window = np.arange(self.samples) // self._window
        lengths = self.lengths[shuffled]
        order: NDArray[np.int64] = shuffled[np.lexsort((np.where(window % 2, -lengths, lengths), window))]
        return order


class CostBudget:
    """As many of the next samples as keep the cost of their batch within the plan's size, none beyond an epoch's end.

    Of a budget of tokens, the cost is samples times the longest. For one process: ranks would share a draw.

    Args:
        order: of the samples, with their lengths.
        cost: of batches, in the unit of the plan's size.
    """

    def __init__(self, order: BucketedStream, cost: BatchCost) -> None:
        self._order = order
        self._cost = cost

    def batch_size(self, first_sample: int, plan: Plan) -> int:
        """Return how many fit; one is taken to."""
        epoch, place = divmod(first_sample, self._order.samples)
        ahead, look = self._order.order(epoch)[place:], FIRST_LOOK
        while True:
            lengths = self._order.lengths[ahead[:look]]
            longest, counts = np.maximum.accumulate(lengths), np.arange(1, len(lengths) + 1)
            # Costs of longer and longer batches never fall: those that fit come first.
            fitting = int(np.searchsorted(self._cost.cost(counts, longest, np.zeros_like(counts)), plan.size, "right"))
            if fitting < len(lengths) or len(lengths) == len(ahead):
                return max(1, fitting)
            look *= 2
