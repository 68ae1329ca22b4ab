"""Batches of an epoch that fill the memory there is: what a torch ``DataLoader`` takes as its batch sampler."""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import Sampler

from trainauto.core.errors import InputError
from trainauto.core.units import MIB
from trainauto.data.packing import IntArray, PackingMismatchError
from trainauto.data.packing.ranks import divided_among
from trainauto.integrations.map_samples import MapStyle
from trainauto.tasks.multitask.batches.mixed_stream import MixedStream
from trainauto.tasks.multitask.batches.sample_cost import cost_in_bytes
from trainauto.tasks.multitask.batches.samples import CountTokens, read_samples, with_tokens
from trainauto.tasks.multitask.batches.task_shares import EPOCH

KEPT_ROUNDS = 1024
"""Batches of a rank that :meth:`MemoryAwareBatchSampler.advanced` knows of: more than any loader draws ahead."""


class MemoryAwareBatchSampler(Sampler[list[int]]):
    """Lists of indices, each within ``batch_size`` samples and ``max_memory_mb``; every sample once an epoch.

    Every iteration is an epoch of its own, also where the one before was left early; after :meth:`load_state_dict` the
    next one continues where the state was saved. The cursor moves when a batch is given out: a ``DataLoader`` with
    workers is ahead of what has been trained, and :meth:`advanced` says what its state is then.

    Of several ranks each is given batches of its own, and all of them as many.

    Args:
        dataset: has ``get_sample_metadata(idx)``; without it, its samples are loaded once
            (:func:`~trainauto.tasks.multitask.batches.samples.read_samples`).
        batch_size: most samples of a batch; ``None`` leaves it to memory.
        max_memory_mb: what training may take, in MiB: a batch as it is priced, and what the predictor says is held
            between steps.
        shuffle: whether epochs differ.
        task_diversity_weight: 0 has batches hold neighbours by size, which fills memory best; 1 has every batch hold
            tasks as the whole set does (:mod:`trainauto.tasks.multitask.batches.mixed_batches`).
        predictor: prices batches, in bytes: a ``MemoryPredictor``; published constants where there is none.
        task_distribution: wanted share of each task, by name. Within an epoch it orders samples: the shares hold for as
            long as no task has run out.
        sampling: ``"epoch"``: every sample once; ``"replacement"``: as many samples as the set has, of each task its
            wanted share.
        seed: decides everything random.
        rank: which batches are given out.
        world_size: number of ranks.
        count_tokens: counts tokens where the dataset does not say them: ``collator.count_tokens``.

    Raises:
        InputError: an argument cannot be used, or a sample does not fit alone
            (:class:`~trainauto.tasks.multitask.batches.mixed_stream.SampleDoesNotFitError`, which names it).
        TooFewSamplesError: there are not as many batches for every rank.
    """

    def __init__(
        self,
        dataset: MapStyle,
        batch_size: int | None,
        max_memory_mb: float,
        shuffle: bool = True,
        task_diversity_weight: float = 0.5,
        *,
        predictor: Any = None,
        task_distribution: Mapping[str, float] | None = None,
        sampling: str = EPOCH,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        count_tokens: CountTokens | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise InputError(f"there is no rank {rank} of {world_size}")
        if batch_size is not None and (not isinstance(batch_size, int | np.integer) or batch_size < 1):
            raise InputError(f"batch_size is a whole number of 1 or more, or None: as memory allows; got {batch_size}")
        self._bound = _bound(max_memory_mb)
        self._rank, self._world_size = rank, world_size
        self.table = read_samples(dataset, count_tokens)
        if predictor is not None:
            self.table = with_tokens(self.table, dataset, count_tokens)
        self._stream = MixedStream(
            self.table,
            cost_in_bytes(predictor),
            seed,
            most_samples=None if batch_size is None else int(batch_size),
            task_diversity_weight=task_diversity_weight,
            shuffle=shuffle,
            task_distribution=task_distribution,
            sampling=sampling,
            bound_name="max_memory_mb",
        )
        self._cursor = _Cursor(0, 0, 0, 0)
        self._given: deque[_Cursor] = deque(maxlen=KEPT_ROUNDS)
        self._division = NOT_DIVIDED
        self._continues = False
        self._iteration = 0
        self._stream.check(self._bound)
        self._ends_ahead()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, sorted: what a collator wants to know."""
        return self.table.tasks

    @property
    def max_memory_mb(self) -> float:
        """What training may take, in MiB; another value acts from the next batch that is drawn, on every rank."""
        return self._bound / MIB

    @max_memory_mb.setter
    def max_memory_mb(self, limit_mib: float) -> None:
        bound = _bound(limit_mib)
        self._stream.check(bound)
        self._bound = bound

    def __len__(self) -> int:
        """Return how many batches this rank gets in the epoch, those before the cursor too."""
        return self._cursor.rounds + len(self._ends_ahead()) // self._world_size

    def __iter__(self) -> Iterator[list[int]]:
        # All of it happens when the first batch is asked for: a DataLoader with workers calls iter() twice.
        if self._cursor.samples and not self._continues:
            self._cursor = _Cursor(self._cursor.epoch + 1, 0, 0, 0)
            self._given.clear()
        self._continues = False
        self._iteration += 1
        iteration, epoch = self._iteration, self._cursor.epoch
        while True:
            if iteration != self._iteration:
                raise InputError("the sampler has moved on: another iteration has begun, or a position was set")
            if self._cursor.epoch != epoch:
                return
            ends, begin = self._ends_ahead()[: self._world_size].tolist(), self._cursor.samples
            own_begin = ends[self._rank - 1] if self._rank else begin
            batch = self._stream.order(epoch)[own_begin : ends[self._rank]].tolist()
            self._move_behind(ends[-1])
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be this epoch; from the saved position where one in it was loaded."""
        if not (self._continues and self._cursor.epoch == epoch):
            self._cursor, self._continues = _Cursor(int(epoch), 0, 0, 0), False
            self._given.clear()
            self._iteration += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last batch that was given out: plain numbers and text."""
        return self._state_of(self._cursor)

    def advanced(self, state: Mapping[str, Any], batches: int) -> dict[str, Any]:
        """Return the state after so many more batches of each rank, which have been given out; nothing is moved.

        For a ``DataLoader`` with workers: keep the state from before its iteration, and count the trained batches.

        Args:
            state: of this sampler.
            batches: how many were trained since, by every rank.

        Raises:
            InputError: those batches were not given out, or more than :data:`KEPT_ROUNDS` ago.
        """
        known = [*self._given, self._cursor]
        place = {(cursor.epoch, cursor.samples): number for number, cursor in enumerate(known)}
        number = place.get((int(state["epoch"]), int(state["samples"])))
        if number is None or not 0 <= batches < len(known) - number:
            raise InputError(f"{batches} batches behind that position have not been given out, or too long ago")
        return self._state_of(known[number + batches])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next iteration continue at a saved position, of whatever number of ranks, budget or batch size.

        Raises:
            PackingMismatchError: it is a position among other samples.
            CheckpointError: it is damaged.
        """
        if (state.get("samples_in_set"), state.get("set")) != (len(self.table), self.table.checksum):
            raise PackingMismatchError(
                f"cannot go on from there: the state is of {state.get('samples_in_set')} samples and here are "
                f"{len(self.table)}, or their tasks, images or tokens differ"
            )
        self._stream.load_state_dict(state["stream"])
        epoch, samples = int(state["epoch"]), int(state["samples"])
        divided_from = int(state["divided_from"]) if state.get("ranks") == self._world_size else samples
        self._cursor = _Cursor(epoch, samples, divided_from, int(state["rounds"]))
        self._given.clear()
        self._division, self._continues = NOT_DIVIDED, True
        self._iteration += 1

    def _state_of(self, cursor: "_Cursor") -> dict[str, Any]:
        return {
            **cursor._asdict(),
            "ranks": self._world_size,
            "samples_in_set": len(self.table),
            "set": self.table.checksum,
            "stream": self._stream.state_at(self._position(cursor)),
        }

    def _position(self, cursor: "_Cursor") -> int:
        return cursor.epoch * len(self.table) + cursor.samples

    def _ends_ahead(self) -> IntArray:
        """Return where the batches end that are ahead in the epoch, in turns for each rank.

        Ranks divide what is ahead when it has been packed, and go on with that division until it is packed anew.

        Raises:
            SampleDoesNotFitError: a sample does not fit alone.
            TooFewSamplesError: too little is left of the epoch for so many ranks.
        """
        position = self._position(self._cursor)
        self._stream.pack_from(position, self._bound)
        begin, ends = self._stream.packed_ahead(position)
        divided_from = max(begin, self._cursor.divided_from)
        known = self._cursor.epoch, begin, self._bound, divided_from
        if self._division[:-1] != known:
            ends = ends[np.searchsorted(ends, divided_from, "right") :] - divided_from
            self._division = _Division(*known, divided_from + divided_among(ends, self._world_size))
        divided = self._division.ends
        return divided[np.searchsorted(divided, self._cursor.samples, "right") :]

    def _move_behind(self, samples: int) -> None:
        """Note that a batch of every rank has been given out."""
        before = self._cursor
        self._given.append(before)
        self._cursor = _Cursor(before.epoch, samples, self._division.divided_from, before.rounds + 1)
        if samples == len(self.table):
            self._cursor = _Cursor(before.epoch + 1, 0, 0, 0)
        self._stream.forget_before(self._position(self._given[0]))


class _Cursor(NamedTuple):
    """Where an epoch goes on.

    Attributes:
        epoch: 0-based.
        samples: given out so far, of all ranks.
        divided_from: samples that had been given out when ranks divided the rest.
        rounds: batches given out to each rank.
    """

    epoch: int
    samples: int
    divided_from: int
    rounds: int


class _Division(NamedTuple):
    """How ranks divide what is ahead in an epoch.

    Attributes:
        epoch: 0-based.
        packed_from: place from which on it was packed.
        bound: under which, in bytes.
        divided_from: place from which on it is divided.
        ends: where batches end, in turns for each rank.
    """

    epoch: int
    packed_from: int
    bound: int
    divided_from: int
    ends: IntArray


NOT_DIVIDED = _Division(-1, -1, -1, -1, np.zeros(0, np.int64))


def _bound(max_memory_mb: float) -> int:
    """Return a limit in bytes.

    Raises:
        InputError: it is no amount of memory.
    """
    is_number = isinstance(max_memory_mb, int | float) and not isinstance(max_memory_mb, bool)
    if not is_number or not math.isfinite(max_memory_mb) or max_memory_mb <= 0:
        raise InputError(f"max_memory_mb is a number of MiB above 0, got {max_memory_mb!r}")
    return int(max_memory_mb * MIB)
