"""The samples and the loader of a loop of one's own."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from trainauto.control.effective_batch import EffectiveBatch
from trainauto.core.batch import Batch
from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, Plan
from trainauto.core.process import lacking_environment, parse_size_bytes
from trainauto.core.workload import Workload
from trainauto.data.batcher import Batcher, EpochBatches
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.data.dynamic_loader import DynamicDataLoader
from trainauto.data.packed_stream import PackedDraws, PackedStream
from trainauto.data.packing import SampleSizes, TokenCost
from trainauto.data.sampler import ShuffledStream
from trainauto.engine.training import Training
from trainauto.integrations.loop_axes import Growth, Values
from trainauto.integrations.map_samples import Collate, MapSamples, MapStyle, Resize, seeded
from trainauto.integrations.samples import NestedSamples, Weigh, sized_dimensions, template_of
from trainauto.integrations.structure import Structure, leaves_of
from trainauto.integrations.weighing import say_if_no_sum

logger = logging.getLogger(__name__)

Lengths = Sequence[int] | NDArray[np.int64]

LOOKAHEAD = 2
"""Batches between asking for a larger plan and getting it; a smaller one acts at once."""


@dataclass(frozen=True)
class LoopSamples:
    """What a loop draws, and how.

    Attributes:
        growth: axes, and the first plan.
        samples: of the dataset; they know their workload.
        structure: how batches are put together for losses.
        lengths: tokens of each sample, where plans are budgets of tokens.
    """

    growth: Growth
    samples: MapSamples
    structure: Structure
    lengths: Sequence[int] | None

    @classmethod
    def of(
        cls,
        dataset: MapStyle,
        collate_fn: Collate,
        values: Mapping[str, Values | None],
        resize: Resize | None,
        lengths: Sequence[int] | None,
        weigh: Weigh | None = None,
        workload: Workload | None = None,
    ) -> "LoopSamples":
        """Look at a few samples, and learn what batches of them are.

        Args:
            dataset: as of the loop.
            collate_fn: as of the loop.
            values: ``batch_size``, ``size`` and ``tokens`` of the loop.
            resize: as of the loop.
            lengths: as of the loop.
            weigh: as of the loop.
            workload: as of the loop.

        Raises:
            InputError: they cannot be trained so.
        """
        longest = max(lengths) if lengths is not None and len(lengths) else None
        growth = Growth.of(values["batch_size"], values["size"], values["tokens"], longest)
        _check_samples(dataset, lengths, growth, resize)
        samples = MapSamples(dataset, collate_fn, resize, growth.longest)
        return cls(growth, samples, teach_workload(samples, growth, lengths, weigh, workload), lengths)


@contextmanager
def as_not_drawn(loader: DynamicDataLoader, batch: Batch | None) -> Iterator[None]:
    """Have the state of a loader say that a batch in hand, which is not trained yet, comes again; ``None`` is none."""
    if batch is None:
        yield
        return
    loader.requeue(batch)
    try:
        yield
    finally:
        loader.withdraw(batch)


class LoopLoader(DynamicDataLoader):
    """A loader that goes on within the bounds of its loop, also from a state of one with others.

    Attributes:
        axes: bounds of plans.
        steps: of how many samples each step is, where that is fixed: bounds are then those of its forward passes.
    """

    axes: tuple[Axis, ...] = ()
    steps = EffectiveBatch()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume; a plan beyond the bounds becomes the nearest within them.

        Raises:
            InputError: the state is of a loop in which something else grows, or of another dataset.
        """
        names, theirs = {axis.name for axis in self.axes}, Plan.from_dict(state["plan"])
        if {name for name, _ in theirs.values} != names:
            raise InputError(f"the state is of a loop with {theirs}: this one grows {', '.join(sorted(names))}")
        super().load_state_dict(state)
        ahead = [self._tail.next_draw.plan, *(plan for _, plan in self._tail.changes)]
        if any(plan != self._within(plan) for plan in (self.plan, *ahead)):
            self.update_plan(self._within(self.plan))

    def _within(self, plan: Plan) -> Plan:
        forward = self.steps.forward(plan)
        within = forward.changed(**{axis.name: axis.clamp(forward[axis.name]) for axis in self.axes})
        return plan if within == forward else self.steps.whole(within)


def _check_samples(dataset: MapStyle, lengths: Sequence[int] | None, growth: Growth, resize: Resize | None) -> None:
    """Refuse samples that cannot be trained so.

    Raises:
        InputError: says what is wrong.
    """
    if not len(dataset):
        raise InputError("the dataset is empty")
    if lengths is not None and len(lengths) != len(dataset):
        raise InputError(f"there are {len(lengths)} lengths for {len(dataset)} samples")
    if lengths is not None and min(lengths) < 1:
        place = int(np.argmin(lengths))
        raise InputError(f"sample {place} has a length of {int(lengths[place])}: leave samples without tokens out")
    if growth.plan.has_size and growth.longest is None and resize is None:
        raise InputError("size needs resize: a function of a sample and a size that returns the sample of that size")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise InputError("an AdaptiveLoop trains in one process; option files train in several, under torchrun")


def teach_workload(
    samples: MapSamples,
    growth: Growth,
    lengths: Lengths | None,
    weigh: Weigh | None = None,
    workload: Workload | None = None,
    example: int = 0,
) -> Structure:
    """Look at a few samples: have the dataset know its workload, and return how its batches are put together.

    Where plans are no tokens, all samples are taken to be as large as sample ``example``. The generators of this
    process are as before.

    Raises:
        InputError: batches of these samples cannot be divided.
    """
    with seeded(0):
        sizes, (small, large, first) = _samples_of_two_sizes(samples, growth, lengths, example)
        one = samples.batch([large])
        structure = Structure.of(one)
        structure.rebuild(
            leaves_of(one)
        )  # a container that cannot be made again is refused here, not in the first step
        if workload is None:
            sized = sized_dimensions(samples.collate([small]), samples.collate([large]), *sizes)
            three = samples.batch([samples[_key(first, sizes[1])]] * 3)
            template = template_of(one, three, leaves_of, sized)
            workload = NestedSamples(template, weigh, counts_tokens=growth.longest is not None)
            if weigh is not None:
                leaves = leaves_of(three)
                with suppress(InputError):  # the first step says it, where it has begun
                    say_if_no_sum(workload.weight(workload.part(leaves, 0, 1)), workload.weight(leaves))
        elif weigh is not None:
            raise InputError("a workload weighs samples itself: leave weigh out")
    samples.workload = workload
    return structure


def _samples_of_two_sizes(
    samples: MapSamples, growth: Growth, lengths: Lengths | None, example: int
) -> tuple[tuple[int, int], tuple[Any, Any, int]]:
    """Return a small and a large size, 0 where there is none, samples of them, and which one the large one is."""
    if growth.longest is not None and lengths is not None:
        shortest, longest = int(np.argmin(lengths)), int(np.argmax(lengths))
        pair = [samples[_key(index, 0)] for index in (shortest, longest)]
        return (int(lengths[shortest]), growth.longest), (*pair, longest)
    if not growth.plan.has_size:
        return (0, 0), (samples[_key(example, 0)], samples[_key(example, 0)], example)
    axis = growth.axes[0]
    large = axis.clamp(axis.maximum)
    # It may begin with the largest one, and still has to be cut under pressure.
    small = growth.plan.size if growth.plan.size < large else axis.clamp(large // 2)
    return (small, large), (samples[_key(example, small)], samples[_key(example, large)], example)


def _key(index: int, size: int) -> SampleKey:
    return SampleKey(index, size, 0)


def build_loader(drawn: LoopSamples, seed: int, num_workers: int, device: torch.device) -> DynamicDataLoader:
    """Return the loader: of a budget of tokens, neighbours of similar length; batches end with each epoch.

    Raises:
        InputError: there cannot be so many workers.
    """
    if num_workers < 0:
        raise InputError(f"num_workers is {num_workers}: 0 loads samples in this process, more in as many others")
    samples, growth = drawn.samples, drawn.growth
    stream = ShuffledStream(len(samples), seed)
    batcher: Batcher = EpochBatches(len(samples))
    if growth.longest is not None:
        stream = packed = PackedStream(SampleSizes(np.asarray(drawn.lengths, np.int64)), TokenCost(), seed)
        batcher = PackedDraws(packed)
    loader = LoopLoader(
        samples,
        growth.plan,
        seed=seed,
        num_workers=num_workers,
        lookahead=max(LOOKAHEAD, num_workers),
        pin_memory=device.type == "cuda",
        stream=stream,
        outlives_sigterm=False,
        new_batcher=lambda _order, _sharding: batcher,
    )
    loader.axes = growth.axes
    return loader


def parse_budget(memory_budget: str | None) -> int | None:
    """Return a size in bytes.

    Raises:
        InputError: it is none.
    """
    if memory_budget is not None and not isinstance(memory_budget, str):
        raise InputError(f"memory_budget is {memory_budget!r}: write it with its unit, such as '600MiB' or '2GiB'")
    try:
        return parse_size_bytes(memory_budget) if memory_budget is not None else None
    except ValueError as error:
        raise InputError(f"memory_budget: {error}") from None


def say_what_is_lacking(module: nn.Module, run: Training) -> None:
    """Say what a loop may have forgotten: training mode, a limit, what was to be set before torch was imported."""
    if not module.training:
        logger.warning("the model is in evaluation mode and is trained so: model.train() is left to the loop")
    if run.limit_bytes is None:
        logger.info("no memory limit is known on this device: batches stay as they begin; set memory_budget")
    elif run.model.device.type == "cpu":
        warn_of_environment()


def warn_of_environment() -> None:
    """Say what was not set before torch was imported, for a memory budget on a CPU."""
    if lack := lacking_environment(os.environ):
        logger.warning(
            "%s, and a memory budget on a CPU needs it: libraries may keep memory that they reserved. Call "
            "trainauto.set_environment() before torch is imported",
            lack,
        )
