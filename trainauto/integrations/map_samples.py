"""Any map-style dataset as the loader asks for one: samples by key, sizes in the keys, randomness by position."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from trainauto.core.errors import InputError
from trainauto.core.hashing import splitmix64
from trainauto.core.plan import BATCH_SIZE, Plan
from trainauto.data.dynamic_dataset import DatasetScan, DynamicDataset, SampleKey
from trainauto.integrations.structure import leaves_of

Resize = Callable[[Any, int], Any]
"""Makes a sample of the dataset one of a size: a crop, a resized image."""

Collate = Callable[[list[Any]], Any]
"""Makes a list of samples a batch, as that of ``torch.utils.data.DataLoader`` does."""

LARGEST_NUMPY_SEED = 2**32


class MapStyle(Protocol):
    """A dataset with a length whose samples are asked for by number."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def __getitem__(self, index: int, /) -> Any:
        """Return a sample."""


@dataclass(frozen=True)
class Drawn:
    """Samples of a draw, put together where they were drawn: both are random.

    Attributes:
        leaves: of the batch.
    """

    leaves: dict[str, Tensor]


class MapSamples(DynamicDataset):
    """Samples of a map-style dataset, made to the size in their key where samples have sizes.

    The position of a batch's first sample in the stream seeds ``random``, ``torch`` on the CPU and ``numpy.random``
    while the batch is loaded and collated, whatever the number of workers. The generators of this process keep their
    states.

    Args:
        dataset: gives samples.
        collate: makes batches of them.
        resize: makes them of a size; ``None`` where they have none, or are as large as they are.
        longest: tokens of the longest sample, where plans are budgets of tokens.

    Attributes:
        known_checksums: of what batches go by, as far as it is known beforehand.
        mean_length: tokens of a row, where batches go by that.
        mean_of_packed: says how many samples a batch within a bound has on average, where that is known better than by
            the mean of what samples cost.
    """

    name = "samples"
    if_changed = "Give the dataset of then; or begin a new run, with the checkpoint's weights."
    knows_largest = True
    mean_of_packed: Callable[[int], float] | None = None

    def __init__(
        self, dataset: MapStyle, collate: Collate, resize: Resize | None = None, longest: int | None = None
    ) -> None:
        self._dataset = dataset
        self._collate_fn = collate
        self._resize = resize
        self._longest = longest
        self.known_checksums: Mapping[str, int] = {}
        self.mean_length: float | None = None

    def __len__(self) -> int:
        return len(self._dataset)

    def sample_name(self, index: int) -> str:
        """Return the number of a sample, in words."""
        return f"sample {index}"

    def sample_key(self, index: int) -> str:
        """Return the number of a sample, as part of a file's name."""
        return f"sample_{index}"

    def mean_samples(self, plan: Plan) -> float:
        """Return how many samples a draw has on average."""
        if BATCH_SIZE in plan or self.mean_length is None:
            return plan.batch_size
        if self.mean_of_packed is not None:
            return self.mean_of_packed(plan.size)
        return max(1.0, plan.size / self.mean_length)

    def checksums(self) -> Mapping[str, int]:
        """Return what is known beforehand: samples are not read for it."""
        return self.known_checksums

    def scan(self) -> DatasetScan:
        """Return the number of samples; none is looked at."""
        return DatasetScan(len(self), 0, "", 0)

    def __getitem__(self, key: SampleKey) -> Any:
        sample = self._dataset[key.sample]
        return self._resize(sample, key.size) if self._resize is not None else sample

    def __getitems__(self, keys: Sequence[SampleKey]) -> Any:
        seed = keys[0].seed if keys else 0
        with seeded(seed):
            try:
                samples = [self[key] for key in keys] if self._resize else [self._dataset[key.sample] for key in keys]
            except InputError as error:
                return error
            seed_generators(splitmix64(seed))  # or what is drawn in collating would be what the first sample drew
            return Drawn(self._leaves(samples))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a worker needs: not the workload, whose functions need not be sendable, and no order."""
        return {name: value for name, value in vars(self).items() if name not in ("workload", "mean_of_packed")}

    def full_sample(self, index: int) -> dict[str, Tensor]:
        """Return a sample as the dataset has it, as a batch of one."""
        return self.collate([self._dataset[index]])

    def batch(self, samples: Sequence[Any]) -> Any:
        """Return samples as a batch, in the shape in which losses get it."""
        return self._collate_fn(list(samples))

    def some(self, indices: Iterable[int]) -> dict[str, Tensor]:
        """Return a batch of these samples, as they are.

        Raises:
            InputError: one cannot be used.
        """
        samples = self.__getitems__([SampleKey(index, 0, 0) for index in indices])
        if isinstance(samples, InputError):
            raise samples
        return self.collate(samples)

    def collate(self, samples: "Sequence[Mapping[str, Tensor]] | Drawn") -> dict[str, Tensor]:
        """Return the leaves of a batch."""
        return samples.leaves if isinstance(samples, Drawn) else self._leaves(samples)

    def _leaves(self, samples: Sequence[Any]) -> dict[str, Tensor]:
        return cast(dict[str, Tensor], leaves_of(self.batch(samples)))

    def largest_batch(self, plan: Plan, samples: int) -> dict[str, Tensor]:
        """Return a batch as large as a plan allows, without loading any: of a budget of tokens, the longest rows."""
        if self._longest is not None and BATCH_SIZE not in plan:
            return self.workload.dummy(max(1, plan.size // self._longest), self._longest)
        return self.workload.dummy(samples, plan.size)


def seed_generators(seed: int) -> None:
    """Have the generators that datasets and collating draw from begin with a seed."""
    random.seed(seed)
    np.random.seed(seed % LARGEST_NUMPY_SEED)
    torch.default_generator.manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have the generators that datasets and collating draw from begin with a seed, and put them back."""
    python, numpy = random.getstate(), np.random.get_state()
    cpu = torch.default_generator.get_state()
    seed_generators(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.default_generator.set_state(cpu)
