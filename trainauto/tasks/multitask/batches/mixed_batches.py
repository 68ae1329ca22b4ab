"""Samples of several kinds in batches: neighbours by size, likenesses of the whole set, or anything in between.

Pure arithmetic in one pass of O(n log n):

1. The samples of each task are shuffled and dealt out evenly over the epoch, tasks in the proportion that is wanted.
2. That order is cut into windows of some fifty batches, so that every epoch has other batches.
3. In its window, a sample stands at ``(1 - w) * fit + w * diversity``. ``fit`` is its place by size, images first, then
   tokens: neighbours have little to pad. ``diversity`` is its place within its own task: neighbours are of all tasks,
   as in the window. Both run from 0 to 1.
4. That order is cut into batches, each as large as the bound allows, and the batches of a window are shuffled.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainauto.core.shuffling import shuffled_order
from trainauto.data.packing import BatchCost, IntArray, Packing, SampleSizes
from trainauto.data.packing.counts import largest_counts
from trainauto.data.packing.walks import ends_from_front
from trainauto.tasks.multitask.batches.sample_cost import padded_costs
from trainauto.tasks.multitask.batches.task_shares import FloatArray

WINDOW_BATCHES = 50
"""Batches of a window, as of :class:`~trainauto.data.packing.Bucketed`: what windows cost was measured there."""

FEWEST_WINDOWS = 4
"""Of sets that have so many batches for each: with one window alone, batches of neighbours would never change."""

ORDERED_WINDOW_BATCHES = 10
"""The same where tasks are to come in other shares than they have: the shares hold from window to window."""

LEAST_SHARE = 1e-9
"""A task without a share comes behind all others, a million samples of them."""


@dataclass(frozen=True, eq=False)
class BatchMixing:
    """How samples become batches.

    Attributes:
        cost: of batches; its images are those of a whole batch, padding included.
        most_samples: most samples of a batch; ``None`` for as many as fit.
        task_diversity_weight: 0 packs neighbours by size, 1 has every batch hold tasks as the whole set does.
        shares: of each task, while it has samples left; ``None`` for those of the set.
        shuffles: whether epochs differ.
    """

    cost: BatchCost
    most_samples: int | None = None
    task_diversity_weight: float = 0.5
    shares: FloatArray | None = None
    shuffles: bool = True

    def batches(self, sizes: SampleSizes, task_ids: IntArray, bound: int, seed: int, epoch: int) -> Packing:
        """Return the batches of an epoch, or of what is left of it; every sample fits alone.

        Args:
            sizes: of the samples.
            task_ids: number of each one's task.
            bound: greatest cost of a batch.
            seed: decides everything random.
            epoch: 0-based.
        """
        samples = len(sizes)
        if not samples:
            return Packing(np.zeros(0, np.int64), np.zeros(0, np.int64))
        dealt = self._dealt(task_ids, seed, epoch)
        ends = np.arange(1, (windows := self._windows(sizes, bound)) + 1) * samples // windows
        window_of_place = np.repeat(np.arange(windows), np.diff(ends, prepend=0))
        fit = _places_by_size(sizes.take(dealt), window_of_place)
        diversity = _places_within(window_of_place * (int(task_ids.max()) + 1) + task_ids[dealt])
        weight = self.task_diversity_weight
        order = dealt[np.lexsort(((1 - weight) * fit + weight * diversity, window_of_place))]
        packing = Packing(order, ends_from_front(self._reaches(sizes.take(order), bound)))
        if not self.shuffles:
            return packing
        random = shuffled_order(len(packing), seed, 2 * epoch + 1)
        return packing.reordered(np.lexsort((random, window_of_place[packing.starts])))

    def costs_alone(self, sizes: SampleSizes) -> IntArray:
        """Return what each sample costs in a batch of its own, shape (samples,)."""
        costs = padded_costs(self.cost, np.ones_like(sizes.tokens), sizes.tokens, _images(sizes))
        return np.broadcast_to(costs, sizes.tokens.shape)

    def _dealt(self, task_ids: IntArray, seed: int, epoch: int) -> IntArray:
        """Return all samples in an order in which every stretch holds the tasks in the same proportion.

        The k-th sample of a task comes at the time (k + 1/2) / share, as evenly spread as can be; those of a task that
        has more than its share are what is left at the end.
        """
        samples = len(task_ids)
        shuffled = shuffled_order(samples, seed, 2 * epoch) if self.shuffles else np.arange(samples)
        shares = np.bincount(task_ids) / samples if self.shares is None else np.maximum(self.shares, LEAST_SHARE)
        of_tasks = task_ids[shuffled]
        times = (_numbers_within(of_tasks) + 0.5) / shares[of_tasks]
        return np.asarray(shuffled[np.argsort(times, kind="stable")])

    def _windows(self, sizes: SampleSizes, bound: int) -> int:
        """Return how many windows an epoch is cut into, by how many average samples a batch holds."""
        tokens, images = (np.ceil([values.mean()]).astype(np.int64) for values in (sizes.tokens, _images(sizes)))

        def fits(counts: IntArray, _places: IntArray) -> NDArray[np.bool_]:
            return np.asarray(padded_costs(self.cost, counts, tokens, images) <= bound)

        most = min(self.most_samples or len(sizes), len(sizes))
        batch = int(largest_counts(fits, np.ones(1, np.int64), np.array([most]))[0])
        batches = WINDOW_BATCHES if self.shares is None else ORDERED_WINDOW_BATCHES
        return max(1, -(-len(sizes) // (batches * batch)), min(FEWEST_WINDOWS, len(sizes) // (FEWEST_WINDOWS * batch)))

    def _reaches(self, ordered: SampleSizes, bound: int) -> IntArray:
        """Return for each place where the largest batch that begins there ends."""
        tokens, images = _RangeMaxima(ordered.tokens), _RangeMaxima(_images(ordered))

        def fits(counts: IntArray, places: IntArray) -> NDArray[np.bool_]:
            longest, most_images = tokens.of(places, counts), images.of(places, counts)
            return np.asarray(padded_costs(self.cost, counts, longest, most_images) <= bound)

        places = np.arange(len(ordered))
        most = np.minimum(self.most_samples or len(ordered), len(ordered) - places)
        return places + largest_counts(fits, np.ones_like(places), most)


class _RangeMaxima:
    """Maxima of any stretches of an array: those of stretches of 1, 2, 4, 8... values, made as far as they are needed.

    Args:
        values: shape (n,).
    """

    def __init__(self, values: IntArray) -> None:
        self._levels = values[None]

    def of(self, starts: IntArray, counts: IntArray) -> IntArray:
        """Return the greatest of so many values from each place on; stretches lie within the array."""
        levels = np.frexp(counts.astype(np.float64))[1] - 1  # the exponent: of counts below 2**53 it is exact
        while len(self._levels) <= levels.max(initial=0):
            self._double()
        last = starts + counts - (np.ones_like(counts) << levels)
        maxima: IntArray = np.maximum(self._levels[levels, starts], self._levels[levels, last])
        return maxima

    def _double(self) -> None:
        below, half = self._levels[-1], 1 << (len(self._levels) - 1)
        level = below.copy()
        level[:-half] = np.maximum(below[:-half], below[half:])
        self._levels = np.concatenate([self._levels, level[None]])


def _places_by_size(sizes: SampleSizes, windows: IntArray) -> FloatArray:
    """Return where samples stand in their window by images and then tokens, from 0 to 1.

    Tokens rise and fall in turns from one number of images to the next, and sizes do from window to window: at every
    border neighbours are alike, whatever batch lies across it.
    """
    groups = np.unique(_images(sizes), return_inverse=True)[1]
    tokens = np.where(groups % 2, -sizes.tokens, sizes.tokens)
    by_size = np.lexsort((tokens, groups, windows))
    places = np.empty(len(windows), np.float64)
    places[by_size] = _places_within(windows[by_size])
    return np.where(windows % 2, 1 - places, places)


def _places_within(groups: IntArray) -> FloatArray:
    """Return where each stands among those of its group, in the order given, from 0 to 1."""
    return np.asarray((_numbers_within(groups) + 0.5) / np.bincount(groups)[groups])


def _numbers_within(groups: IntArray) -> IntArray:
    """Return how many of the same group stand before each."""
    by_group = np.argsort(groups, kind="stable")
    counts = np.bincount(groups)
    numbers = np.empty_like(groups)
    numbers[by_group] = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers


def _images(sizes: SampleSizes) -> IntArray:
    return np.zeros(len(sizes), np.int64) if sizes.images is None else sizes.images
