"""Cutting a batch down to a smaller plan: a pure function of the batch and the plan."""

from dataclasses import replace

from torch import Tensor

from trainauto.core.batch import Batch
from trainauto.core.plan import Plan
from trainauto.data.sampler import LoggedBatch


def first_piece(batch: Batch, samples: int, plan: Plan) -> Batch:
    """Take the first ``samples`` of a batch, none larger than the plan's size; the rest waits for the next step.

    How many that are, :meth:`~trainauto.core.sharding.SampleSharding.next_piece` says for all ranks together.
    """
    trained = batch.drawn.capped_by(plan)
    piece = _slice(batch, 0, samples)
    return replace(_cut(piece, trained.size) if trained.has_size else piece, plan=trained)


def logged_piece(batch: Batch, logged: LoggedBatch) -> Batch:
    """Take from ``batch`` what a log holds as the next one, in its size and under its plan."""
    return replace(_cut(_slice(batch, 0, logged.samples), logged.extent), plan=logged.plan)


def without_first(batch: Batch, samples: int) -> Batch:
    """Return the batch without its first samples: those that were trained already."""
    return _slice(batch, samples, len(batch)) if samples else batch


def _cut(batch: Batch, extent: int) -> Batch:
    """Cut samples down to ``extent`` where they are larger."""
    if extent >= batch.shape.extent:
        return batch
    return _holding(batch, batch.workload.shrink(batch.tensors, batch.shape.extent, extent))


def _slice(batch: Batch, start: int, stop: int) -> Batch:
    if (start, stop) == (0, len(batch)):
        return batch
    return _holding(replace(batch, names=batch.names[start:stop]), batch.workload.part(batch.tensors, start, stop))


def _holding(batch: Batch, tensors: dict[str, Tensor]) -> Batch:
    """Return a batch with other tensors, and with what is known of them."""
    return replace(batch, tensors=tensors, shape=batch.workload.shape(tensors), units=batch.workload.units(tensors))
