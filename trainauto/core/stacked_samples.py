"""Samples of one size as a workload: the first dimension of every tensor is the sample."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainauto.core.plan import BatchShape
from trainauto.core.workload import Tensors


class StackedSamples:
    """Samples whose tensors are all as large; a batch stacks them, and its loss is a mean over them.

    Args:
        sample: for each tensor of a sample its shape, without the sample itself, and its number format.
    """

    weighs_samples = True

    def __init__(self, sample: Mapping[str, tuple[Sequence[int], torch.dtype]]) -> None:
        self._sample = sample

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        """Return some samples."""
        return {name: tensor[start:stop] for name, tensor in tensors.items()}

    def join(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        """Return the samples of all parts; they are as large in each."""
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def weight(self, tensors: Tensors) -> int:
        """Return the number of samples."""
        return len(next(iter(tensors.values())))

    def shape(self, tensors: Tensors) -> BatchShape:
        """Return the number of samples; they have no size that memory follows."""
        return BatchShape(samples=self.weight(tensors), extent=1)

    def units(self, tensors: Tensors) -> int:
        """Return the number of samples."""
        return self.weight(tensors)

    def shrink(self, tensors: Tensors, extent: int, smaller: int) -> dict[str, Tensor]:
        """Return the samples as they are."""
        del extent, smaller
        return dict(tensors)

    def dummy(self, samples: int, extent: int) -> dict[str, Tensor]:
        """Return samples of zeros."""
        del extent
        return {name: torch.zeros(samples, *shape, dtype=dtype) for name, (shape, dtype) in self._sample.items()}
