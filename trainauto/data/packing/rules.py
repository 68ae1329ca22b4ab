"""How many samples a batch holds, given what it costs."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, Protocol

import numpy as np

from trainauto.core.errors import InputError, Problem
from trainauto.data.packing.costs import BatchCost
from trainauto.data.packing.counts import fitting_counts
from trainauto.data.packing.sizes import IntArray, SampleSizes
from trainauto.data.packing.walks import earliest_begins, ends_from_front, ends_with_less_padding


class SampleTooLargeError(InputError):
    """A sample does not fit a batch even alone.

    Attributes:
        index: which sample; of several the one that costs most.
        size: its tokens and images.
        cost: what it costs alone.
        bound: greatest cost of a batch.
        unit: what cost and bound are in.
    """

    def __init__(self, index: int, size: tuple[int, int], cost: int, bound: int, unit: str) -> None:
        self.index, self.size, self.cost, self.bound, self.unit = index, size, cost, bound, unit
        images = f" and {size[1]} images" if size[1] else ""
        super().__init__(
            Problem(
                f"sample {index} ({size[0]} tokens{images}) costs {cost} {unit} alone, more than a batch's {bound}",
                advice="Truncate or leave out such samples, or raise the bound.",
            )
        )


class PackingRule(Protocol):
    """Says where batches end in an order that falls in length."""

    @property
    def cost(self) -> BatchCost:
        """What batches cost."""

    @property
    def bound(self) -> int:
        """Greatest cost of a batch."""

    def check(self, sizes: SampleSizes) -> None:
        """Look whether every sample fits a batch.

        Raises:
            SampleTooLargeError: one does not.
        """

    def ends(self, ordered: SampleSizes, limits: IntArray) -> IntArray:
        """Return where batches end.

        Args:
            ordered: samples, in each window from the longest to the shortest.
            limits: where the window of each sample ends; a batch lies within one.
        """

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that say what the rule is, costs aside, for a checkpoint."""


@dataclass(frozen=True)
class FewestBatches:
    """Batches as large as the bound allows: no other packing of neighbours by length has fewer.

    Attributes:
        cost: what batches cost.
        bound: greatest cost of a batch, in the cost's unit.
        most_samples: most samples of a batch; None for as many as fit.
    """

    cost: BatchCost
    bound: int
    most_samples: int | None = None

    def __post_init__(self) -> None:
        if self.most_samples is not None and self.most_samples < 1:
            raise InputError(f"a batch cannot hold at most {self.most_samples} samples")

    def check(self, sizes: SampleSizes) -> None:
        """Look whether every sample fits alone.

        Raises:
            SampleTooLargeError: one does not.
        """
        images = np.zeros(1, np.int64) if sizes.images is None else sizes.images
        alone = np.broadcast_to(self.cost.cost(np.ones(1, np.int64), sizes.tokens, images), sizes.tokens.shape)
        if alone.size and int(alone.max()) > self.bound:
            index = int(np.argmax(alone))
            size = int(sizes.tokens[index]), 0 if sizes.images is None else int(sizes.images[index])
            raise SampleTooLargeError(index, size, int(alone[index]), self.bound, self.cost.unit)

    def ends(self, ordered: SampleSizes, limits: IntArray) -> IntArray:
        """Return where the fewest batches end; of those looked at, ones that pad least."""
        most = min(self.most_samples or len(ordered), len(ordered))
        reaches = np.arange(len(ordered)) + fitting_counts(ordered, limits, self.cost, self.bound, most)
        return ends_with_less_padding(ordered.tokens, reaches, earliest_begins(reaches))

    def to_dict(self) -> dict[str, Any]:
        """Return bound, unit and limit."""
        return {"bound": int(self.bound), "unit": self.cost.unit, "most_samples": self.most_samples}


@dataclass(frozen=True)
class CandidateCounts:
    """Batches of given counts: at every point the largest that the bound allows.

    The first batch always holds ``base`` samples, and so does one of which no candidate fits: what it costs is what the
    bound was made of. A window ends with what is left, where that fits together.

    Attributes:
        cost: what batches cost.
        bound: greatest cost of a batch of more than the base.
        candidates: counts in ascending order; see :func:`candidate_counts`.
        base: samples of the first batch.
    """

    cost: BatchCost
    bound: int
    candidates: tuple[int, ...]
    base: int

    def __post_init__(self) -> None:
        if self.base < 1 or not self.candidates or min(self.candidates) < 1:
            raise InputError(f"batches hold 1 sample at least, got {self.base} and candidates {self.candidates}")
        if list(self.candidates) != sorted(self.candidates):
            raise InputError(f"candidates must ascend, got {self.candidates}")

    def check(self, sizes: SampleSizes) -> None:
        """Let everything pass: the base is taken to fit whatever it holds, since the longest come first."""

    def ends(self, ordered: SampleSizes, limits: IntArray) -> IntArray:
        """Return where batches of the largest admitted candidates end."""
        if not len(ordered):
            return np.zeros(0, np.int64)
        candidates = np.asarray(self.candidates)
        places = np.arange(len(ordered))
        fit = fitting_counts(ordered, limits, self.cost, self.bound, int(candidates[-1]))
        admitted = np.searchsorted(candidates, fit, side="right")
        counts = np.where(admitted > 0, candidates[admitted - 1], self.base)
        ends = np.where(places + fit == limits, limits, np.minimum(places + counts, limits))
        ends[0] = min(self.base, int(limits[0]))
        return ends_from_front(ends)

    def to_dict(self) -> dict[str, Any]:
        """Return bound, unit and counts."""
        return {
            "bound": int(self.bound),
            "unit": self.cost.unit,
            "candidates": list(self.candidates),
            "base": self.base,
        }


def candidate_counts(
    batch_size: int, start_range: float = 1.0, end_range: float = 6.0, steps: int = 50, *, friendly: bool = False
) -> tuple[int, ...]:
    """Return the batch sizes to choose from, ascending: evenly spread multiples of ``batch_size``, rounded up.

    Computed as fractions of the decimals given, so that rounding is the same everywhere.

    Args:
        batch_size: samples of the first batch.
        start_range: smallest multiple.
        end_range: largest multiple.
        steps: how many sizes, before equal ones fall together.
        friendly: only 2^n and 3 * 2^n, all of them that lie in the range; ``batch_size`` alone where none does.

    Raises:
        InputError: there is no such range.
    """
    if batch_size < 1 or steps < 1 or not 0 < start_range <= end_range < float("inf"):
        raise InputError(
            f"no batch sizes lie in {steps} steps from {start_range} to {end_range} times {batch_size} samples"
        )
    first, last = (Fraction(str(factor)) * batch_size for factor in (start_range, end_range))
    if friendly:
        powers = (2**n for n in range(ceil(last).bit_length() + 1))
        sizes = {size for power in powers for size in (power, 3 * power) if first <= size <= last}
        return tuple(sorted(sizes)) or (batch_size,)
    return tuple(sorted({ceil(first + (last - first) * step / max(1, steps - 1)) for step in range(steps)}))
