"""The batches of each epoch, one rank's, from a cursor on: what a torch ``DataLoader`` takes as its batch sampler."""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trainauto.core.errors import CheckpointError, InputError
from trainauto.data.packing.orders import BatchOrder, LongestFirst
from trainauto.data.packing.pack import pack_by
from trainauto.data.packing.packing import Packing
from trainauto.data.packing.ranks import divided_among
from trainauto.data.packing.rules import PackingRule
from trainauto.data.packing.sizes import SampleSizes

LONGEST_FIRST = LongestFirst()


class PackingMismatchError(CheckpointError):
    """A saved position is of other samples, another order or another bound; there it would mean other samples."""

    exit_code = 2


class PackedBatchSampler:
    """Batches of an epoch and then of the next: every sample once an epoch, on one of the ranks.

    The cursor counts samples of all ranks, in the order of the epoch. It moves when a batch is given out; iterating
    again goes on from there, which after the last batch is the next epoch. A ``DataLoader`` with workers draws ahead of
    what is consumed: its loader keeps the state from before, and asks :meth:`advanced` for what has been consumed.

    A position means the same samples under any number of ranks. Ranks divide an epoch once, and those that resume as
    many go on with the same batches. Another number divides what is left anew, which is a division of its own to go on
    with: a state says how many ranks there were, and behind how many samples they divided the rest.

    Args:
        sizes: of all samples.
        rule: how many samples a batch holds.
        order: in which order batches come.
        seed: decides everything random.
        rank: which batches are given out.
        world_size: number of ranks; all get as many batches.

    Raises:
        SampleTooLargeError: a sample does not fit a batch even alone.
        TooFewSamplesError: there are not as many batches for every rank.
    """

    def __init__(
        self,
        sizes: SampleSizes,
        rule: PackingRule,
        order: BatchOrder = LONGEST_FIRST,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not 0 <= rank < world_size:
            raise InputError(f"there is no rank {rank} of {world_size}")
        self.sizes, self.rule, self.order, self.seed = sizes, rule, order, seed
        self.rank, self.world_size = rank, world_size
        self.epoch = self.samples = self._divided_from = 0
        self._packed = pack_by(rule, sizes)
        self._of_epoch = (-1, self._packed)
        self._divided = ((-1, -1), self._packed)
        self._left = (_Cursor(-1, -1, -1), self._packed)
        self._identity = self._described()
        self._iterations = 0
        self.remaining()

    @property
    def packed(self) -> Packing:
        """Batches of all samples, from the longest to the shortest: what the order of an epoch begins with."""
        return self._packed

    def __len__(self) -> int:
        """Return how many batches this rank gets in the epoch, those before the cursor too."""
        return len(divided_among(self._packing_of(self.epoch).ends, self.world_size)) // self.world_size

    def __iter__(self) -> Iterator[list[int]]:
        self._iterations += 1
        return self._batches(self._iterations, self.state_dict(), self.remaining())

    def _batches(self, iteration: int, start: Mapping[str, Any], packing: Packing) -> Iterator[list[int]]:
        for number, first in enumerate(range(0, len(packing), self.world_size), start=1):
            if iteration == self._iterations:  # an iterator that was left behind moves nothing
                self._move_to(self.advanced(start, number))
            yield packing.batch(first + self.rank).tolist()

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; where it is under way already, stay."""
        if epoch != self.epoch:
            self._iterations += 1
            self.epoch = epoch
            self.samples = self._divided_from = 0

    def remaining(self) -> Packing:
        """Return the batches of all ranks from the cursor to the end of the epoch, in turns for each rank.

        Raises:
            TooFewSamplesError: too little is left of the epoch for so many ranks.
        """
        return self._packing_from(_Cursor(self.epoch, self.samples, self._divided_from))

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor, and what it is a position in."""
        return {**self._fields(_Cursor(self.epoch, self.samples, self._divided_from)), **self._identity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a saved position, of whatever number of ranks.

        Raises:
            PackingMismatchError: it is a position among other batches.
        """
        for name, here in self._identity.items():
            if state.get(name) != here:
                said = _MEANINGS.get(name, name.replace("_", " "))
                raise PackingMismatchError(f"cannot go on from there: {said} was {state.get(name)} and is {here} now")
        self._iterations += 1
        self._move_to(state)

    def advanced(self, state: Mapping[str, Any], batches: int) -> dict[str, Any]:
        """Return the state after each rank has consumed so many more batches; nothing is moved.

        Repeated questions about one state cost next to nothing.

        Args:
            state: of this sampler.
            batches: how many were consumed since, by every rank.
        """
        cursor = self._cursor(state)
        while batches and len(self.sizes):
            packing = self._packing_from(cursor)
            rounds = len(packing) // self.world_size
            if batches < rounds:
                given = int(packing.ends[batches * self.world_size - 1])
                cursor = cursor._replace(samples=cursor.samples + given)
                break
            batches -= rounds
            cursor = _Cursor(cursor.epoch + 1, 0, 0)
        return {**state, **self._fields(cursor)}

    def _cursor(self, state: Mapping[str, Any]) -> "_Cursor":
        epoch, samples = int(state["epoch"]), int(state["samples"])
        divided_from = int(state["divided_from"]) if state.get("ranks") == self.world_size else samples
        return _Cursor(epoch, samples, min(divided_from, samples))

    def _fields(self, cursor: "_Cursor") -> dict[str, int]:
        return {**cursor._asdict(), "ranks": self.world_size}

    def _move_to(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.samples, self._divided_from = self._cursor(state)

    def _packing_of(self, epoch: int) -> Packing:
        if self._of_epoch[0] != epoch:
            self._of_epoch = epoch, self.order.epoch(self._packed, self.sizes, self.rule, self.seed, epoch)
        return self._of_epoch[1]

    def _division_of(self, epoch: int, divided_from: int) -> Packing:
        if self._divided[0] != (epoch, divided_from):
            packing = self._packing_of(epoch)
            ends = packing.ends[packing.ends > divided_from] - divided_from
            divided = Packing(packing.order[divided_from:], divided_among(ends, self.world_size))
            self._divided = (epoch, divided_from), divided
        return self._divided[1]

    def _packing_from(self, cursor: "_Cursor") -> Packing:
        if self._left[0] != cursor:
            division = self._division_of(cursor.epoch, cursor.divided_from)
            given = cursor.samples - cursor.divided_from
            left = Packing(division.order[given:], division.ends[division.ends > given] - given)
            self._left = cursor, left
        return self._left[1]

    def _described(self) -> dict[str, Any]:
        checksum = zlib.crc32(self._packed.order.astype("<i8").tobytes())
        return {
            "samples_in_set": len(self.sizes),
            "seed": self.seed,
            "order": repr(self.order),
            **self.rule.to_dict(),
            "packing": zlib.crc32(self._packed.ends.astype("<i8").tobytes(), checksum),
        }


class _Cursor(NamedTuple):
    """Where an epoch goes on, and in which division among ranks.

    Attributes:
        epoch: 0-based.
        samples: given out so far, of all ranks.
        divided_from: samples that had been given out when the rest was divided; 0 for the whole epoch.
    """

    epoch: int
    samples: int
    divided_from: int


_MEANINGS = {
    "samples_in_set": "the number of samples",
    "packing": "the checksum of batches, so the sizes or the cost of samples,",
}
"""What is said of a state's fields whose names do not say it."""
