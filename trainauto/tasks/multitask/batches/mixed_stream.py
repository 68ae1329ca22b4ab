"""Draws of samples of several kinds: mixed batches, packed anew where plans change, one after the other without end."""

import base64
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainauto.core.errors import CheckpointError, InputError, Problem
from trainauto.core.units import MIB
from trainauto.core.words import counted
from trainauto.data.packed_stream import PackedEpoch, PackedStream, bound_as_plain, bound_from_plain
from trainauto.data.packing import BatchCost, IntArray, Packing
from trainauto.data.sampler import REORDERS, ShuffledStream
from trainauto.tasks.multitask.batches.mixed_batches import BatchMixing
from trainauto.tasks.multitask.batches.sample_cost import padded_costs
from trainauto.tasks.multitask.batches.samples import SampleTable
from trainauto.tasks.multitask.batches.task_shares import EPOCH, REPLACEMENT, drawn_by_shares, task_shares


class SampleDoesNotFitError(InputError):
    """A sample costs more alone than a batch may.

    Attributes:
        index: which sample; of several the one that costs most.
        task: its task.
    """

    def __init__(self, problem: Problem, index: int, task: str) -> None:
        super().__init__(problem)
        self.index, self.task = index, task


class MixedStream(PackedStream):
    """A stream whose epochs are packed as :class:`~trainauto.tasks.multitask.batches.mixed_batches.BatchMixing` says.

    Where a draw begins under another bound than the one before, the rest of its epoch is mixed and packed anew. Bounds
    are in the unit of the cost: bytes of a predictor, or padded units. With ``sampling="replacement"`` an epoch is as
    long as the set, and holds some samples more than once and others not at all.

    Costs are asked for when something is packed. A state holds what was packed, so that a predictor may have learned
    before it is loaded again.

    Args:
        table: the samples.
        cost: of batches.
        seed: decides order and seeds.
        most_samples: most samples of a batch; ``None`` leaves it to the bound.
        task_diversity_weight: see :class:`~trainauto.tasks.multitask.batches.mixed_batches.BatchMixing`.
        shuffle: whether epochs differ.
        task_distribution: wanted share of each task, by name.
        sampling: ``"epoch"`` or ``"replacement"``.
        bound_name: what a person calls the bound.

    Raises:
        InputError: an argument cannot be used.
    """

    def __init__(
        self,
        table: SampleTable,
        cost: BatchCost,
        seed: int,
        *,
        most_samples: int | None = None,
        task_diversity_weight: float = 0.5,
        shuffle: bool = True,
        task_distribution: Mapping[str, float] | None = None,
        sampling: str = EPOCH,
        bound_name: str = "the bound of a batch",
    ) -> None:
        super().__init__(table.sizes, cost, seed)
        if not 0 <= task_diversity_weight <= 1:
            raise InputError(f"task_diversity_weight is a number from 0 to 1, got {task_diversity_weight}")
        shares = task_shares(task_distribution, table, sampling)
        self.table = table
        self._drawn_shares = shares if sampling == REPLACEMENT else None
        self._bound_name = bound_name
        self._means: dict[int, float] = {}
        # What is drawn with replacement has the wanted shares already.
        shares = None if sampling == REPLACEMENT else shares
        self._most_samples = most_samples
        self._mixing = BatchMixing(cost, most_samples, task_diversity_weight, shares, shuffle)

    @property
    def least_bound(self) -> int:
        """Cost of the sample that costs most alone: no bound may be smaller."""
        return int(self._mixing.costs_alone(self.table.sizes).max())

    def check(self, bound: int) -> None:
        """Look whether every sample fits alone.

        Raises:
            SampleDoesNotFitError: names the one that costs most, its task, and what it costs.
        """
        self._check(np.arange(self.samples), bound)

    def mean_samples(self, bound: int) -> float:
        """Return how many samples the batches of one process within a bound have on average, padding and all.

        What samples cost alone says too much: they are padded to each other, and batches hold no more than
        ``most_samples``.
        """
        if bound not in self._means:
            largest = max(bound, self.least_bound)
            sizes, ids = self.sizes.take(self.samples_of(0)), self.table.task_ids[self.samples_of(0)]
            self._means[bound] = self.samples / len(self._mixing.batches(sizes, ids, largest, self.seed, 0))
        return self._means[bound]

    def samples_of(self, epoch: int) -> IntArray:
        """Return what an epoch gives out, ascending."""
        if self._drawn_shares is None:
            return super().samples_of(epoch)
        return drawn_by_shares(self.table.task_ids, self._drawn_shares, self.seed, epoch)

    def batches_of(self, rest: IntArray, bound: int, seed: int, epoch: int) -> Packing:
        """Return batches within a bound.

        Raises:
            SampleDoesNotFitError: a sample exceeds it alone.
        """
        self._check(rest, bound)
        most = self.sharding.total(self._most_samples) if self._most_samples is not None else None
        mixing = replace(self._mixing, cost=self.cost_of_a_rank, most_samples=most)
        return mixing.batches(self.sizes.take(rest), self.table.task_ids[rest], bound, seed, epoch)

    def costs_of_first(self, indices: Sequence[int]) -> IntArray:
        """Return what the first one, two, three... of these samples cost together, padded to their largest."""
        longest = np.maximum.accumulate(self.sizes.tokens[indices])
        most_images = np.maximum.accumulate(self.table.images[indices])
        return padded_costs(self.cost_of_a_rank, np.arange(1, len(indices) + 1), longest, most_images)

    def packed_ahead(self, position: int) -> tuple[int, IntArray]:
        """Return from which place of its epoch on what lies ahead of a position was packed, and where batches end.

        The ends are all of the epoch behind that place, those before the position too.
        """
        epoch, place = divmod(position, self.samples)
        packed = self._epochs[epoch]
        begin = packed.bounds[bisect_right(packed.bounds, place, key=lambda entry: entry[0]) - 1][0]
        return begin, packed.ends[np.searchsorted(packed.ends, begin, "right") :]

    def state_dict(self) -> dict[str, Any]:
        """Return what was packed, for a checkpoint: plain numbers and text."""
        packed = {str(epoch): _saved(packed) for epoch, packed in self._epochs.items()}
        return {**ShuffledStream.state_dict(self), **packed}

    def state_at(self, position: int) -> dict[str, Any]:
        """Return what was packed when draws had come to a position that is not forgotten, and no further."""
        epoch, place = divmod(position, self.samples)
        known = self._epochs.get(epoch)
        return {} if known is None else {str(epoch): _saved(known.as_before(place + 1))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`.

        Raises:
            CheckpointError: it is none of a set of so many samples.
        """
        ShuffledStream.load_state_dict(self, state)
        versions = {int(epoch): saved for epoch, saved in state.items() if epoch != REORDERS}
        self._epochs = {epoch: _restored(saved, self.samples) for epoch, saved in versions.items()}

    def _check(self, rest: IntArray, bound: int) -> None:
        costs = self._mixing.costs_alone(self.sizes.take(rest))
        if not len(costs) or int(costs.max()) <= bound:
            return
        index, too_large = int(rest[int(np.argmax(costs))]), len(np.unique(rest[costs > bound]))
        cost, limit = int(costs.max()), bound
        others = f"; {counted(too_large - 1, 'other')} {'does' if too_large == 2 else 'do'} not fit either"
        raise SampleDoesNotFitError(
            Problem(
                f"{self.table.described(index)} takes {self._amount(cost)} in a batch of its own, more than "
                f"{self._bound_name}, {self._amount(limit)}{others if too_large > 1 else ''}",
                advice="Leave such samples out, make them smaller, or allow more memory.",
            ),
            index,
            self.table.tasks[self.table.task_ids[index]],
        )

    def _amount(self, cost: int) -> str:
        return f"{cost / MIB:,.1f} MiB" if self.cost.unit == "bytes" else f"{cost:,} {self.cost.unit}"


def _saved(packed: PackedEpoch) -> list[dict[str, Any]]:
    """Return an epoch as plain values, beginning with what it was first packed as."""
    versions: list[dict[str, Any]] = []
    version: PackedEpoch | None = packed
    while version is not None and version.bounds:
        bounds = [bound_as_plain(*entry) for entry in version.bounds]
        versions.insert(0, {"order": _as_text(version.order), "ends": _as_text(version.ends), "bounds": bounds})
        version = version.before
    return versions


def _restored(versions: Sequence[Mapping[str, Any]], samples: int) -> PackedEpoch:
    epoch = PackedEpoch(np.zeros(0, np.int64), np.zeros(0, np.int64), [])
    first = True
    for version in versions:
        order, ends = _from_text(version["order"]), _from_text(version["ends"])
        in_set = len(order) == samples and order.min() >= 0 and order.max() < samples
        if not in_set or not len(ends) or ends[-1] != samples or np.any(np.diff(ends, prepend=0) < 1):
            raise CheckpointError(f"the saved order of an epoch is none of {counted(samples, 'sample')}")
        bounds = [bound_from_plain(*entry) for entry in version["bounds"]]
        epoch = PackedEpoch(order, ends, bounds, None if first else epoch)
        first = False
    return epoch


def _as_text(numbers: NDArray[np.int64]) -> str:
    """Return whole numbers below 2**31 as compressed text, some bytes each."""
    return base64.b64encode(zlib.compress(numbers.astype("<i4").tobytes(), 1)).decode("ascii")


def _from_text(text: str) -> IntArray:
    """Return the numbers of :func:`_as_text`.

    Raises:
        CheckpointError: the text is damaged.
    """
    try:
        return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i4").astype(np.int64)
    except (ValueError, zlib.error) as error:
        raise CheckpointError(f"the saved order of an epoch is damaged: {error}") from error
