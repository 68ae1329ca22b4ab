"""A batch in parts of whole samples."""

from collections.abc import Callable, Mapping, MutableMapping
from copy import copy
from typing import Any, Generic, NamedTuple, TypeVar

from torch import Tensor

from trainauto.core.errors import InputError
from trainauto.tasks.multitask.batches.collated_batch import CollatedBatch

Result = TypeVar("Result")


class Part(NamedTuple, Generic[Result]):
    """What came of a part of a batch.

    Attributes:
        samples: how many it holds.
        result: of the forward pass.
    """

    samples: int
    result: Result


def run_each_part(forward: Callable[[Any], Result], batch: Any, samples: int, size: int) -> list[Part[Result]]:
    """Return what comes of a batch in parts of so many samples, one after the other.

    Args:
        forward: is called for each.
        batch: see :func:`rows_between`.
        samples: of the batch.
        size: samples of a part.
    """
    starts = range(0, samples, size)
    parts = [batch] if size >= samples else (rows_between(batch, start, start + size) for start in starts)
    return [Part(min(size, samples - start), forward(part)) for start, part in zip(starts, parts, strict=True)]


def rows_of(batch: Any) -> int:
    """Return how many samples a batch holds: the rows of its tensors.

    Raises:
        InputError: it holds no tensor.
    """
    tensors = [batch] if isinstance(batch, Tensor) else list(batch.values()) if isinstance(batch, Mapping) else []
    rows = next((len(tensor) for tensor in tensors if isinstance(tensor, Tensor) and tensor.ndim), None)
    if rows is None:
        kind = type(batch).__name__
        raise InputError(f"a batch is a tensor, or a mapping with tensors of one row a sample, not {kind}")
    return rows


def rows_between(batch: Any, start: int, stop: int) -> Any:
    """Return some samples of a batch; what has not one row a sample stays whole.

    A batch of a class of its own stays one of that class: what is done with it is the same for a part.
    """
    if isinstance(batch, Tensor):
        return batch[start:stop]
    rows = rows_of(batch)
    rows_here = {
        name: value[start:stop]
        if ((isinstance(value, Tensor) and value.ndim) or isinstance(value, list | tuple)) and len(value) == rows
        else value
        for name, value in batch.items()
    }
    if not isinstance(batch, MutableMapping):
        return rows_here
    part = copy(batch)
    part.update(rows_here)
    if isinstance(part, CollatedBatch):
        part.metadata = part.metadata[start:stop]
    return part
