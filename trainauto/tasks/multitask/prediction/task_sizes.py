"""How large the samples of each task are, as far as memory goes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainauto.core.errors import InputError, Problem
from trainauto.data.packing import IntArray
from trainauto.integrations.map_samples import MapStyle
from trainauto.tasks.multitask.batches.samples import SampleTable, read_samples

MEASURED = 32
"""Samples of a task whose text is measured where the dataset does not say its tokens: the longest of them counts."""

Collate = Callable[[list[Any]], Mapping[str, Any]]
"""Makes a batch of samples, as a loader's ``collate_fn`` does."""


@dataclass(frozen=True)
class TaskSize:
    """The largest sample of a task.

    Attributes:
        tokens: of its longest text.
        images: of the sample with most.

    Raises:
        InputError: one of them is no whole number, or is negative.
    """

    tokens: int
    images: int

    def __post_init__(self) -> None:
        for name, value in (("tokens", self.tokens), ("images", self.images)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError(f"{name} of a task: a whole number from 0 on is needed, got {value!r}")


@dataclass(frozen=True)
class TaskSizes:
    """The sizes of all tasks of a dataset.

    Attributes:
        by_task: the largest sample of each.
        fewest_images: of any sample.
        examples: the index of a sample with images and of one without, where there are such.
    """

    by_task: Mapping[str, TaskSize]
    fewest_images: int
    examples: Mapping[bool, int]

    @property
    def largest(self) -> TaskSize:
        """The most tokens and the most images of any sample."""
        sizes = self.by_task.values()
        return TaskSize(max(size.tokens for size in sizes), max(size.images for size in sizes))

    @classmethod
    def given(cls, by_task: Mapping[str, TaskSize]) -> "TaskSizes":
        """Return sizes that a person gives; a sample of a task is as large as that.

        Raises:
            InputError: there is none.
        """
        if not by_task:
            raise InputError("samples: no task is named")
        return cls(dict(by_task), min(size.images for size in by_task.values()), {})

    @classmethod
    def of(cls, dataset: MapStyle, collate: Collate | None) -> "TaskSizes":
        """Return the sizes of a dataset, see :func:`~trainauto.tasks.multitask.batches.samples.read_samples`.

        Args:
            dataset: to be trained.
            collate: measures texts where the dataset does not say their tokens.

        Raises:
            InputError: the dataset does not say what it should, or nothing measures its texts.
        """
        table = read_samples(dataset, getattr(collate, "count_tokens", None))
        if not table.knows_tokens and collate is None:
            raise InputError(
                Problem(
                    "samples: the dataset does not say num_tokens, and nothing tokenizes its texts",
                    advice="Give collator=HeterogeneousCollator(tokenizer), or num_tokens in get_sample_metadata.",
                )
            )
        members = {task: np.flatnonzero(table.task_ids == number) for number, task in enumerate(table.tasks)}
        by_task = {
            task: TaskSize(_longest(dataset, table, places, collate), int(table.images[places].max()))
            for task, places in members.items()
        }
        has_images = table.images > 0
        examples = {kind: int(np.argmax(has_images == kind)) for kind in np.unique(has_images).tolist()}
        return cls(by_task, int(table.images.min()), examples)


def tokens_wide(batch: Mapping[str, Any]) -> int:
    """Return how many tokens wide a batch is; 0 where it holds no text."""
    ids = batch.get("input_ids")
    return int(ids.shape[1]) if ids is not None and ids.ndim > 1 else 0


def _longest(dataset: MapStyle, table: SampleTable, places: IntArray, collate: Collate | None) -> int:
    if table.knows_tokens or collate is None:
        return int(table.sizes.tokens[places].max())
    spread = places[:: max(1, len(places) // MEASURED)][:MEASURED]
    return max(tokens_wide(collate([dataset[place]])) for place in spread.tolist())
