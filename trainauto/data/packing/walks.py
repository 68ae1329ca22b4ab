"""Where batches end, given how far a batch that begins at each place may reach.

All functions take ``reaches``: for each place of an order, where the largest batch that begins there ends. It never
falls, since any part of a batch that fits also fits.
"""

from collections.abc import Iterator

import numpy as np

from trainauto.data.packing.sizes import IntArray

PATHS = 8
"""Divisions that :func:`ends_with_less_padding` follows from either end."""

MOST_IMPROVED = 128
"""Batches up to which divisions are improved: 15 us each, and the more there are, the less they pad anyway."""


def ends_from_front(reaches: IntArray) -> IntArray:
    """Return where batches end that are filled one after the other from the first place on.

    Each ends as late as it can: by induction, the k-th batch of no other division ends later. None has fewer batches.
    """

    def walk() -> Iterator[int]:
        place, last = 0, len(reaches)
        while place < last:
            place = reaches.item(place)
            yield place

    return np.fromiter(walk(), np.int64)


def earliest_begins(reaches: IntArray) -> IntArray:
    """Return for each end, from 0 to all samples, the first place from which a batch reaches it."""
    # As many places reach less far as the number of the first that does not.
    not_reaching = np.cumsum(np.bincount(reaches, minlength=len(reaches)))
    return np.concatenate([np.zeros(1, np.int64), not_reaching[: len(reaches)]])


def ends_from_back(begins_at: IntArray) -> IntArray:
    """Return where batches end that are filled from the last place on: as few, and each begins as early as it can.

    Args:
        begins_at: what :func:`earliest_begins` returns.
    """

    def walk() -> Iterator[int]:
        place = len(begins_at) - 1
        while place > 0:
            yield place
            place = begins_at.item(place)

    return np.fromiter(walk(), np.int64)[::-1]


def padded_tokens(lengths: IntArray, ends: IntArray) -> int:
    """Return the tokens of batches that are padded to their first sample, the longest."""
    counts = np.diff(ends, prepend=0)
    return int((counts * lengths[ends - counts]).sum())


def ends_with_less_padding(lengths: IntArray, reaches: IntArray, begins_at: IntArray) -> IntArray:
    """Return where the fewest batches end that pad no more than if filled from either end, and mostly less.

    Every division into the fewest batches ends its k-th one no earlier than if filled from the back and no later than
    if filled from the front. Of the ends in between, a few are looked at: where divisions pass that begin there and are
    filled from the front or from the back, and the nearest place before at which the length changes. Dynamic
    programming takes the best of all ways through them. On lognormal lengths in 5 to 112 batches, that pads 0.3 to
    2.5 % more than an exact search on average, 4.4 % at worst; the better filling pads 9 to 26 % more.

    Args:
        lengths: of the samples, from the longest on.
        reaches: how far batches may reach.
        begins_at: what :func:`earliest_begins` returns.
    """
    early, late = ends_from_back(begins_at), ends_from_front(reaches)
    batches = len(late)
    if not 2 <= batches <= MOST_IMPROVED:
        return min(early, late, key=lambda ends: padded_tokens(lengths, ends))
    ends = _ends_to_choose_from(lengths, reaches, begins_at, early, late)
    begins, following = ends[:-1, :, None], ends[1:, None, :]
    allowed = (begins < following) & (following <= reaches[begins])
    padded = np.where(allowed, (following - begins) * lengths[begins], _NEVER)  # (batch, its begin, its end)
    least = [ends[0] * lengths[0]]
    for to_next in padded:
        least.append(np.minimum.reduce(to_next + least[-1][:, None], axis=0))
    column, path = 0, [len(lengths)]
    for batch in range(batches - 2, -1, -1):
        column = (padded[batch, :, column] + least[batch]).argmin()
        path.append(ends.item(batch, column))
    return np.array(path[::-1])


_NEVER = 1 << 52
"""More tokens than any packing has, and few enough to be added a thousand times."""


def _ends_to_choose_from(
    lengths: IntArray, reaches: IntArray, begins_at: IntArray, early: IntArray, late: IntArray
) -> IntArray:
    """Return for each batch some ends between its earliest and its latest, shape (batches, 4 * PATHS), unsorted."""
    batches, last = len(late), len(reaches)
    spread = np.arange(PATHS)
    ends = np.empty((batches, 4 * PATHS), np.int64)
    from_front, from_back = ends[:, :PATHS], ends[:, PATHS : 2 * PATHS]
    from_front[0] = early[0] + (late[0] - early[0]) * spread // (PATHS - 1)
    from_back[-2] = early[-2] + (late[-2] - early[-2]) * spread // (PATHS - 1)
    for batch in range(1, batches - 1):
        from_front[batch] = reaches[from_front[batch - 1]]
        from_back[-2 - batch] = begins_at[from_back[-1 - batch]]
    run_begins = np.maximum.accumulate(np.where(np.diff(lengths, prepend=-1) != 0, np.arange(last), 0))
    ends[:-1, 2 * PATHS :] = np.maximum(run_begins[ends[:-1, : 2 * PATHS]], early[:-1, None])
    ends[-1] = last
    return ends
