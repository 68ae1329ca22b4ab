"""Batches of any size in the form of collated ones: to be traced, so that what they hold does not matter."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trainauto.core.errors import InputError
from trainauto.integrations.map_samples import MapStyle
from trainauto.tasks.multitask.prediction.batch_memory import PaddedShape
from trainauto.tasks.multitask.prediction.task_sizes import Collate, TaskSizes, tokens_wide

MakeBatch = Callable[[PaddedShape], Any]
"""Makes a batch of a size; called among fake tensors, so its values do not matter."""

BY_IMAGES = ("pixel_values", "image_mask")
"""Tensors of a collated batch whose second dimension counts images."""


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

    def __init__(self, collate: Collate, dataset: MapStyle, sizes: TaskSizes) -> None:
        if not sizes.examples:
            raise InputError("samples: sizes alone do not say what a batch holds; give make_batch with them")
        self._collated = {
            has_images: _tensors(collate([dataset[index]])) for has_images, index in sizes.examples.items()
        }

    def __call__(self, shape: PaddedShape) -> dict[str, Tensor]:
        """Return a batch of a size."""
        has_images = shape.images > 0
        one = self._collated[has_images if has_images in self._collated else not has_images]
        tokens = tokens_wide(one)
        made = {}
        for name, tensor in one.items():
            sizes = [shape.samples, *tensor.shape[1:]]
            if name in BY_IMAGES and tensor.ndim > 1:
                # Collators that know the shape of images keep a place where there is none.
                sizes[1] = max(min(1, sizes[1]), shape.images)
            elif tensor.ndim > 1 and 0 < tokens == sizes[1]:
                sizes[1] = shape.tokens
            made[name] = torch.zeros(sizes, dtype=tensor.dtype)
        return made


def _tensors(batch: Any) -> dict[str, Tensor]:
    tensors = {name: value for name, value in batch.items() if isinstance(value, Tensor)}
    if not tensors or any(tensor.ndim == 0 or len(tensor) != 1 for tensor in tensors.values()):
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        raise InputError(f"collator: a batch of one sample must hold tensors with one row each, got {shapes}")
    return tensors
