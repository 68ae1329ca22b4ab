"""Cutting a batch down to a smaller plan: a pure function of the batch and the plan."""

from dataclasses import replace

from trainauto.core.batch import Batch
from trainauto.core.plan import LQ_SIZE, Plan
from trainauto.data.dynamic_dataset import DynamicDataset
from trainauto.data.sampler import LoggedBatch


def first_piece(batch: Batch, samples: int, plan: Plan, dataset: DynamicDataset) -> Batch:
    """Take the first ``samples`` of a batch, with crops no larger than the plan's; the rest waits for the next step.

    How many that are, :meth:`~trainauto.core.sharding.SampleSharding.next_piece` says for all ranks together.
    """
    trained = batch.drawn.capped_by(plan)
    piece = _cut(_slice(batch, 0, samples, dataset), trained[LQ_SIZE], dataset)
    return replace(piece, plan=trained)


def logged_piece(batch: Batch, logged: LoggedBatch, dataset: DynamicDataset) -> Batch:
    """Take from ``batch`` what a log holds as the next one, in its size and under its plan."""
    return replace(_cut(_slice(batch, 0, logged.samples, dataset), logged.extent, dataset), plan=logged.plan)


def without_first(batch: Batch, samples: int, dataset: DynamicDataset) -> Batch:
    """Return the batch without its first samples: those that were trained already."""
    return _slice(batch, samples, len(batch), dataset) if samples else batch


def _cut(batch: Batch, extent: int, dataset: DynamicDataset) -> Batch:
    """Cut crops down to ``extent`` pixels where they are larger."""
    if extent >= batch.shape.extent:
        return batch
    tensors = dataset.crop_batch(batch.tensors, extent)
    return replace(batch, tensors=tensors, shape=dataset.shape(tensors), pixels=dataset.pixels(tensors))


def _slice(batch: Batch, start: int, stop: int, dataset: DynamicDataset) -> Batch:
    if (start, stop) == (0, len(batch)):
        return batch
    tensors = {name: tensor[start:stop] for name, tensor in batch.tensors.items()}
    return replace(
        batch,
        tensors=tensors,
        names=batch.names[start:stop],
        shape=dataset.shape(tensors),
        pixels=dataset.pixels(tensors),
    )
