"""As many batches for every rank."""

import heapq

import numpy as np

from trainauto.core.errors import InputError, Problem
from trainauto.data.packing.sizes import IntArray


class TooFewSamplesError(InputError):
    """Samples do not give every rank as many batches."""

    def __init__(self, samples: int, batches: int, world_size: int) -> None:
        super().__init__(
            Problem(
                f"{samples} samples in {batches} batches cannot be cut into as many for each of {world_size} ranks",
                advice="Use fewer ranks, a number that divides the samples, or a bound that allows larger batches.",
            )
        )


def divided_among(ends: IntArray, world_size: int) -> IntArray:
    """Return where batches end when so many have been cut in halves that the ranks divide them.

    Those with most samples are cut, the earliest of equal ones. What is left after some rounds is not to be divided
    again: cuts can lie elsewhere then, where a batch had been cut more than once.

    Args:
        ends: where batches end.
        world_size: number of ranks; batch ``i`` is for rank ``i % world_size``.

    Raises:
        TooFewSamplesError: no batch is left to be cut.
    """
    cuts = -len(ends) % world_size
    counts = np.diff(ends, prepend=0)
    largest = np.argsort(-counts, kind="stable")[:cuts]
    pieces = [(-int(counts[i]), int(ends[i] - counts[i])) for i in largest]
    heapq.heapify(pieces)
    added = []
    for _ in range(cuts):
        count, start = -pieces[0][0], pieces[0][1]
        if count < 2:
            raise TooFewSamplesError(int(ends[-1]), len(ends), world_size)
        half = -(-count // 2)
        heapq.heapreplace(pieces, (-half, start))
        heapq.heappush(pieces, (half - count, start + half))
        added.append(start + half)
    return np.sort(np.concatenate([ends, np.asarray(added, np.int64)]))
