"""What is known of samples before they are loaded: task, images, tokens; said by the dataset, or measured once."""

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor

from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted
from trainauto.data.packing import IntArray, SampleSizes
from trainauto.integrations.map_samples import MapStyle

logger = logging.getLogger(__name__)

CountTokens = Callable[[Mapping[str, Any]], int]
"""Says how many tokens the row of a sample has in a batch, such as ``collator.count_tokens``."""

LOOKED_AT = 64
"""Samples loaded to tell how long texts are, where the dataset says all but that: some seconds at most."""

ADVICE = "Return {'task_type': name, 'num_images': count} and, where texts weigh in memory, 'num_tokens'."


@dataclass(frozen=True, eq=False)
class SampleTable:
    """The samples of a dataset, as far as batches go by them.

    Attributes:
        tasks: names of the tasks, sorted; a task's number is its place here.
        task_ids: number of each sample's task, shape (samples,).
        sizes: tokens and images of each sample.
        knows_tokens: whether the tokens are those of each sample; else they are 0, or a guess for all.
    """

    tasks: tuple[str, ...]
    task_ids: IntArray
    sizes: SampleSizes
    knows_tokens: bool = True

    def __len__(self) -> int:
        return len(self.task_ids)

    @property
    def images(self) -> IntArray:
        """Images of each sample, shape (samples,)."""
        return np.zeros(len(self), np.int64) if self.sizes.images is None else self.sizes.images

    @property
    def counts(self) -> IntArray:
        """Samples of each task, shape (tasks,)."""
        return np.bincount(self.task_ids, minlength=len(self.tasks))

    @property
    def checksum(self) -> int:
        """A number that tells this set of samples from others."""
        checksum = zlib.crc32("\n".join(self.tasks).encode())
        for column in (self.task_ids, self.sizes.tokens, self.images):
            checksum = zlib.crc32(column.astype("<i8").tobytes(), checksum)
        return checksum

    def described(self, index: int) -> str:
        """Say which sample that is: ``sample 17 (task 'T3', 2 images, 40 tokens)``."""
        tokens = int(self.sizes.tokens[index])
        parts = [f"task '{self.tasks[self.task_ids[index]]}'", counted(int(self.images[index]), "image")]
        return f"sample {index} ({', '.join([*parts, counted(tokens, 'token')] if tokens else parts)})"


def read_samples(dataset: MapStyle, count_tokens: CountTokens | None = None) -> SampleTable:
    """Return what is known of the samples of a dataset.

    Its ``get_sample_metadata(idx)`` says it without loading a sample. A dataset without that method is loaded once,
    sample by sample, and what was measured is kept for as long as the dataset lives.

    Args:
        dataset: of mappings with ``task_type``, ``images``, and ``text`` or ``input_ids``.
        count_tokens: counts tokens of samples that are loaded; without it, only rows of ``input_ids`` are counted.

    Raises:
        InputError: the dataset is empty, gives no samples by number, or does not say what it should; the sample is
            named.
    """
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise InputError(
            Problem(
                f"a {type(dataset).__name__} does not give samples by number, as planned batches need it",
                advice="Give a dataset with __len__ and __getitem__.",
            )
        )
    if not len(dataset):
        raise InputError("the dataset is empty")
    if callable(getattr(dataset, "get_sample_metadata", None)):
        return _declared(dataset)
    known = _known(dataset, count_tokens)
    if known is None:
        logger.info(
            "the dataset has no get_sample_metadata: its %s are loaded once to see what they hold",
            counted(len(dataset), "sample"),
        )
        known = _measured(dataset, count_tokens)
        _keep(dataset, count_tokens, known)
    return known


def with_tokens(table: SampleTable, dataset: MapStyle, count_tokens: CountTokens | None) -> SampleTable:
    """Return the samples with a guess where their tokens are not known: the longest of some, for all.

    Batches are then rather too small than too large, as far as the samples that were looked at are like the others.
    """
    if table.knows_tokens:
        return table
    places = np.unique(np.linspace(0, len(table) - 1, LOOKED_AT).astype(int)).tolist()
    counts = [tokens_of(_loaded(dataset, place), count_tokens) for place in places]
    longest = max((count for count in counts if count is not None), default=0)
    if None in counts:
        logger.warning(
            "texts are not counted in what batches take: say num_tokens in get_sample_metadata, or give "
            "count_tokens=collator.count_tokens"
        )
    else:
        logger.info(
            "get_sample_metadata says no num_tokens: the longest of %s, %s, stands for all",
            counted(len(places), "sample"),
            counted(longest, "token"),
        )
    return replace(table, sizes=SampleSizes(np.full(len(table), longest, np.int64), table.images))


def images_in(sample: Mapping[str, Any]) -> int:
    """Return how many images a sample has: items of a list, or the first dimension of a tensor of several.

    A tensor of three dimensions or fewer is one image.

    Raises:
        TypeError: ``images`` is no list and no tensor.
    """
    images = sample.get("images")
    if images is None:
        return 0
    if hasattr(images, "ndim"):
        return len(images) if images.ndim > 3 else 1
    if isinstance(images, Sequence) and not isinstance(images, str):
        return len(images)
    raise TypeError(f"images must be a list of tensors or one tensor (n, C, H, W), not {type(images).__name__}")


def tokens_of(sample: Mapping[str, Any], count_tokens: CountTokens | None) -> int | None:
    """Return the tokens of a sample's row; ``None`` where only a tokenizer could tell."""
    if count_tokens is not None:
        return count_tokens(sample)
    if sample.get("input_ids") is not None:
        return len(sample["input_ids"])
    return None if sample.get("text") else 0


def _declared(dataset: Any) -> SampleTable:
    """Return what ``get_sample_metadata`` says."""
    names, images, tokens = [], [], []
    for index in range(len(dataset)):
        said = dataset.get_sample_metadata(index)
        try:
            names.append(said["task_type"])
            images.append(said["num_images"])
            tokens.append(said.get("num_tokens"))
        except (KeyError, TypeError, AttributeError):
            raise InputError(Problem(f"get_sample_metadata({index}) returns {_shown(said)}", advice=ADVICE)) from None
    return _table(names, images, tokens, "get_sample_metadata")


def _measured(dataset: MapStyle, count_tokens: CountTokens | None) -> SampleTable:
    """Load every sample once."""
    names, images, tokens = [], [], []
    for index in range(len(dataset)):
        sample = _loaded(dataset, index)
        if "task_type" not in sample:
            advice = "Give every sample a 'task_type', or the dataset a get_sample_metadata(idx)."
            raise InputError(Problem(f"sample {index} has no 'task_type', but {_shown([*sample])}", advice=advice))
        try:
            images.append(images_in(sample))
        except TypeError as error:
            raise InputError(f"sample {index}: {error}") from None
        names.append(sample["task_type"])
        tokens.append(tokens_of(sample, count_tokens))
    if None in tokens:  # one that nobody can count leaves all of them open
        tokens = [None] * len(tokens)
    return _table(names, images, tokens, "the sample's own")


def _loaded(dataset: MapStyle, index: int) -> Mapping[str, Any]:
    sample = dataset[index]
    if not isinstance(sample, Mapping):
        raise InputError(f"sample {index} is a {type(sample).__name__}: samples must be mappings (dicts)")
    return sample


def _table(names: list[Any], images: list[Any], tokens: list[Any], source: str) -> SampleTable:
    """Check what was said and put it together."""
    for index, name in enumerate(names):
        if not isinstance(name, str):
            raise InputError(f"sample {index}: {source} task_type is {name!r}: a task's name is a string")
    unknown = [index for index, count in enumerate(tokens) if count is None]
    if unknown and len(unknown) < len(tokens):
        raise InputError(f"sample {unknown[0]}: {source} num_tokens is missing, which others have: give all or none")
    tasks = tuple(sorted(set(names)))
    number_of = {name: number for number, name in enumerate(tasks)}
    task_ids = np.fromiter((number_of[name] for name in names), np.int64, len(names))
    image_counts = _counts("num_images", images, source)
    token_counts = np.zeros(len(names), np.int64) if unknown else _counts("num_tokens", tokens, source)
    return SampleTable(tasks, task_ids, SampleSizes(token_counts, image_counts), knows_tokens=not unknown)


def _counts(what: str, values: list[Any], source: str) -> IntArray:
    """Return whole numbers of 0 or more.

    Raises:
        InputError: a value is none; the first such sample is named.
    """
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise InputError(f"sample {index}: {source} {what} is {value!r}: a whole number, 0 or more, is needed")
    return np.asarray(values, np.int64)


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, Tensor) else f"a tensor {tuple(value.shape)}"
    return text if len(text) <= 80 else f"{text[:77]}..."


_MEASURED: "WeakKeyDictionary[Any, tuple[int, CountTokens | None, SampleTable]]" = WeakKeyDictionary()
"""What was measured of datasets that are still there."""


def _known(dataset: object, count_tokens: CountTokens | None) -> SampleTable | None:
    try:
        samples, counted_by, table = _MEASURED[dataset]
    except (KeyError, TypeError):  # lists and their like cannot be kept weakly
        return None
    return table if samples == len(dataset) and counted_by == count_tokens else None  # type: ignore[arg-type]


def _keep(dataset: object, count_tokens: CountTokens | None, table: SampleTable) -> None:
    try:
        _MEASURED[dataset] = len(table), count_tokens, table
    except TypeError:
        logger.debug("a %s cannot be remembered: it would be measured again", type(dataset).__name__)
