"""What the dynamic loader asks of a dataset: samples by key, whole samples, and what kind they are of."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.core.workload import Workload
from trainauto.data.documented_names import KeyNames
from trainauto.data.sample_files import SampleFiles, SetChanges

ACCEPT = "--accept_samples"
"""Argument of a resume that takes the samples that are there now."""


class SampleKey(KeyNames):
    """Everything a worker needs to make one training sample; the size travels with it, so no worker keeps state.

    Attributes:
        sample: which sample of the set.
        size: what it is to be no larger than: side of a crop in pixels of the low-quality image, tokens of a row; 0
            where plans have no size, so that it is as large as it is.
        seed: decides what is random about it: place, flips and rotation of a crop.
    """

    __slots__ = ()

    @classmethod
    def under(cls, plan: Plan, sample: int, seed: int) -> "SampleKey":
        """Return the key of a sample that is drawn under a plan."""
        return cls(sample, plan.size if plan.has_size else 0, seed)


@dataclass(frozen=True)
class DatasetScan:
    """What a look at every file before training found.

    Attributes:
        samples: number of samples.
        smallest_size: size of the smallest sample on the size axis: of images, the shortest side of the input.
        smallest_name: the sample it belongs to.
        bytes: of all samples, decoded.
        largest_size: size of the largest sample on that axis; ``None`` where it is unknown.
    """

    samples: int
    smallest_size: int
    smallest_name: str
    bytes: int
    largest_size: int | None = None


class SmallRun(NamedTuple):
    """What trains on two CPU cores, a step in some tenths of a second: for advice.

    Attributes:
        network: a kind of network.
        plan: values of a plan.
    """

    network: str
    plan: Plan


class DynamicDataset(Dataset[Mapping[str, Tensor]], ABC):
    """A dataset whose samples are made to the size in their key.

    There is no size to set on the dataset itself: workers hold copies of it, which a setter here would never reach.
    Sizes are set on :class:`~trainauto.data.dynamic_loader.DynamicDataLoader`, which puts them into the keys.

    Attributes:
        name: name of the set in messages.
        largest_sample: index of the largest whole sample, as far as :meth:`scan` has found out; else the first.
        digest: of the names and sizes of its samples, once :meth:`scan` has found out; empty where it does not.
        workload: the kind of its samples.
        small_run: what of this kind trains on a CPU; ``None`` if unknown.
        knows_largest: whether :meth:`largest_batch` knows the largest draw of plans that count no samples.
        bounding_option: what bounds batches of its samples that memory lets grow; ``None`` if no warning is given for
            runs with too few of them.
        if_changed: advice where a resume has other samples than the checkpoint was written with.
        if_waiting: advice where steps wait for samples; empty where there is none.
        changes: how its files differ from those that a resumed run began with.
        not_read: files beside the samples that are of kinds which are not read, by suffix.
    """

    name: str
    largest_sample: int = 0
    digest: str = ""
    workload: Workload
    small_run: SmallRun | None = None
    knows_largest: bool = False
    bounding_option: str | None = None
    if_changed: str = f"Restore it as it was; {ACCEPT} takes it as it is, and begins an epoch; or begin a new run."
    if_waiting: str = ""
    changes: SetChanges = SetChanges()
    not_read: Mapping[str, int] = MappingProxyType({})

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def sample_name(self, index: int) -> str:
        """Return the file of a sample, for messages."""

    @abstractmethod
    def sample_key(self, index: int) -> str:
        """Return the short name a picture of this sample is kept under; may contain slashes."""

    def mean_samples(self, plan: Plan) -> float:
        """Return how many samples a draw under a plan has on average: its batch, where plans count samples."""
        return plan.batch_size

    def checksums(self) -> Mapping[str, int]:
        """Return checksums of what is trained on, by file; empty if only reading it all would tell."""
        return {}

    def sample_files(self) -> SampleFiles | None:
        """Return the files of all samples, by name and size; ``None`` where samples are no files of their own."""
        return None

    def identity(self) -> str:
        """Return what tells these samples, in their order, from others; empty where that is not known."""
        files = self.sample_files()
        if files is not None:
            return files.digest
        checksums = list(self.checksums().values())
        return hashlib.sha256(repr(checksums).encode()).hexdigest()[:16] if checksums else ""

    @abstractmethod
    def scan(self) -> DatasetScan:
        """Look at every file without decoding it.

        Raises:
            InputError: files that cannot be read, or pairs that do not fit; every problem names the set and the file.
        """

    @abstractmethod
    def __getitem__(self, key: SampleKey) -> dict[str, Tensor]:
        """Make one training sample of no more than the key's size: what :meth:`collate` makes batches of.

        Of images: uint8 tensors ``lq`` (C, s, s) and ``gt`` (C, s * scale, s * scale).
        """

    @abstractmethod
    def full_sample(self, index: int) -> dict[str, Tensor]:
        """Return a whole sample for validation, of images uint8 ``lq`` (C, h, w), ``gt`` (C, h * scale, w * scale)."""

    def collate(self, samples: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Make samples a batch, as a pure function: here stacked, the sample being a new first dimension.

        Where samples differ in size, say so: ``self.workload.join`` where each of them is a batch of one already.
        """
        return {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}

    def largest_batch(self, plan: Plan, samples: int) -> dict[str, Tensor]:
        """Return a batch as large as a plan allows, of one sample over and over: only its size matters.

        A sample that is smaller than the plan allows, as texts may be, says nothing of those that are not: then a batch
        is made up.
        """
        tensors = self.collate([self[SampleKey.under(plan, 0, 0)]] * samples)
        if plan.has_size and self.workload.shape(tensors).extent < plan.size:
            return self.workload.dummy(samples, plan.size)
        return tensors

    def batch_bytes(self, plan: Plan) -> int:
        """Return the bytes of the largest batch under a plan, as workers hand it over."""
        tensors = self.largest_batch(plan, 1)
        return plan.batch_size * sum(tensor.nbytes for tensor in tensors.values())

    def __getitems__(self, keys: Sequence[SampleKey]) -> "list[dict[str, Tensor]] | InputError":
        """Make the samples of a batch; an unreadable file comes back as a value.

        Raised in a worker, it would reach the person wrapped in the worker's traceback.
        """
        try:
            return [self[key] for key in keys]
        except InputError as error:
            return error
