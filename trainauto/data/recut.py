"""Cutting a batch down to a smaller plan: a pure function of the batch and the plan."""

from dataclasses import replace
from math import ceil

from trainauto.core.batch import Batch
from trainauto.core.plan import LQ_SIZE, Plan
from trainauto.data.draws import LoggedBatch
from trainauto.data.dynamic_dataset import DynamicDataset


def first_piece(batch: Batch, plan: Plan, dataset: DynamicDataset) -> tuple[Batch, Batch | None]:
    """Take from ``batch`` what ``plan`` allows in one step, and return it with what is left.

    A batch within the plan is returned whole. A larger one is taken in the fewest pieces that fit, as equal as possible
    (9 samples under 4 give 3, 3, 3), which also makes the pieces the same when the rest is cut after a resume. Crops
    larger than the plan's are cut down.
    """
    trained = batch.drawn.meet(plan)
    pieces = ceil(len(batch) / trained.batch_size)
    take = ceil(len(batch) / pieces)
    piece = _cut(_slice(batch, 0, take, dataset), trained[LQ_SIZE], dataset)
    rest = _slice(batch, take, len(batch), dataset) if take < len(batch) else None
    return replace(piece, plan=trained), rest


def logged_piece(batch: Batch, logged: LoggedBatch, dataset: DynamicDataset) -> Batch:
    """Take from ``batch`` what a log holds as the next one, in its size and under its plan."""
    return replace(_cut(_slice(batch, 0, logged.samples, dataset), logged.extent, dataset), plan=logged.plan)


def without_first(batch: Batch, samples: int, dataset: DynamicDataset) -> Batch:
    """Return the batch without its first samples: those that were trained before a resume."""
    return _slice(batch, samples, len(batch), dataset) if samples else batch


def _cut(batch: Batch, extent: int, dataset: DynamicDataset) -> Batch:
    """Cut crops down to ``extent`` pixels where they are larger."""
    if extent >= batch.shape.extent:
        return batch
    tensors = dataset.cut(batch.tensors, extent)
    return replace(batch, tensors=tensors, shape=dataset.shape(tensors), pixels=dataset.pixels(tensors))


def _slice(batch: Batch, start: int, stop: int, dataset: DynamicDataset) -> Batch:
    if (start, stop) == (0, len(batch)):
        return batch
    tensors = {name: tensor[start:stop] for name, tensor in batch.tensors.items()}
    return replace(
        batch,
        tensors=tensors,
        names=batch.names[start:stop],
        first_sample=batch.first_sample + start,
        shape=dataset.shape(tensors),
        pixels=dataset.pixels(tensors),
    )
