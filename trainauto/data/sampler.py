"""Which samples each batch draws: a pure function of the seed, the position in the stream and the plan changes.

Nothing here knows of workers, files or torch. The loader keeps two positions in the same stream: the head, where keys
are sent to the workers, and the tail, where batches are trained. A plan asked for after ``n`` draws were fetched acts
on draw ``n + lookahead``; the head is never further ahead than that, so results do not depend on the workers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainauto.core.hashing import splitmix64
from trainauto.core.plan import BATCH_SIZE, Plan
from trainauto.core.records import StepRecord
from trainauto.core.sharding import SINGLE_PROCESS, SampleSharding
from trainauto.core.shuffling import shuffled_order
from trainauto.data.batcher import FIXED_COUNT, Batcher
from trainauto.data.dynamic_dataset import SampleKey

REORDERS = "reorders"
"""Of a stream's state: positions from which another order of samples holds, each with its number."""


@dataclass(frozen=True)
class PlannedBatch:
    """One batch's worth of the stream, of all ranks together.

    Attributes:
        number: 0-based count of draws since the run began.
        first_sample: position of its first sample in the stream; position ``p`` lies in epoch ``p // samples``.
        plan: plan it is drawn under.
        batch_size: its samples on the rank that has most of them, as a :class:`~trainauto.data.batcher.Batcher` says.
        lacking: samples less than its ``batch_size`` says for all ranks, at its end.
    """

    number: int
    first_sample: int
    plan: Plan
    batch_size: int
    lacking: int = 0

    @classmethod
    def of(cls, number: int, first_sample: int, plan: Plan, batcher: Batcher) -> "PlannedBatch":
        """Return a draw that holds what a batcher says."""
        batch_size = batcher.batch_size(first_sample, plan)
        return cls(number, first_sample, plan, batch_size, batcher.lacking(first_sample, plan))

    def total(self, sharding: SampleSharding) -> int:
        """Return its samples on all ranks."""
        return sharding.total(self.batch_size) - self.lacking

    def places(self, sharding: SampleSharding, rank: int) -> tuple[int, ...]:
        """Return where in it the samples of a rank stand, from 0."""
        places = sharding.positions(self.batch_size, rank)
        return tuple(place for place in places if place < self.total(sharding)) if self.lacking else places

    @property
    def is_as_counted(self) -> bool:
        """Whether its plan alone says how many samples it holds."""
        return BATCH_SIZE in self.plan and self.plan.batch_size == self.batch_size and not self.lacking


class LoggedBatch(NamedTuple):
    """A batch as a log holds it.

    Attributes:
        first_sample: position of its first sample in the stream.
        samples: how many it held, on all ranks.
        extent: size of its samples: side of crops in low-quality pixels, tokens of padded rows.
        drawn: plan its samples were drawn under.
        plan: plan it was trained under.
        draw_samples: samples of the whole draw it is of, on all ranks; 0 where that is the ``batch_size`` of ``drawn``.
        sharding: how it was divided among those who trained it together.
    """

    first_sample: int
    samples: int
    extent: int
    drawn: Plan
    plan: Plan
    draw_samples: int = 0
    sharding: SampleSharding = SINGLE_PROCESS

    @classmethod
    def of(cls, step: StepRecord) -> "LoggedBatch":
        """Return the batch of a logged step."""
        return cls(step.first_sample, step.shape.samples, step.shape.extent, step.drawn, step.plan, step.draw_samples)


def planned_batches_of(batches: Iterable[LoggedBatch]) -> list[PlannedBatch]:
    """Return the draws that the batches of a whole run on one rank came from, whatever asked for their plans.

    Raises:
        ValueError: the batches do not follow each other as a loader gives them.
    """
    draws: list[PlannedBatch] = []
    position = end = 0
    for batch in batches:
        if position == end:
            samples = batch.draw_samples or batch.drawn.batch_size
            draws.append(PlannedBatch(len(draws), position, batch.drawn, samples))
            end = position + samples
        if batch.first_sample != position or batch.drawn != draws[-1].plan or position + batch.samples > end:
            raise ValueError(f"after sample {position} came {batch.samples} from {batch.first_sample} on")
        position += batch.samples
    return draws


@dataclass(frozen=True)
class StreamState:
    """A place in the stream of draws, with the plan changes that lie ahead of it."""

    next_draw: PlannedBatch
    changes: tuple[tuple[int, Plan], ...] = ()

    @classmethod
    def start(cls, plan: Plan, batcher: Batcher = FIXED_COUNT) -> "StreamState":
        """Return the beginning of a run."""
        return cls(PlannedBatch.of(0, 0, plan, batcher))

    @classmethod
    def among(cls, draws: Sequence[PlannedBatch], number: int) -> "StreamState":
        """Return the position before draw ``number`` of a known sequence, with the plan changes that lie ahead."""
        ahead = pairwise(draws[number:])
        return cls(draws[number], tuple((d.number, d.plan) for before, d in ahead if d.plan != before.plan))

    def advanced(self, sharding: SampleSharding = SINGLE_PROCESS, batcher: Batcher = FIXED_COUNT) -> "StreamState":
        """Return the position after the next draw, whose samples are divided in this way."""
        number = self.next_draw.number + 1
        due = [plan for at, plan in self.changes if at <= number]
        plan = due[-1] if due else self.next_draw.plan
        first_sample = self.next_draw.first_sample + self.next_draw.total(sharding)
        return StreamState(
            PlannedBatch.of(number, first_sample, plan, batcher),
            tuple((at, plan) for at, plan in self.changes if at > number),
        )

    def with_change(self, at: int, plan: Plan, batcher: Batcher = FIXED_COUNT) -> "StreamState":
        """Return this position with ``plan`` acting from draw ``at`` on; a later request for the same draw wins."""
        if at <= self.next_draw.number:
            return StreamState(PlannedBatch.of(self.next_draw.number, self.next_draw.first_sample, plan, batcher))
        kept = tuple((number, other) for number, other in self.changes if number < at)
        return replace(self, changes=(*kept, (at, plan)))

    def asked_anew(self, batcher: Batcher = FIXED_COUNT) -> "StreamState":
        """Return this position with the samples of the next draw counted anew: their order is another one."""
        draw = self.next_draw
        return replace(self, next_draw=PlannedBatch.of(draw.number, draw.first_sample, draw.plan, batcher))

    def without_given(self, given: int, batcher: Batcher = FIXED_COUNT) -> "StreamState":
        """Return this position with the next draw begun anew behind its first ``given`` samples, of all ranks."""
        draw = self.next_draw
        return replace(self, next_draw=PlannedBatch.of(draw.number, draw.first_sample + given, draw.plan, batcher))

    def at_epoch(self, samples: int, given: int, batcher: Batcher = FIXED_COUNT) -> "StreamState":
        """Return the first position, behind what was given out, that begins an epoch of so many samples.

        Args:
            samples: of the set that the epoch is of.
            given: samples of the next draw, of all ranks, that were handed out.
            batcher: says how many samples a draw holds.
        """
        position = self.next_draw.first_sample + given
        begun = replace(self, next_draw=replace(self.next_draw, first_sample=-(-position // samples) * samples))
        return begun.asked_anew(batcher)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        draw = self.next_draw
        return {
            "number": draw.number,
            "first_sample": draw.first_sample,
            "plan": draw.plan.to_dict(),
            "batch_size": draw.batch_size,
            **({"lacking": draw.lacking} if draw.lacking else {}),
            "changes": [{"at": at, "plan": plan.to_dict()} for at, plan in self.changes],
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> "StreamState":
        """Rebuild a position from :meth:`to_dict`; before draws had a count of their own, theirs was the plan's."""
        plan = Plan.from_dict(state["plan"])
        batch_size = int(state.get("batch_size", plan.batch_size))
        lacking = int(state.get("lacking", 0))
        draw = PlannedBatch(int(state["number"]), int(state["first_sample"]), plan, batch_size, lacking)
        return cls(draw, tuple((int(change["at"]), Plan.from_dict(change["plan"])) for change in state["changes"]))


def positions_of(draw: PlannedBatch, sharding: SampleSharding, rank: int) -> list[int]:
    """Return the positions in the stream of a rank's samples of a draw."""
    return [draw.first_sample + place for place in draw.places(sharding, rank)]


class ShuffledStream:
    """The endless stream of samples: every sample once an epoch, in an order and with seeds fixed by one seed.

    After a rollback what comes from a position on does so in another order, with other seeds; every sample still comes
    once an epoch.

    Attributes:
        sharding: how a draw is divided among ranks, where its samples depend on that.

    Args:
        samples: samples in the set.
        seed: decides order and seeds.
    """

    sharding: SampleSharding = SINGLE_PROCESS

    def __init__(self, samples: int, seed: int) -> None:
        if samples < 1:
            raise ValueError("a stream needs at least one sample")
        self.samples = samples
        self.seed = seed
        self._seed_hash = splitmix64(seed)
        self._orders: dict[int, NDArray[np.int64]] = {}
        self._reorders: tuple[tuple[int, int], ...] = ()  # positions, ascending, each with the number of its order

    def reorder_from(self, position: int, number: int) -> None:
        """Give what comes from a position on in another order; what was asked for of later positions is forgotten.

        Args:
            position: the first that changes.
            number: decides the order, above 0.
        """
        self._reorders = (*(entry for entry in self._reorders if entry[0] < position), (position, number))
        self._orders.clear()

    def is_reordered_at(self, position: int) -> bool:
        """Say whether another order begins exactly there."""
        return any(start == position for start, _ in self._reorders)

    def seed_of(self, position: int) -> int:
        """Return the seed of the order that is in force at a position."""
        number = next((number for start, number in reversed(self._reorders) if start <= position), 0)
        return splitmix64(self.seed ^ splitmix64(number)) if number else self.seed

    def index_at(self, position: int) -> int:
        """Return which sample stands at a position of the stream."""
        return int(self.order(position // self.samples)[position % self.samples])

    def indices(self, positions: Sequence[int]) -> list[int]:
        """Return which samples stand at positions of the stream, which ascend."""
        epochs = {position // self.samples for position in positions}
        if len(epochs) != 1:
            return [self.index_at(position) for position in positions]
        order, first = self.order(epochs.pop()), positions[0] % self.samples
        if positions[-1] - positions[0] == len(positions) - 1:  # they ascend, so that none is left out
            indices: list[int] = order[first : first + len(positions)].tolist()
        else:
            indices = order[np.asarray(positions) % self.samples].tolist()
        return indices

    def seed_at(self, position: int) -> int:
        """Return the seed for place, flips and rotation at a position of the stream."""
        seed_hash = splitmix64(self.seed_of(position)) if self._reorders else self._seed_hash
        return splitmix64(seed_hash ^ position)

    def keys(self, draw: PlannedBatch, sharding: SampleSharding = SINGLE_PROCESS, rank: int = 0) -> list[SampleKey]:
        """Return what the workers need to make a rank's samples of a draw; where it has none, of one for the shape."""
        positions = positions_of(draw, sharding, rank) or [draw.first_sample]
        size, samples = SampleKey.under(draw.plan, 0, 0).size, self.indices(positions)
        return [SampleKey(sample, size, self.seed_at(p)) for sample, p in zip(samples, positions, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold of it: other orders, for the first one is a function of the seed."""
        return {REORDERS: [list(entry) for entry in self._reorders]} if self._reorders else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self._reorders = tuple((int(position), int(number)) for position, number in state.get(REORDERS, ()))
        self._orders.clear()

    def forget_before(self, position: int) -> None:
        """Let go of what only positions before this one needed; they are not asked for again."""

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return the samples of an epoch in their order; it is kept while positions near it are asked for."""
        if epoch not in self._orders:
            # Only neighbouring epochs are ever needed; O(samples) once an epoch, however far the run has come.
            self._orders = {known: order for known, order in self._orders.items() if abs(known - epoch) <= 1}
            self._orders[epoch] = self._order_of(epoch)
        return self._orders[epoch]

    def samples_of(self, epoch: int) -> NDArray[np.int64]:
        """Return what an epoch gives out, in any order, shape (samples,): every sample once."""
        del epoch
        return np.arange(self.samples)

    def arranged(self, samples: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
        """Return samples of an epoch, which ascend, in the order that a seed decides."""
        return samples[shuffled_order(len(samples), seed, epoch)]

    def _order_of(self, epoch: int) -> NDArray[np.int64]:
        first = epoch * self.samples
        order = self.arranged(self.samples_of(epoch), self.seed_of(first), epoch)
        for position, _ in self._reorders:
            if first < position < first + self.samples:
                kept, rest = np.split(order, [position - first])
                order = np.concatenate([kept, self.arranged(np.sort(rest), self.seed_of(position), epoch)])
        return order


class DynamicBatchSampler:
    """Endless batches of keys from a position on: what the torch ``DataLoader`` takes as its batch sampler.

    It keeps the head position; plan changes reach it through :meth:`change`.
    """

    def __init__(
        self,
        order: ShuffledStream,
        position: StreamState,
        sharding: SampleSharding = SINGLE_PROCESS,
        rank: int = 0,
        batcher: Batcher = FIXED_COUNT,
    ) -> None:
        self.order = order
        self.position = position
        self._sharding = sharding
        self._rank = rank
        self._batcher = batcher

    def change(self, at: int, plan: Plan) -> None:
        """Let ``plan`` act from draw ``at`` on.

        Raises:
            ValueError: that draw has been sent to the workers already.
        """
        if at < self.position.next_draw.number:
            raise ValueError(f"draw {at} is already under way")
        self.position = self.position.with_change(at, plan, self._batcher)

    def __iter__(self) -> Iterator[list[SampleKey]]:
        while True:
            draw = self.position.next_draw
            self.position = self.position.advanced(self._sharding, self._batcher)
            yield self.order.keys(draw, self._sharding, self._rank)
