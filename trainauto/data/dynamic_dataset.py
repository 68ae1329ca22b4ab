"""What the dynamic loader asks of a dataset: samples by key, whole samples, and what kind they are of."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor
from torch.utils.data import Dataset

from trainauto.core.errors import InputError
from trainauto.core.workload import Workload


class SampleKey(NamedTuple):
    """Everything a worker needs to make one training sample; the size travels with it, so no worker keeps state.

    Attributes:
        sample: which sample of the set.
        lq_size: side of the crop in pixels of the low-quality image.
        seed: decides place, flips and rotation.
    """

    sample: int
    lq_size: int
    seed: int


@dataclass(frozen=True)
class DatasetScan:
    """What a look at every file before training found.

    Attributes:
        samples: number of samples.
        smallest_lq_px: shortest side of all low-quality images; crops above it are mirrored at the edge.
        smallest_name: the image it belongs to.
        gt_bytes: decoded size of all high-quality images.
    """

    samples: int
    smallest_lq_px: int
    smallest_name: str
    gt_bytes: int


class DynamicDataset(Dataset[Mapping[str, Tensor]], ABC):
    """A dataset whose samples are made to the size in their key.

    There is no size to set on the dataset itself: workers hold copies of it, which a setter here would never reach.
    Sizes are set on :class:`~trainauto.data.dynamic_loader.DynamicDataLoader`, which puts them into the keys.

    Attributes:
        name: name of the set in messages.
        scale: enlargement factor between low- and high-quality images.
        largest_sample: index of the largest whole sample, as far as :meth:`scan` has found out; else the first.
        workload: the kind of its samples.
    """

    name: str
    scale: int
    largest_sample: int = 0
    workload: Workload

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def sample_name(self, index: int) -> str:
        """Return the file of a sample, for messages."""

    @abstractmethod
    def sample_key(self, index: int) -> str:
        """Return the short name a picture of this sample is kept under; may contain slashes."""

    @abstractmethod
    def scan(self) -> DatasetScan:
        """Look at every file without decoding it.

        Raises:
            InputError: files that cannot be read, or pairs that do not fit; every problem names the set and the file.
        """

    @abstractmethod
    def __getitem__(self, key: SampleKey) -> dict[str, Tensor]:
        """Make one training sample: uint8 tensors ``lq`` (C, s, s) and ``gt`` (C, s * scale, s * scale)."""

    @abstractmethod
    def full_sample(self, index: int) -> dict[str, Tensor]:
        """Return a whole sample for validation: uint8 ``lq`` (C, h, w) and ``gt`` (C, h * scale, w * scale)."""

    def __getitems__(self, keys: Sequence[SampleKey]) -> "list[dict[str, Tensor]] | InputError":
        """Make the samples of a batch; an unreadable file comes back as a value.

        Raised in a worker, it would reach the person wrapped in the worker's traceback.
        """
        try:
            return [self[key] for key in keys]
        except InputError as error:
            return error
