"""Tokenized texts as the loader asks for samples, and how its draws are made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from trainauto.core.batch import Batch
from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import TOKENS, Axis, Plan
from trainauto.core.sharding import SINGLE_PROCESS, SampleSharding
from trainauto.data.batcher import Batcher
from trainauto.data.dynamic_dataset import ACCEPT, DatasetScan, DynamicDataset, SampleKey
from trainauto.data.packed_stream import PackedDraws, PackedStream
from trainauto.data.packing import IntArray, SampleSizes, TokenCost
from trainauto.data.sampler import ShuffledStream
from trainauto.tasks.text.training.row_layouts import PackedRows, PaddedRows, RowLayout
from trainauto.tasks.text.training.token_samples import TokenSamples, batch_of
from trainauto.tasks.text.training.tokenized_samples import ModelKind, TokenizedSamples


class TextDataset(DynamicDataset):
    """Tokenized texts; a sample is as long as it is, whatever the plan.

    Args:
        name: of the set, in messages.
        samples: tokens of all texts, one block of memory that workers share.
        kind: of the model.
        row_length: width of rows that texts are packed into; ``None`` pads them.

    Raises:
        InputError: texts are longer than rows, or pairs are to be packed.
    """

    knows_largest = True
    if_changed = (
        "Restore the texts, and how they are cut (max_length, too_long, split, tokenizer); "
        f"{ACCEPT} takes them as they are, and begins an epoch; or leave --auto_resume out: a run of its own begins, "
        "from these weights with model.pretrained."
    )
    workload: TokenSamples
    bounding_option = f"max_{TOKENS}"

    def __init__(
        self, name: str, samples: TokenizedSamples, kind: ModelKind = "causal", row_length: int | None = None
    ) -> None:
        self.name = name
        self.samples = samples
        self.workload = TokenSamples.of(kind, layout_of(kind, row_length, int(samples.lengths.max())), samples)
        self.largest_sample = int(np.argmax(self.sizes))

    @property
    def sizes(self) -> IntArray:
        """Size of each sample, as budgets count it."""
        return self.workload.sizes(self.samples.lengths, self.samples.label_lengths)

    @property
    def row_tokens(self) -> int:
        """What budgets of tokens are multiples of: the longest sample, or the width of packed rows."""
        return row_tokens(self.workload)

    def __len__(self) -> int:
        return len(self.samples)

    def sample_name(self, index: int) -> str:
        """Return the file of a sample, and the line it begins in."""
        return self.samples.places[index]

    def sample_key(self, index: int) -> str:
        """Return the number of a sample."""
        return f"sample_{index}"

    def mean_samples(self, plan: Plan) -> float:
        """Return how many texts a budget of tokens has room for, padding left aside."""
        return max(1.0, plan.size / float(self.sizes.mean()))

    def checksums(self) -> Mapping[str, int]:
        """Return checksums of tokens and labels, by file."""
        return self.samples.checksums

    def scan(self) -> DatasetScan:
        """Return what was found when the texts were read."""
        smallest = int(np.argmin(self.sizes))
        held = self.samples.tokens.nbytes + self.samples.labels.nbytes
        return DatasetScan(len(self), int(self.sizes[smallest]), self.sample_name(smallest), held)

    def __getitem__(self, key: SampleKey) -> dict[str, Tensor]:
        return batch_of(self.samples, [key.sample])

    def __getitems__(self, keys: Sequence[SampleKey]) -> list[dict[str, Tensor]]:
        """Make the samples of a batch, all at once: of a large one, one by one takes twenty times as long."""
        return [self.batch([key.sample for key in keys])]

    def full_sample(self, index: int) -> dict[str, Tensor]:
        """Return a sample as a batch of one."""
        return batch_of(self.samples, [index])

    def collate(self, samples: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return samples behind each other."""
        return self.workload.join(samples)

    def batch(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Return these samples as a batch."""
        return batch_of(self.samples, indices)

    def largest_batch(self, plan: Plan, samples: int) -> dict[str, Tensor]:
        """Return a batch as large as a plan allows."""
        del samples
        return self.workload.largest(plan.size)


def layout_of(kind: ModelKind, row_length: int | None, longest: int = 0) -> RowLayout:
    """Return how rows are made.

    Raises:
        InputError: texts are longer than rows, or pairs are to be packed.
    """
    if row_length is None:
        return PaddedRows()
    if kind == "encoder_decoder":
        advice = "Leave packed out: pairs are padded, beside others of their length."
        raise InputError(Problem("packed rows are for causal models", advice=advice, argument="packed"))
    if longest > row_length:
        message = f"rows of {row_length} tokens hold no text of {longest}"
        advice = "Set row_length to max_length at least."
        raise InputError(Problem(message, advice=advice, argument="row_length"))
    return PackedRows(row_length)


def row_tokens(workload: TokenSamples) -> int:
    """Return what budgets of tokens are multiples of: the longest sample, or the width of packed rows."""
    return workload.layout.row_length if isinstance(workload.layout, PackedRows) else workload.longest


def token_axis(row: int, least: int = 1, most: int = 2**24) -> Axis:
    """Return the axis of a budget of tokens: whole rows, so that the largest batch of a plan has just as many.

    Args:
        row: see :attr:`TextDataset.row_tokens`.
        least: smallest budget; a row where that is less.
        most: largest budget; no less than ``least``.
    """
    smallest = max(1, least // row) * row
    return Axis(TOKENS, "tokens", smallest, max(smallest, most // row * row), row)


@dataclass(frozen=True)
class PackedRowDraws:
    """Draws hold as many texts, in shuffled order, as the plan's tokens have rows for on each rank.

    Attributes:
        stream: of the samples; it knows how they are divided among ranks.
        lengths: of all samples.
        layout: of the rows.
    """

    stream: ShuffledStream
    lengths: IntArray
    layout: PackedRows

    def batch_size(self, first_sample: int, plan: Plan) -> int:
        """Return how many of the texts that come next fit, none beyond the end of the epoch."""
        return self.stream.sharding.most_of(self._together(first_sample, plan))

    def lacking(self, first_sample: int, plan: Plan) -> int:
        """Return how many texts the draw has less than its largest share says."""
        together, sharding = self._together(first_sample, plan), self.stream.sharding
        return sharding.total(sharding.most_of(together)) - together

    def _together(self, first_sample: int, plan: Plan) -> int:
        """Return how many of the texts that come next fit the rows of all ranks, which have their shares in turn."""
        sharding = self.stream.sharding
        rows = sharding.samples(max(1, plan.size // self.layout.row_length))
        epoch, place = divmod(first_sample, len(self.lengths))
        # No row holds more texts than it has tokens.
        room = sum(rows) * self.layout.row_length
        lengths = self.lengths[self.stream.order(epoch)[place : place + room]]
        together = int(np.searchsorted(np.cumsum(lengths), room, "right"))
        while True:  # which rank has a text depends on the largest share, where shares differ
            largest = sharding.most_of(together)
            # The first text of each rank that has no room ends the draw.
            ends = [self._end(lengths, sharding.places(largest, rank), of_rank) for rank, of_rank in enumerate(rows)]
            together = min(together, *ends)
            if sharding.is_equal or sharding.most_of(together) == largest:
                return together

    def _end(self, lengths: IntArray, places: Sequence[int], rows: int) -> int:
        """Return the place of the first of a rank's texts that its rows have no room for, or the end of all."""
        within = [place for place in places if place < len(lengths)]
        fitting = self.layout.fitting(lengths[within], rows) if within else 0
        return within[fitting] if fitting < len(within) else len(lengths)

    def part_size(self, first_sample: int, samples: int, plan: Plan) -> int:
        """Return how many of the next samples fit the plan together; one is taken to."""
        sharding = self.stream.sharding
        # Of what is drawn already no rank lacks a text, so that all of them are as many as fit on each.
        most = min(samples, sharding.held_by(self._together(first_sample, plan)))
        if sharding.is_equal:
            return most
        # Which rank has which text depends on the whole draw: the number returned fits for any assignment.
        epoch, place = divmod(first_sample, len(self.lengths))
        lengths = self.lengths[self.stream.order(epoch)[place:]]
        return next((batch for batch in range(most, 1, -1) if self._fits_any_way(lengths, batch, plan)), 1)

    def _fits_any_way(self, lengths: IntArray, batch_size: int, plan: Plan) -> bool:
        """Say whether each rank has room for its number of the next texts, whichever these are, in any order.

        A row that has no room for a text is filled but for less than that: rows of ``length`` hold texts of
        ``rows * (length - longest + 1)`` tokens for sure.
        """
        sharding, row = self.stream.sharding, self.layout.row_length
        sorted_down = np.sort(lengths[: sharding.total(batch_size)])[::-1]
        room = row - int(sorted_down.max(initial=0)) + 1
        of_ranks = zip(sharding.samples(batch_size), sharding.samples(max(1, plan.size // row)), strict=True)
        return all(count <= rows or int(sorted_down[:count].sum()) <= rows * room for count, rows in of_ranks)


def draws_of(
    dataset: TextDataset, seed: int, sharding: SampleSharding = SINGLE_PROCESS
) -> tuple[ShuffledStream, Batcher]:
    """Return the order of texts, and how many a draw holds: what the loader is given as ``stream`` and batcher.

    Padded texts come beside others of similar length, their batches in random order; packed ones in random order.

    Args:
        dataset: the texts.
        seed: decides the order.
        sharding: how each draw is divided among ranks; a plan's tokens are those of the largest share.
    """
    if isinstance(dataset.workload.layout, PackedRows):
        shuffled = ShuffledStream(len(dataset), seed)
        shuffled.sharding = sharding
        return shuffled, PackedRowDraws(shuffled, dataset.samples.lengths, dataset.workload.layout)
    stream = PackedStream(SampleSizes(dataset.sizes), TokenCost(), seed)
    stream.sharding = sharding
    return stream, PackedDraws(stream)


def largest_batch(workload: TokenSamples, plan: Plan) -> Batch:
    """Return the largest batch of a plan, as it leaves the loader: for traces, which need no texts."""
    tensors = workload.largest(plan.size)
    shape = workload.shape(tensors)
    names = ("",) * shape.samples
    units = workload.units(tensors)
    return Batch(tensors, workload, names, 0, plan, plan, shape, units, draw_samples=shape.samples)
