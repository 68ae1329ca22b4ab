"""A batch of samples of several kinds: the tensors a model is called with, and beside them what people may want."""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

METADATA = "metadata"

_newest: "list[weakref.ref[CollatedBatch]]" = []


class CollatedBatch(dict[str, Tensor]):
    """What ``model(**batch)`` takes, with ``metadata`` beside it: read as an attribute or as ``batch["metadata"]``.

    It is no key, so that a model never gets it, and stays when the batch is pickled, pinned, copied or moved.

    Args:
        tensors: by name, each with the sample as its first dimension.
        metadata: one mapping for each sample: ``task_type``, ``num_images``, ``num_tokens``, and what the sample holds
            that is no tensor of a batch.
    """

    metadata: list[dict[str, Any]]

    def __init__(self, tensors: Mapping[str, Tensor] | None = None, metadata: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(tensors or {})
        self.metadata = list(metadata)

    def __missing__(self, key: str) -> Any:
        if key == METADATA:
            return self.metadata
        raise KeyError(key)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "CollatedBatch":
        """Return the batch on a device."""
        tensors = {name: tensor.to(device, non_blocking=non_blocking) for name, tensor in self.items()}
        moved = CollatedBatch(tensors, self.metadata)
        if newest_batch() is self:
            note_newest(moved)
        return moved


def note_newest(batch: CollatedBatch) -> None:
    """Note that this is the batch that was made last in this process."""
    _newest[:] = [weakref.ref(batch)]


def newest_batch() -> CollatedBatch | None:
    """Return the batch that was made last in this process, as long as it is held anywhere; ``None`` else.

    In a loop over a ``DataLoader`` without workers that is the batch of the loop. Those of workers are not known.
    """
    return _newest[0]() if _newest else None
