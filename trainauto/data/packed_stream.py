"""Draws of samples that differ in length: batches of the packing layer, packed anew where plans change."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainauto.core.hashing import splitmix64
from trainauto.core.plan import Plan
from trainauto.core.sharding import SampleSharding
from trainauto.data.packing import (
    BatchCost,
    BatchOrder,
    Bucketed,
    FewestBatches,
    Packing,
    RankCost,
    SampleSizes,
    pack_by,
)
from trainauto.data.sampler import REORDERS, ShuffledStream


@dataclass
class PackedEpoch:
    """The samples of an epoch in their order.

    Attributes:
        order: of the samples.
        ends: where in it each batch ends.
        bounds: from which place on which bound held, and for which shares of ranks, ascending.
        before: what it was without the last bound; ``None`` if it cannot be asked for any more.
    """

    order: NDArray[np.int64]
    ends: NDArray[np.int64]
    bounds: list[tuple[int, int, tuple[float, ...]]]
    before: "PackedEpoch | None" = None

    def bound_at(self, place: int) -> tuple[int, tuple[float, ...]] | None:
        """Return the bound in force at a place, and for which shares; ``None`` where nothing has been packed."""
        later = bisect_right(self.bounds, place, key=lambda entry: entry[0])
        return self.bounds[later - 1][1:] if later else None

    def as_before(self, place: int) -> "PackedEpoch":
        """Return it without what was packed from a place on, or from a later one."""
        epoch = self
        while epoch.before is not None and epoch.bounds[-1][0] >= place:
            epoch = epoch.before
        return epoch

    def forget_before(self, place: int) -> None:
        """Let go of what it was before bounds that came into force ahead of a place."""
        self.as_before(place).before = None


class PackedStream(ShuffledStream):
    """A stream whose epochs are packed: neighbours of similar length in batches, which come in random order.

    Where a draw begins under another bound than the one before, the rest of its epoch is packed anew. What was packed
    follows from the draws alone, so that it is the same with any number of workers, and again after a resume: a bound
    that another one replaces before anything was drawn under it leaves no trace. Epochs are kept until
    :meth:`forget_before`, since workers may be several ahead.

    Of several ranks, each gets its share of a batch's samples, in turn: bounds hold for what the largest has.

    Args:
        sizes: of all samples.
        cost: of batches; bounds are in its unit.
        seed: decides order and seeds.
        batch_order: in which order an epoch's batches come.
    """

    def __init__(self, sizes: SampleSizes, cost: BatchCost, seed: int, batch_order: BatchOrder | None = None) -> None:
        super().__init__(len(sizes), seed)
        self.sizes, self.cost = sizes, cost
        self._batch_order = batch_order or Bucketed()
        self._epochs: dict[int, PackedEpoch] = {}

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return the samples of an epoch in their order, as far as it has been packed."""
        return self._epochs[epoch].order

    def pack_from(self, position: int, bound: int) -> None:
        """Have what comes from a position on within its epoch lie in batches within a bound.

        Raises:
            SampleTooLargeError: a sample exceeds it alone.
        """
        epoch, place = divmod(position, self.samples)
        known = self._epochs.get(epoch)
        if known is None:
            known = PackedEpoch(self.samples_of(epoch), np.zeros(0, np.int64), [])
        if self._is_packed_so(known, position, bound):
            return
        known = known.as_before(place)
        if self._is_packed_so(known, position, bound):
            self._epochs[epoch] = known
            return
        rest = np.sort(known.order[place:])
        packed = self.batches_of(rest, bound, self._seed_from(position), epoch)
        self._epochs[epoch] = PackedEpoch(
            np.concatenate([known.order[:place], rest[packed.order]]),
            np.concatenate([known.ends[known.ends <= place], place + packed.ends]),
            [*(entry for entry in known.bounds if entry[0] < place), (place, bound, self.sharding.weights)],
            known,
        )

    def _is_packed_so(self, known: PackedEpoch, position: int, bound: int) -> bool:
        """Say whether what comes from a position on lies within a bound already, in the order that holds there."""
        place = position % self.samples
        is_other_order = self.is_reordered_at(position) and all(start != place for start, *_ in known.bounds)
        return known.bound_at(place) == (bound, self.sharding.weights) and not is_other_order

    def reorder_from(self, position: int, number: int) -> None:
        """Give what comes from a position on in another order; it is packed when it is asked for."""
        super().reorder_from(position, number)
        epoch, place = divmod(position, self.samples)
        self._epochs = {known: packed for known, packed in self._epochs.items() if known <= epoch}
        if epoch in self._epochs:
            self._epochs[epoch] = self._epochs[epoch].as_before(place)
            if not place:
                del self._epochs[epoch]

    def batches_of(self, rest: NDArray[np.int64], bound: int, seed: int, epoch: int) -> Packing:
        """Return batches within a bound: the rest of an epoch, by their places in ``rest``.

        Args:
            rest: samples that are left, ascending.
            bound: greatest cost of a batch.
            seed: decides everything random.
            epoch: 0-based.

        Raises:
            SampleTooLargeError: a sample exceeds the bound alone.
        """
        rule, sizes = FewestBatches(self.cost_of_a_rank, bound), self.sizes.take(rest)
        return self._batch_order.epoch(pack_by(rule, sizes), sizes, rule, seed, epoch)

    def _seed_from(self, position: int) -> int:
        """Return the seed of what is packed from a position on."""
        seed, place = self.seed_of(position), position % self.samples
        return splitmix64(seed ^ splitmix64(place)) if place else seed

    @property
    def cost_of_a_rank(self) -> BatchCost:
        """What a batch costs the rank that has most of it."""
        return self.cost if self.sharding.world_size == 1 else RankCost(self.cost, self.sharding)

    def costs_of_first(self, indices: Sequence[int]) -> NDArray[np.int64]:
        """Return what the first one, two, three... of these samples cost together, shape (samples,); it never falls."""
        longest = np.maximum.accumulate(self.sizes.tokens[indices])
        counts = np.arange(1, len(indices) + 1)
        return self.cost_of_a_rank.cost(counts, longest, np.zeros_like(counts))

    def forget_before(self, position: int) -> None:
        """Let go of epochs that lie behind a position, and of what was replaced there."""
        epoch, place = divmod(position, self.samples)
        self._epochs = {number: packed for number, packed in self._epochs.items() if number >= epoch}
        if epoch in self._epochs:
            self._epochs[epoch].forget_before(place)

    def left_of_batch(self, position: int) -> int:
        """Return how many samples lie between a position and the end of its batch."""
        epoch, place = divmod(position, self.samples)
        ends = self._epochs[epoch].ends
        return int(ends[np.searchsorted(ends, place, "right")]) - place

    def state_dict(self) -> dict[str, Any]:
        """Return what epochs not yet forgotten were packed by, for a checkpoint: places and bounds."""
        bounds = {str(epoch): packed.bounds for epoch, packed in self._epochs.items()}
        plain = {epoch: [bound_as_plain(*entry) for entry in entries] for epoch, entries in bounds.items()}
        return {**super().state_dict(), **plain}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        super().load_state_dict(state)
        self._epochs.clear()
        here = self.sharding
        for epoch, bounds in state.items():
            for entry in bounds if epoch != REORDERS else ():
                place, bound, weights = bound_from_plain(*entry)
                self.sharding = SampleSharding(weights)  # of the run that packed it
                self.pack_from(int(epoch) * self.samples + place, bound)
        self.sharding = here


def bound_as_plain(place: int, bound: int, weights: tuple[float, ...]) -> list[Any]:
    """Return an entry as a checkpoint has it: of equal shares, their number."""
    return [place, bound, len(weights) if len(set(weights)) == 1 else list(weights)]


def bound_from_plain(place: int, bound: int, shares: int | Sequence[float] = 1) -> tuple[int, int, tuple[float, ...]]:
    """Return the entry that :func:`bound_as_plain` wrote; early checkpoints knew one rank."""
    return int(place), int(bound), (1.0,) * shares if isinstance(shares, int) else tuple(map(float, shares))


class PackedDraws:
    """Draws hold the batches of a packed stream, under the plan's size as bound of each rank's part.

    Args:
        stream: of the samples; it knows how many ranks share them.
    """

    def __init__(self, stream: PackedStream) -> None:
        self._stream = stream

    def batch_size(self, first_sample: int, plan: Plan) -> int:
        """Return a rank's share of the batch that begins there, packed anew where the plan is another one."""
        self._stream.pack_from(first_sample, plan.size)
        return self._stream.sharding.most_of(self._stream.left_of_batch(first_sample))

    def lacking(self, first_sample: int, plan: Plan) -> int:
        """Return how many samples that batch has less than its largest share says."""
        share = self.batch_size(first_sample, plan)
        return self._stream.sharding.total(share) - self._stream.left_of_batch(first_sample)

    def part_size(self, first_sample: int, samples: int, plan: Plan) -> int:
        """Return how many of the next samples fit the plan together; one is taken to."""
        sharding, most = self._stream.sharding, samples
        if sharding.world_size > 1:
            most = min(sharding.total(samples), self._stream.left_of_batch(first_sample))
        indices = [self._stream.index_at(first_sample + place) for place in range(most)]
        costs = self._stream.costs_of_first(indices)
        fitting = int(np.searchsorted(costs, plan.size, "right"))  # they never fall with more samples
        return samples if fitting == most else sharding.held_by(fitting)
