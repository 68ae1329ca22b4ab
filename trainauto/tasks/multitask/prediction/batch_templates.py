"""Batches of any size in the form of collated ones: to be traced, so that what they hold does not matter."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainauto.core.errors import InputError
from trainauto.tasks.multitask.prediction.batch_memory import PaddedShape
from trainauto.tasks.multitask.prediction.task_sizes import Collate, Described, TaskSizes

MakeBatch = Callable[[PaddedShape], Any]
"""Makes a batch of a size; called among fake tensors, so its values do not matter."""

BY_IMAGES = ("pixel_values", "image_mask")
"""Tensors of a collated batch whose second dimension counts images."""


@dataclass(frozen=True)
class _Entry:
    """A tensor of a collated batch: samples, then tokens or images where ``follows`` says so, then what is fixed.

    Attributes:
        follows: ``tokens``, ``images``, or nothing.
        least: places there are where a batch has no image: collators that know the shape of images keep one.
        fixed: its other dimensions.
        dtype: of its values.
    """

    follows: str
    least: int
    fixed: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, name: str, tensor: Tensor, tokens: int) -> "_Entry":
        follows = ""
        if tensor.ndim > 1:
            follows = "images" if name in BY_IMAGES else "tokens" if tensor.shape[1] == tokens else ""
        least = min(1, tensor.shape[1]) if follows == "images" else 0
        return cls(follows, least, tuple(tensor.shape[2 if follows else 1 :]), tensor.dtype)

    def made(self, shape: PaddedShape) -> Tensor:
        second = {"images": (max(self.least, shape.images),), "tokens": (shape.tokens,)}.get(self.follows, ())
        return torch.zeros((shape.samples, *second, *self.fixed), dtype=self.dtype)


class BatchTemplates:
    """Makes batches in the form of those of a collator.

    One sample with images and one without are loaded and collated, where there are such; images are all of one size.
    What is no tensor (metadata) is left out.

    Args:
        collate: makes batches.
        dataset: what it makes them of.
        sizes: of the dataset.

    Raises:
        InputError: batches are no mappings of tensors.
    """

    def __init__(self, collate: Collate, dataset: Described, sizes: TaskSizes) -> None:
        if not sizes.examples:
            raise InputError("samples: sizes alone do not say what a batch holds; give make_batch with them")
        collated = {has_images: collate([dataset[index]]) for has_images, index in sizes.examples.items()}
        self._entries = {has_images: _entries(batch) for has_images, batch in collated.items()}

    def __call__(self, shape: PaddedShape) -> dict[str, Tensor]:
        """Return a batch of a size."""
        has_images = shape.images > 0
        entries = self._entries[has_images if has_images in self._entries else not has_images]
        return {name: entry.made(shape) for name, entry in entries.items()}


def _entries(batch: Mapping[str, Any]) -> dict[str, _Entry]:
    tensors = {name: value for name, value in batch.items() if isinstance(value, Tensor)}
    if not tensors or any(tensor.ndim == 0 or len(tensor) != 1 for tensor in tensors.values()):
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        raise InputError(f"collator: a batch of one sample must hold tensors with one row each, got {shapes}")
    ids = tensors.get("input_ids")
    tokens = int(ids.shape[1]) if ids is not None and ids.ndim > 1 else -1
    return {name: _Entry.of(name, tensor, tokens) for name, tensor in tensors.items()}
