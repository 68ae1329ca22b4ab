"""How the samples of a step are divided among the ranks of a run: a pure function, the same on every rank."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, fsum

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SampleSharding:
    """Assigns the samples of a draw to the ranks, round-robin and in the order of the stream.

    A plan's ``batch_size`` is that of the rank with the largest weight. Samples are assigned round-robin, so that the
    first so many samples of a draw are also the first ones of every rank. A draw may be cut at any place, and what is
    left of it is the rest of the stream, whatever number of ranks continues with it.

    Attributes:
        weights: batch of each rank relative to the largest, in (0, 1]; their number is that of the ranks.

    Raises:
        ValueError: there is no weight, or one lies outside of (0, 1].
    """

    weights: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not self.weights or not all(0 < weight <= 1 for weight in self.weights):
            raise ValueError(f"weights must lie in (0, 1], got {self.weights}")

    @classmethod
    def equal(cls, world_size: int) -> "SampleSharding":
        """Return the sharding by which every rank gets as many samples."""
        return cls((1.0,) * world_size)

    @classmethod
    def by_memory(cls, limits_bytes: Sequence[int]) -> "SampleSharding":
        """Return the sharding by which each rank's batch follows the memory it may use."""
        return cls(tuple(limit / max(limits_bytes) for limit in limits_bytes))

    @property
    def is_equal(self) -> bool:
        """Whether every rank gets as many samples."""
        return len(set(self.weights)) == 1

    @property
    def equivalent_ranks(self) -> float:
        """How many ranks like the one with most of a step would have as much as all of them have together."""
        return fsum(self.weights)

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return len(self.weights)

    def samples(self, batch_size: int) -> tuple[int, ...]:
        """Return the samples of each rank under a plan of this batch; every rank has one at least."""
        return _samples(self.weights, batch_size)

    def total(self, batch_size: int) -> int:
        """Return the samples of all ranks together."""
        return sum(self.samples(batch_size))

    def most_of(self, samples: int) -> int:
        """Return the least ``batch_size`` under which the ranks together hold so many samples."""
        if self.is_equal:
            return max(1, ceil(samples / self.world_size))
        # The largest weight is 1, so that no more than so many are needed.
        return bisect_left(range(1, samples + 1), samples, key=self._total) + 1

    def most_of_each(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return :meth:`most_of` for each of several numbers."""
        if self.is_equal:
            return -(-samples // self.world_size)
        most = int(samples.max(initial=1))
        return np.searchsorted(_totals(self.weights, 1 << most.bit_length()), samples, "left") + 1

    def held_by(self, samples: int) -> int:
        """Return the largest ``batch_size`` whose samples on all ranks are no more than so many; 1 at least."""
        if self.is_equal:
            return max(1, samples // self.world_size)
        return max(1, bisect_right(range(1, samples + 1), samples, key=self._total))

    def _total(self, batch_size: int) -> int:
        return sum(max(1, int(batch_size * weight)) for weight in self.weights)

    def rank_of_sample(self, batch_size: int) -> tuple[int, ...]:
        """Return the rank of each sample of a draw, in the order of the stream."""
        return _round_robin(self.samples(batch_size))

    def positions(self, batch_size: int, rank: int) -> tuple[int, ...]:
        """Return where in a draw the samples of a rank stand, from 0."""
        return _positions(self.samples(batch_size), rank)

    def places(self, batch_size: int, rank: int) -> Sequence[int]:
        """Return :meth:`positions`, of equal ranks without a list of all samples."""
        if self.is_equal:
            return range(rank, self.total(batch_size), self.world_size)
        return self.positions(batch_size, rank)

    def next_piece(self, drawn: int, most: int, given: int) -> tuple[int, ...]:
        """Return how many samples each rank trains next of a draw, under a plan that may be smaller by now.

        The rest of the draw is cut into the fewest pieces that fit every rank, as equal as possible: 9 samples under 4
        give 3, 3, 3. This also makes the pieces the same when the rest is cut after a resume. Of unequal ranks one may
        get none in a small piece.

        Args:
            drawn: ``batch_size`` of the draw.
            most: ``batch_size`` that fits the plan of now.
            given: samples of the draw, of all ranks, that were trained before.
        """
        limits = self.samples(most)
        if not given and limits == self.samples(drawn):
            return limits  # the ordinary case: all of it
        if self.is_equal:  # in step: as many samples on each rank, in every piece
            rest_each = drawn - given // self.world_size
            return (ceil(rest_each / ceil(rest_each / limits[0])),) * self.world_size
        rest = self.rank_of_sample(drawn)[given:]
        pieces = max(ceil(count / limits[rank]) for rank, count in Counter(rest).items())
        while True:
            taken = Counter(rest[: ceil(len(rest) / pieces)])
            if all(count <= limits[rank] for rank, count in taken.items()):
                return tuple(taken[rank] for rank in range(self.world_size))
            pieces += 1


# All of these are asked for several times a step, by every one of perhaps 1,024 ranks.
@lru_cache(maxsize=64)
def _samples(weights: tuple[float, ...], batch_size: int) -> tuple[int, ...]:
    return tuple(max(1, int(batch_size * weight)) for weight in weights)


@lru_cache(maxsize=8)
def _totals(weights: tuple[float, ...], most: int) -> NDArray[np.int64]:
    """Return what all ranks hold together for each ``batch_size`` from 1 to ``most``."""
    batches = np.arange(1, most + 1)
    totals: NDArray[np.int64] = np.zeros(most, np.int64)
    for weight, ranks in Counter(weights).items():
        totals += ranks * np.maximum(1, (batches * weight).astype(np.int64))
    return totals


@lru_cache(maxsize=64)
def _round_robin(samples: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(samples)) == 1:
        return tuple(range(len(samples))) * samples[0]
    ranks = np.repeat(np.arange(len(samples)), samples)
    numbers = np.concatenate([np.arange(count) for count in samples])
    turns = (numbers + 0.5) / np.repeat(samples, samples)
    # Of samples whose turns are equal, the lower rank comes first: sorting is stable.
    owners: list[int] = ranks[np.argsort(turns, kind="stable")].tolist()
    return tuple(owners)


@lru_cache(maxsize=64)
def _positions(samples: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple(position for position, owner in enumerate(_round_robin(samples)) if owner == rank)


SINGLE_PROCESS = SampleSharding()
"""One rank has all samples."""
