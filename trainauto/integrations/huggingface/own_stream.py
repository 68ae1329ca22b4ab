"""Samples of a Trainer in an order of its own, and packed by what batches of them cost."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainauto.data.packed_stream import PackedStream
from trainauto.data.sampler import ShuffledStream
from trainauto.integrations.samples import NestedSamples, Template


@dataclass(frozen=True)
class OwnStream:
    """What a class of Trainers draws in place of shuffled samples.

    Attributes:
        stream: gives samples out.
        costs: what each costs alone, (samples,), in the unit of the stream's bound; batches are then packed. ``None``
            where batches are counted in samples.
        mean_samples: says how many samples a batch within a bound has on average; ``None`` where batches are counted.
        workload: makes batches of a template those of a packed stream; ``None`` where batches are counted.
    """

    stream: ShuffledStream
    costs: NDArray[np.int64] | None = None
    workload: Callable[[Template], NestedSamples] | None = None
    mean_samples: Callable[[int], float] | None = None

    @property
    def packed(self) -> PackedStream | None:
        """The stream, where it packs."""
        return self.stream if isinstance(self.stream, PackedStream) and self.costs is not None else None
