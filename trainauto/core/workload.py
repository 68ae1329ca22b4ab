"""What the core asks of samples, whatever they are: crops of images, rows of tokens, or both.

The nearest relative is Composer's ``DataSpec``. Tensors come by name, those of a batch or of a part of one; what a pass
has handed on to later ones (outputs, detached) may be among them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import BatchShape
from trainauto.core.run_events import ImageArray

Tensors = Mapping[str, Tensor]


class Workload(Protocol):
    """A kind of sample: how a batch of them is divided, joined, weighed, measured and made smaller.

    Attributes:
        weighs_samples: whether the weight of a part is its number of samples, which every rank knows of all others.
    """

    weighs_samples: bool

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        """Return samples ``start`` to ``stop`` of a batch; none where both are the same.

        The first dimension need not be the sample: packed tokens and patches of images have all samples in one.
        """

    def join(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        """Return the samples of all parts, in their order: what :meth:`part` divides, up to padding.

        Parts hold at least one sample each and have the same names, which need not be those of a whole batch: what a
        pass has handed on comes by itself. Rows of another length are padded to the longest, packed tokens follow
        each other.
        """

    def weight(self, tensors: Tensors) -> float:
        """Return what the loss of these samples is a mean over: samples, supervised tokens, the sum of class weights.

        A finite number of at least 0, not necessarily whole; that of a batch is the sum over its parts.
        """

    def shape(self, tensors: Tensors) -> BatchShape:
        """Say what a batch holds, for cost models and progress counters; of unequal ranks one may have no samples."""

    def units(self, tensors: Tensors) -> int:
        """Return the work in a batch, in the unit its throughput is reported in: pixels, or tokens."""

    def shrink(self, tensors: Tensors, extent: int, smaller: int) -> dict[str, Tensor]:
        """Cut samples of ``extent`` down to ``smaller``, a pure function of its arguments."""

    def dummy(self, samples: int, extent: int) -> dict[str, Tensor]:
        """Return a batch as it leaves the loader, on the CPU; what its values are is left open."""


@runtime_checkable
class UnequalSamples(Protocol):
    """A kind of sample of which a part holds as many as there is room for, few large ones or many small ones."""

    def ends(self, tensors: Tensors, largest: int) -> Sequence[int]:
        """Return where each part of a batch ends; none takes more memory than ``largest`` of the largest samples."""


@runtime_checkable
class ShowableSamples(Protocol):
    """A kind of sample that a person can look at."""

    def shown(self, tensors: Tensors, most: int) -> list[dict[str, ImageArray]]:
        """Return pictures of the first samples of a batch, (H, W, C) uint8 by name, small enough for a page.

        Args:
            tensors: the batch, as it leaves the loader.
            most: samples that are shown at most.
        """


@runtime_checkable
class UnevenSamples(Protocol):
    """A kind of sample of which plans count how many, and not how large: a pass of small ones takes less."""

    def fullness(self, tensors: Tensors, largest: int) -> float:
        """Return what the fullest pass takes, over what so many of the largest sample take.

        Args:
            tensors: of a batch.
            largest: samples that a pass of it holds.
        """


@dataclass(frozen=True)
class Whole:
    """A tensor, an array or a list that a loss wrote into its batch, and that has no part for each sample.

    It goes with every part.

    Attributes:
        value: what it wrote.
    """

    value: Any


def weight_of(workload: Workload, tensors: Tensors) -> float:
    """Return what the loss of these samples is a mean over.

    Raises:
        InputError: the workload returns no finite number of at least 0.
    """
    weight = float(workload.weight(tensors))
    if not (math.isfinite(weight) and weight >= 0):
        message = f"samples weigh {weight}, as weigh (of a workload: weight) says"
        advice = "It returns what the loss is a mean over: a finite number, 0 where samples have nothing to learn from."
        raise InputError(Problem(message, advice=advice))
    return weight


def even_ends(samples: int, largest: int) -> list[int]:
    """Return where the fewest parts of at most ``largest`` samples end, as equal as they can be."""
    parts = math.ceil(samples / largest)
    ends, start = [], 0
    for part in range(parts):
        start += math.ceil((samples - start) / (parts - part))
        ends.append(start)
    return ends


def split(
    workload: Workload, tensors: Tensors, samples: int, largest: int, *, alone: bool = False, by_count: bool = False
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Split a batch into the fewest parts of at most ``largest`` samples, or of what so many take at most.

    Args:
        workload: the kind of its samples.
        tensors: the batch.
        samples: how many it has.
        largest: most samples of a part; where they differ in size, the memory of so many of the largest.
        alone: each sample is a part, also where several small ones take no more than the largest.
        by_count: parts follow from the number of samples alone, so that ranks with as many have as many.

    Yields:
        The number of samples up to the end of a part, and the part.
    """
    ends: Sequence[int] = even_ends(samples, 1 if alone else largest)
    if not (alone or by_count) and len(ends) > 1 and isinstance(workload, UnequalSamples):
        ends = workload.ends(tensors, largest)
    start = 0
    for stop in ends:
        yield stop, workload.part(tensors, start, stop)
        start = stop
