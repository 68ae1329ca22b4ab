"""The training samples of a Trainer as the engine draws them: growth, samples, stream, loader."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers.utils import is_datasets_available

from trainauto.control.effective_batch import EffectiveBatch
from trainauto.core.errors import InputError
from trainauto.core.plan import BATCH_SIZE, Axis, Plan
from trainauto.core.sharding import SampleSharding
from trainauto.data.batcher import Batcher, EpochBatches, SharedEpochs
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.data.packed_stream import PackedDraws, PackedStream
from trainauto.data.packing import SampleSizes, TokenCost
from trainauto.data.sampler import ShuffledStream
from trainauto.integrations.huggingface.arguments import own_argument
from trainauto.integrations.huggingface.lengths import (
    LengthGroupedStream,
    SequentialStream,
    checksum_of_rows,
    grouping_window,
    lengths_of,
    longest_sample,
)
from trainauto.integrations.huggingface.own_stream import OwnStream
from trainauto.integrations.huggingface.refusals import about_the_collator
from trainauto.integrations.loop_axes import Growth, Range
from trainauto.integrations.loop_parts import LOOKAHEAD, LoopLoader, teach_workload
from trainauto.integrations.map_samples import MapSamples, seeded
from trainauto.integrations.samples import NestedSamples, Template, template_of
from trainauto.integrations.structure import Structure, leaves_of

TRAIN_SET = "train_dataset"
"""What a Trainer calls what it trains on."""

STEP_SAMPLES = "step_samples"
"""Attribute of arguments: samples of every step, where they are no product of passes and batches, or of one pass."""


@dataclass(frozen=True)
class TrainData:
    """What is trained on.

    Attributes:
        samples: the dataset, by keys.
        structure: how batches are put together.
        growth: what grows, and between which bounds.
        loader: draws batches.
        step_samples: samples of every step of a process, the fewest where steps may grow; ``None`` where it is a budget
            of tokens.
        some_rows: checksum of a few rows, where samples have rows of tokens.
        steps_may_grow: whether a pass that holds more than ``step_samples`` makes the step larger.
        accumulates: whether ``gradient_accumulation_steps`` or :data:`STEP_SAMPLES` says how many samples a step has.
    """

    samples: MapSamples
    structure: Structure
    growth: Growth
    loader: LoopLoader
    step_samples: int | None
    some_rows: int | None = None
    steps_may_grow: bool = False
    accumulates: bool = False

    def axes_of_passes(self, *, may_grow: bool) -> tuple[Axis, ...]:
        """Return the bounds of plans: where passes may not grow, those of steps are no larger than they begin."""
        if may_grow or self.step_samples is None or self.steps_may_grow:
            return self.growth.axes
        largest = self.growth.plan.forward_batch_size
        return tuple(
            replace(axis, maximum=min(axis.maximum, largest)) if axis.name == BATCH_SIZE else axis
            for axis in self.growth.axes
        )

    @property
    def steps_may_change(self) -> bool:
        """Whether memory decides how many samples a step has."""
        return self.step_samples is None or self.steps_may_grow

    @property
    def first_step_samples(self) -> float:
        """Samples of a step that a run begins with, on one rank; a mean where steps are budgets of tokens."""
        return self.samples.mean_samples(self.loader.plan)


def build_train_data(trainer: Any, passes: int) -> TrainData:
    """Return what a Trainer trains on.

    Args:
        trainer: whose.
        passes: its ``gradient_accumulation_steps``.

    Raises:
        InputError: samples or bounds cannot be used.
    """
    args = trainer.args
    dataset, collate = usable_columns(trainer, trainer.train_dataset, "training")
    if not len(dataset):
        raise InputError("train_dataset is empty")
    own: OwnStream | None = trainer.own_stream(_seed(args), _fixed_samples(args, passes))
    lengths = _lengths(trainer) if own is None else own.costs
    if own is not None and own.costs is not None:
        growth = _packed_growth(args, int(own.costs.max()))
    else:
        counts_tokens = own_argument(args, "tokens_per_batch") is not None
        growth = _growth(args, passes, lengths if counts_tokens else None)
    samples = MapSamples(dataset, collate, longest=growth.longest)
    samples.name = TRAIN_SET
    samples.known_checksums = trainer.data_checksums()
    if lengths is not None:
        samples.known_checksums = {
            **samples.known_checksums,
            "lengths of rows": zlib.crc32(np.ascontiguousarray(lengths).data),
        }
    with seeded(0):  # samples may draw; the run's generators are as before
        some_rows = checksum_of_rows(trainer.train_dataset, _rows(trainer)[1])
        longest = int(np.argmax(lengths)) if lengths is not None else _largest_sample(trainer)
    with about_the_collator():
        if own is not None and own.workload is not None:
            structure = _teach_packed(samples, longest, own.workload)
        elif (taught := _teach_own(trainer, samples, longest)) is not None:
            structure = taught
        else:
            structure = teach_workload(samples, growth, lengths, example=longest)
    loader = _loader(args, samples, growth, _stream(args, samples, growth, lengths, own))
    step_samples = _step_samples(args, passes) if BATCH_SIZE in growth.plan else None
    may_grow = step_samples is not None and growth.axes[0].maximum > step_samples
    loader.axes, loader.steps = growth.axes, EffectiveBatch(step_samples, may_grow=may_grow)
    samples.mean_length = float(np.mean(lengths)) if lengths is not None else None
    samples.mean_of_packed = own.mean_samples if own is not None else None
    accumulates = _fixed_samples(args, passes) is not None
    return TrainData(samples, structure, growth, loader, step_samples, some_rows, may_grow, accumulates)


def _lengths(trainer: Any) -> NDArray[np.int64] | None:
    """Return how wide the rows of samples are in batches, where batches go by that."""
    args = trainer.args
    if own_argument(args, "tokens_per_batch") is None and args.train_sampling_strategy != "group_by_length":
        return None
    multiple = getattr(trainer.data_collator, "pad_to_multiple_of", None) or 1
    return -(-lengths_of(trainer.train_dataset, *_rows(trainer)) // multiple) * multiple


def _largest_sample(trainer: Any) -> int:
    known: int | None = trainer.largest_sample()
    return known if known is not None else longest_sample(trainer.train_dataset, *_rows(trainer))


def _rows(trainer: Any) -> tuple[str, str]:
    """Return where lengths of samples stand: the column of lengths, and that of the rows themselves."""
    return trainer.args.length_column_name, getattr(trainer.model, "main_input_name", "input_ids")


def usable_columns(trainer: Any, dataset: Any, description: str) -> tuple[Any, Any]:
    """Return a dataset and a collator that leave out columns which the model does not know, as the Trainer does."""
    if is_datasets_available():
        datasets = import_module("datasets")

        if isinstance(dataset, datasets.Dataset):
            return trainer._remove_unused_columns(dataset, description=description), trainer.data_collator
    return dataset, trainer._get_collator_with_removed_columns(trainer.data_collator, description=description)


def _growth(args: Any, passes: int, lengths: NDArray[np.int64] | None) -> Growth:
    """Return what grows.

    Raises:
        InputError: the bounds leave nothing.
    """
    start, most = args.per_device_train_batch_size, own_argument(args, "max_batch_size")
    if lengths is not None:
        tokens = own_argument(args, "tokens_per_batch")
        if passes > 1:
            raise InputError(
                "tokens_per_batch are those of a step: with it gradient_accumulation_steps is 1, and a step that does "
                "not fit runs in parts by itself"
            )
        most_tokens = own_argument(args, "max_tokens_per_batch") or tokens
        return Growth.of(None, None, Range(tokens, most_tokens), int(lengths.max()))
    least = own_argument(args, "min_batch_size")
    whole = _step_samples(args, passes)
    largest = most or start if _fixed_samples(args, passes) is None else min(most or whole, whole)
    growth = Growth.of(Range(start, largest, least), None, None, None)
    return Growth(growth.axes, Plan.of(batch_size=whole, micro_batches=passes))


def _packed_growth(args: Any, largest_cost: int) -> Growth:
    """Return the growth of batches that are packed: bounds are what so many of the dearest sample cost."""
    start, most = args.per_device_train_batch_size, own_argument(args, "max_batch_size")
    least = own_argument(args, "min_batch_size")
    costs = Range(*(count * largest_cost for count in (start, max(start, most or start), least)))
    return Growth.of(None, None, costs, largest_cost)


def _teach_packed(samples: MapSamples, largest: int, workload: Callable[[Template], NestedSamples]) -> Structure:
    """Have the dataset know its workload by the sample that costs most, and return how batches are put together."""
    with seeded(0):
        sample = samples[SampleKey(largest, 0, 0)]
        one, three = samples.batch([sample]), samples.batch([sample] * 3)
    samples.workload = workload(template_of(one, three, leaves_of, {}))
    return Structure.of(one)


def _teach_own(trainer: Any, samples: MapSamples, largest: int) -> Structure | None:
    """Have the dataset know the workload of the Trainer's class; ``None`` where it has none of its own."""
    with seeded(0):
        one = samples.batch([samples[SampleKey(largest, 0, 0)]])
    workload = trainer.own_workload(one)
    if workload is None:
        return None
    samples.workload = workload
    return Structure.of(one)


def _fixed_samples(args: Any, passes: int) -> int | None:
    """Return the samples of a step on this rank, where accumulation or an argument fixes them."""
    of_passes = args.per_device_train_batch_size * passes if passes > 1 else None
    fixed: int | None = own_argument(args, STEP_SAMPLES) or of_passes
    return fixed


def _step_samples(args: Any, passes: int) -> int:
    """Return the samples of a step on this rank; the fewest, where memory may make them more."""
    return _fixed_samples(args, passes) or int(args.per_device_train_batch_size)


def _seed(args: Any) -> int:
    seed: int = args.data_seed if args.data_seed is not None else args.seed
    return seed


def _loader(args: Any, samples: MapSamples, growth: Growth, drawn: tuple[ShuffledStream, Batcher]) -> LoopLoader:
    stream, batcher = drawn
    return LoopLoader(
        samples,
        growth.plan,
        seed=_seed(args),
        num_workers=args.dataloader_num_workers,
        lookahead=max(LOOKAHEAD, args.dataloader_num_workers),
        sharding=SampleSharding.equal(args.world_size),
        rank=args.process_index,
        pin_memory=args.dataloader_pin_memory and args.device.type == "cuda",
        multiprocessing_context=getattr(args, "dataloader_multiprocessing_context", None),
        stream=stream,
        new_batcher=lambda _order, _sharding: batcher,
    )


def _stream(
    args: Any, samples: MapSamples, growth: Growth, lengths: NDArray[np.int64] | None, own: OwnStream | None
) -> tuple[ShuffledStream, Batcher]:
    seed = _seed(args)
    if own is not None and own.packed is not None:
        return own.packed, PackedDraws(own.packed)
    if growth.longest is not None:
        if args.world_size > 1:
            raise InputError("tokens_per_batch is for one process: with several, count batches in samples")
        packed = PackedStream(SampleSizes(np.asarray(lengths, np.int64)), TokenCost(), seed)
        return packed, PackedDraws(packed)
    batcher: Batcher = EpochBatches(len(samples))
    if args.world_size > 1:
        batcher = SharedEpochs(len(samples), args.world_size)
    if own is not None:
        return own.stream, batcher
    if lengths is not None:
        return LengthGroupedStream(lengths, grouping_window(len(samples), growth.plan.batch_size), seed), batcher
    if args.train_sampling_strategy == "sequential":
        return SequentialStream(len(samples), seed), batcher
    return ShuffledStream(len(samples), seed), batcher
