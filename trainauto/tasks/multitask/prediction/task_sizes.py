"""How large the samples of each task are, as far as memory goes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from trainauto.core.errors import InputError, Problem

MEASURED = 32
"""Samples of a task whose text is measured where the dataset does not say its tokens: the longest of them counts."""

Collate = Callable[[list[Any]], Mapping[str, Any]]
"""Makes a batch of samples, as a loader's ``collate_fn`` does."""


class Described(Protocol):
    """A dataset that says of each sample what it is: its task, images and tokens."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...

    def get_sample_metadata(self, idx: int, /) -> Mapping[str, Any]:
        """Return ``task_type`` and ``num_images``, and ``num_tokens`` where it is known, without loading the sample."""


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
            raise InputError("samples: no task is named; write samples={'T1': TaskSize(tokens=64, images=1)}")
        return cls(dict(by_task), min(size.images for size in by_task.values()), {})

    @classmethod
    def of(cls, dataset: Described, collate: Collate | None) -> "TaskSizes":
        """Ask a dataset; texts whose tokens it does not say are measured, some of each task.

        Args:
            dataset: every sample of it is asked for, and no more than :data:`MEASURED` of a task are loaded.
            collate: makes batches; needed where tokens are not said.

        Raises:
            InputError: it is empty, or does not say what its samples are.
        """
        if not hasattr(dataset, "get_sample_metadata"):
            raise InputError(_NO_METADATA)
        tasks: dict[str, _Seen] = {}
        for index in range(len(dataset)):
            task, images, tokens = read_metadata(dataset, index)
            tasks.setdefault(task, _Seen()).add(index, images, tokens)
        if not tasks:
            raise InputError("samples: the dataset is empty, so that nothing says how large its samples are")
        sizes = {task: TaskSize(_longest(dataset, seen, collate), seen.most_images) for task, seen in tasks.items()}
        examples = {bool(images): index for seen in tasks.values() for images, index in seen.first.items()}
        return cls(sizes, min(min(seen.first) for seen in tasks.values()), examples)


_NO_METADATA = Problem(
    "samples: the dataset has no get_sample_metadata",
    advice="Give it get_sample_metadata(idx) -> {'task_type': 'T1', 'num_images': 1}, or name the sizes: "
    "samples={'T1': TaskSize(tokens=64, images=1)}.",
)


def read_metadata(dataset: Described, index: int) -> tuple[str, int, int | None]:
    """Return task, images and tokens of a sample; tokens are ``None`` where the dataset does not say.

    Raises:
        InputError: something is missing, or of another kind.
    """
    metadata = dataset.get_sample_metadata(index)
    task, images, tokens = (metadata.get(name) for name in ("task_type", "num_images", "num_tokens"))
    counts = [images, 0 if tokens is None else tokens]
    if not isinstance(task, str) or not all(isinstance(count, int | np.integer) and count >= 0 for count in counts):
        raise InputError(
            f"get_sample_metadata({index}) gives {dict(metadata)!r}; needed are task_type, a name, num_images, a whole "
            "number, and num_tokens where it is known"
        )
    return task, int(counts[0] or 0), None if tokens is None else int(tokens)


class _Seen:
    """What was seen of a task: its images, the first sample of each number of them, and the tokens that are said."""

    def __init__(self) -> None:
        self.first: dict[int, int] = {}
        self.indices: list[int] = []
        self.tokens = 0
        self.says_tokens = True

    @property
    def most_images(self) -> int:
        return max(self.first)

    def add(self, index: int, images: int, tokens: int | None) -> None:
        self.first.setdefault(images, index)
        if tokens is None:
            self.says_tokens = False
            self.indices.append(index)
        else:
            self.tokens = max(self.tokens, tokens)


def _longest(dataset: Described, seen: _Seen, collate: Collate | None) -> int:
    if seen.says_tokens:
        return seen.tokens
    if collate is None:
        raise InputError(
            Problem(
                "samples: the dataset does not say num_tokens, and nothing tokenizes its texts",
                advice="Give collator=HeterogeneousCollator(tokenizer), or num_tokens in get_sample_metadata.",
            )
        )
    spread: Sequence[int] = seen.indices[:: max(1, len(seen.indices) // MEASURED)][:MEASURED]
    return max([seen.tokens, *(_width(collate([dataset[index]])) for index in spread)])


def _width(batch: Mapping[str, Any]) -> int:
    """Return how many tokens wide a batch is; 0 where it holds no text."""
    ids = batch.get("input_ids")
    return int(ids.shape[1]) if ids is not None and ids.ndim > 1 else 0
