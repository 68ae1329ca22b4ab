"""Samples of several kinds become a batch, padded to its own longest text and its own most images."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.integrations.map_samples import MapStyle
from trainauto.tasks.multitask.batches.collated_batch import CollatedBatch, note_newest
from trainauto.tasks.multitask.batches.collated_labels import collated_labels
from trainauto.tasks.multitask.batches.padded_images import Shape, first_image_shape, padded_images
from trainauto.tasks.multitask.batches.padded_rows import (
    IDS,
    LABELS,
    MASK,
    Row,
    RowPadding,
    padded_rows,
    row_limit,
    rows_of,
)
from trainauto.tasks.multitask.batches.samples import images_in, read_samples
from trainauto.tasks.multitask.prediction.published_constants import PUBLISHED

OWN = {"text", IDS, MASK, LABELS, "label", "images", "task_type"}
"""What of a sample becomes tensors; all else goes to the metadata."""


class HeterogeneousCollator:
    """Makes a batch of samples with any number of images and texts of any length.

    A batch has ``input_ids`` and ``attention_mask`` (N, longest), ``labels``, ``pixel_values`` (N, most images, C, H,
    W), ``image_mask`` (N, most images), ``task_ids`` (N,), and beside them ``metadata``. It is as wide as its own
    longest text, and has room for the most images of its own samples.

    Labels are, of samples with a ``label``, one number for each (N,); of samples with ``labels``, their rows; else the
    tokens themselves, as causal models learn them. What is padding, or has no label, is -100.

    Args:
        tokenizer: any of transformers', of either padding side, with a padding token or without; or a function of texts
            that returns ``{"input_ids": rows}``. ``None`` where all samples have ``input_ids``.
        tasks: names of the tasks in the order of their ids: by default those of the published example.
            ``sampler.tasks`` are those of a dataset.
        max_length: texts are cut to so many tokens; to what the tokenizer's model takes where it is ``None``.
        dtype: of ``pixel_values``; ``None`` for that of the images.
        image_shape: (C, H, W) of an image. With it batches without images have ``pixel_values``, too, all zeros.
        pad_to_multiple_of: widths of rows are multiples of this.

    Raises:
        InputError: an argument cannot be used.
    """

    def __init__(
        self,
        tokenizer: Any = None,
        *,
        tasks: Sequence[str] = tuple(PUBLISHED),
        max_length: int | None = None,
        dtype: torch.dtype | None = None,
        image_shape: Shape | None = None,
        pad_to_multiple_of: int | None = None,
    ) -> None:
        for name, value in {"max_length": max_length, "pad_to_multiple_of": pad_to_multiple_of}.items():
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InputError(f"{name} is a whole number, 1 or more, got {value!r}")
        if isinstance(tasks, str) or len(set(tasks)) < len(tasks):
            raise InputError(f"tasks are the names of the tasks, each once, got {tasks!r}")
        self.tokenizer = tokenizer
        self.tasks = tuple(tasks)
        self.max_length, self.dtype, self.image_shape = max_length, dtype, image_shape
        self.pad_to_multiple_of = pad_to_multiple_of

    @classmethod
    def of_dataset(cls, dataset: MapStyle, tokenizer: Any = None, **settings: Any) -> Self:
        """Return a collator that knows the tasks of a dataset, and the shape of its images.

        Args:
            dataset: see :func:`~trainauto.tasks.multitask.batches.samples.read_samples`; a sample with images is
                loaded.
            tokenizer: as of the collator.
            settings: as of the collator.

        Raises:
            InputError: the dataset or a setting cannot be used.
        """
        collator = cls(tokenizer, **settings)
        table = read_samples(dataset, collator.count_tokens)
        if "tasks" not in settings:
            collator.tasks = table.tasks
        with_images = table.images.nonzero()[0]
        if collator.image_shape is None and len(with_images):
            collator.image_shape = first_image_shape(dataset[int(with_images[0])])
        return collator

    def __call__(self, samples: Sequence[Mapping[str, Any]]) -> CollatedBatch:
        """Return a batch of samples.

        Raises:
            InputError: a sample cannot be used; it is named by its place in the batch.
        """
        if not samples:
            raise InputError("a batch needs at least one sample")
        padding = RowPadding.of(self.tokenizer, self.pad_to_multiple_of)
        rows = rows_of(samples, self.tokenizer, self._limit)
        tensors = padded_rows(rows, padding)
        tensors[LABELS] = collated_labels(samples, rows, padding, tensors[IDS].shape[1])
        tensors |= padded_images(samples, self.dtype, self.image_shape)
        tensors["task_ids"] = torch.tensor([self._task_id(sample, n) for n, sample in enumerate(samples)])
        metadata = [_metadata(sample, row) for sample, row in zip(samples, rows, strict=True)]
        batch = CollatedBatch(tensors, metadata)
        note_newest(batch)
        return batch

    def count_tokens(self, sample: Mapping[str, Any]) -> int:
        """Return how many tokens the row of a sample has, before it is padded."""
        return len(rows_of([sample], self.tokenizer, self._limit)[0][IDS])

    @property
    def _limit(self) -> int | None:
        return row_limit(self.tokenizer, self.max_length)

    def _task_id(self, sample: Mapping[str, Any], number: int) -> int:
        name = sample.get("task_type")
        if name is None:
            advice = "Samples carry it themselves: get_sample_metadata is asked before they are loaded."
            raise InputError(Problem(f"sample {number} of a batch has no 'task_type'", advice=advice))
        if name not in self.tasks:
            advice = (
                f"{nearest(str(name), self.tasks)} Others are given as HeterogeneousCollator(tokenizer, tasks=[...])."
            )
            raise InputError(Problem(f"sample {number} of a batch is of a task '{name}'", advice=advice))
        return self.tasks.index(name)


def _metadata(sample: Mapping[str, Any], row: Row) -> dict[str, Any]:
    said = {"task_type": sample["task_type"], "num_images": images_in(sample), "num_tokens": len(row[IDS])}
    return {**said, **{name: value for name, value in sample.items() if name not in OWN}}
