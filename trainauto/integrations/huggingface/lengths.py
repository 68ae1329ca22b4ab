"""How long the samples of a dataset are, and orders that go by it."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainauto.core.errors import InputError
from trainauto.data.sampler import ShuffledStream

LOOKED_AT = 4096
"""Samples whose length is looked at where only the longest is wanted; a length column says it of all."""

COMPARED = 16
"""Rows by which a resume tells whether the dataset is that of the checkpoint."""

WINDOW = 50
"""Batches whose samples are sorted together where batches are to be of similar length; transformers' own number."""


def length_column(dataset: Any, column: str) -> NDArray[np.int64] | None:
    """Return the lengths that a dataset has a column of; ``None`` without one."""
    if column not in (getattr(dataset, "column_names", None) or ()):
        return None
    return np.asarray(dataset[column], np.int64)


def lengths_of(dataset: Any, column: str, key: str) -> NDArray[np.int64]:
    """Return the tokens of every sample: of the column of lengths, else of the rows, which are all loaded once.

    Raises:
        InputError: samples have no such rows.
    """
    known = length_column(dataset, column)
    return known if known is not None else _measured(dataset, range(len(dataset)), key)


def longest_sample(dataset: Any, column: str, key: str) -> int:
    """Return the number of the longest sample as far as it can be told; of the first where samples have no rows."""
    known = length_column(dataset, column)
    if known is not None:
        return int(np.argmax(known))
    if _row(dataset[0], key) is None:
        return 0
    places = np.unique(np.linspace(0, len(dataset) - 1, LOOKED_AT).astype(int)).tolist()
    return int(places[int(np.argmax(_measured(dataset, places, key)))])


def checksum_of_rows(dataset: Any, key: str) -> int | None:
    """Return the checksum of a few rows from all over a dataset; ``None`` where samples have no rows of numbers.

    Rows may be drawn at random, so that another checksum is a reason to ask, and none to refuse.
    """
    checksum = 0
    for place in np.unique(np.linspace(0, len(dataset) - 1, COMPARED).astype(int)).tolist():
        row = _row(dataset[place], key)
        try:
            numbers = np.asarray(row)
        except ValueError:  # rows of rows
            return None
        if numbers.dtype.kind not in "iuf":
            return None
        checksum = zlib.crc32(np.ascontiguousarray(numbers).data, checksum)
    return checksum


def _measured(dataset: Any, places: Sequence[int], key: str) -> NDArray[np.int64]:
    lengths = np.zeros(len(places), np.int64)
    for number, place in enumerate(places):
        row = _row(dataset[place], key)
        if row is None:
            raise InputError(
                f"sample {place} has no row of '{key}' whose tokens could be counted: give the dataset a column of "
                "lengths (length_column_name), or count batches in samples"
            )
        lengths[number] = len(row)
    return lengths


def _row(sample: Any, key: str) -> Any:
    """Return the row of tokens of a sample; ``None`` where it has none."""
    row = sample.get(key) if isinstance(sample, Mapping) or hasattr(sample, "get") else None
    return row if getattr(row, "ndim", 1) == 1 and hasattr(row, "__len__") and not isinstance(row, str) else None


class SequentialStream(ShuffledStream):
    """Samples in the order of the dataset, every epoch; after a rollback in another one."""

    def arranged(self, samples: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
        """Return samples in their order, where it is not to be another one."""
        return samples if seed == self.seed else super().arranged(samples, seed, epoch)


class LengthGroupedStream(ShuffledStream):
    """Samples of similar length beside each other: shuffled, cut into windows, each sorted from the longest on.

    The very longest comes first, so that what does not fit is seen at once. Orders do not depend on batches.

    Args:
        lengths: of all samples.
        window: samples of a window.
        seed: decides order and seeds.
    """

    def __init__(self, lengths: NDArray[np.int64], window: int, seed: int) -> None:
        super().__init__(len(lengths), seed)
        self._lengths = lengths
        self._window = max(1, window)

    def arranged(self, samples: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
        """Return samples of an epoch in groups of similar length."""
        return self._grouped(super().arranged(samples, seed, epoch))

    def _grouped(self, shuffled: NDArray[np.int64]) -> NDArray[np.int64]:
        windows = [shuffled[start : start + self._window] for start in range(0, len(shuffled), self._window)]
        grouped = np.concatenate([window[np.argsort(-self._lengths[window], kind="stable")] for window in windows])
        longest = int(np.argmax(self._lengths[grouped]))
        grouped[[0, longest]] = grouped[[longest, 0]]
        return grouped


def grouping_window(samples: int, batch_size: int) -> int:
    """Return how many samples are sorted together: at least four windows an epoch."""
    return max(1, min(samples // (batch_size * 4), WINDOW)) * batch_size
