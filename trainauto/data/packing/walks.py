"""Where batches end, given how far a batch that begins at each place may reach.

All functions take ``reaches``: for each place of an order, where the largest batch that begins there ends. It never
falls, since any part of a batch that fits also fits.
"""

from collections.abc import Iterator

import numpy as np

from trainauto.data.packing.sizes import IntArray


def ends_from_front(reaches: IntArray) -> IntArray:
    """Return where batches end that are filled one after the other from the first place on.

    Each ends as late as it can: by induction, the k-th batch of no other division ends later. So none has fewer batches.
    """

    def walk() -> Iterator[int]:
        place, last = 0, len(reaches)
        while place < last:
            place = reaches.item(place)
            yield place

    return np.fromiter(walk(), np.int64)


def ends_from_back(reaches: IntArray) -> IntArray:
    """Return where batches end that are filled from the last place on: as few, and each begins as early as it can."""
    # The first place from which a batch reaches each end.
    begins_at = np.searchsorted(reaches, np.arange(len(reaches) + 1))

    def walk() -> Iterator[int]:
        place = len(reaches)
        while place > 0:
            yield place
            place = begins_at.item(place)

    return np.fromiter(walk(), np.int64)[::-1]
