"""Cutting a batch down to a smaller plan: a pure function of the batch and the plan."""

from dataclasses import replace
from math import ceil

from trainauto.core.batch import Batch
from trainauto.core.plan import LQ_SIZE, Plan
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
    piece = _slice(batch, 0, take, dataset)
    if trained[LQ_SIZE] < piece.shape.extent:
        tensors = dataset.cut(piece.tensors, trained[LQ_SIZE])
        piece = replace(piece, tensors=tensors, shape=dataset.shape(tensors), pixels=dataset.pixels(tensors))
    rest = _slice(batch, take, len(batch), dataset) if take < len(batch) else None
    return replace(piece, plan=trained), rest


def without_first(batch: Batch, samples: int, dataset: DynamicDataset) -> Batch:
    """Return the batch without its first samples: those that were trained before a resume."""
    return _slice(batch, samples, len(batch), dataset) if samples else batch


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
