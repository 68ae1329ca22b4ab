"""In which order an epoch's batches come."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainauto.core.errors import InputError
from trainauto.core.shuffling import shuffled_order
from trainauto.data.packing.pack import pack_ordered
from trainauto.data.packing.packing import Packing
from trainauto.data.packing.rules import PackingRule
from trainauto.data.packing.sizes import SampleSizes


class BatchOrder(Protocol):
    """Makes the batches of each epoch; its ``repr`` says all of it."""

    def epoch(self, packed: Packing, sizes: SampleSizes, rule: PackingRule, seed: int, epoch: int) -> Packing:
        """Return the batches of an epoch, the same wherever and whenever they are asked for.

        Args:
            packed: all samples packed from the longest to the shortest.
            sizes: of all samples.
            rule: what they were packed by.
            seed: decides everything random.
            epoch: 0-based.
        """


@dataclass(frozen=True)
class LongestFirst:
    """From the longest samples to the shortest, every epoch the same: what does not fit shows in the first batch."""

    def epoch(self, packed: Packing, sizes: SampleSizes, rule: PackingRule, seed: int, epoch: int) -> Packing:
        """Return the batches as they are packed."""
        del sizes, rule, seed, epoch
        return packed


@dataclass(frozen=True)
class ShuffledBatches:
    """Batches of neighbours by length, in another order each epoch.

    Attributes:
        keep_first: so many of the longest come first all the same, so that what does not fit shows early.
    """

    keep_first: int = 3

    def __post_init__(self) -> None:
        if self.keep_first < 0:
            raise InputError(f"the first {self.keep_first} batches cannot be kept")

    def epoch(self, packed: Packing, sizes: SampleSizes, rule: PackingRule, seed: int, epoch: int) -> Packing:
        """Return the packed batches, all but the first few shuffled."""
        del sizes, rule
        kept = min(self.keep_first, len(packed))
        return packed.reordered(
            np.concatenate([np.arange(kept), kept + shuffled_order(len(packed) - kept, seed, epoch)])
        )


DEFAULT_WINDOW_BATCHES = 50
"""Batches of mean size that a window has room for: docs/benchmarks/text_windows.md says what others cost."""


@dataclass(frozen=True)
class Bucketed:
    """Samples shuffled, cut into windows, each sorted and packed by itself, and all batches shuffled: for training.

    The smaller the windows, the more padding, and the less often two samples share a batch again in the next epoch.

    Attributes:
        window: most samples of a window, of which there are as few as that allows, equally large; None for
            :data:`DEFAULT_WINDOW_BATCHES` batches of mean size.
    """

    window: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise InputError(f"a window cannot hold {self.window} samples")

    def epoch(self, packed: Packing, sizes: SampleSizes, rule: PackingRule, seed: int, epoch: int) -> Packing:
        """Return the epoch's own packing."""
        samples = len(sizes)
        if not samples:
            return packed
        window = self.window or -(-samples * DEFAULT_WINDOW_BATCHES // len(packed))
        shuffled = shuffled_order(samples, seed, 2 * epoch)
        windows = -(-samples // window)
        ends = np.arange(1, windows + 1) * samples // windows
        window_of_place = np.repeat(np.arange(windows), np.diff(ends, prepend=0))
        # Stable: first all from the longest to the shortest, then by window.
        longest_first = sizes.take(shuffled).longest_first()
        order = shuffled[longest_first[np.argsort(window_of_place[longest_first], kind="stable")]]
        packing = pack_ordered(rule, sizes, order, ends[window_of_place])
        return packing.reordered(shuffled_order(len(packing), seed, 2 * epoch + 1))
