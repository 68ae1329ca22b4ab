"""A batch as it travels from the loader to the step."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from trainauto.core.plan import BatchShape, Plan
from trainauto.core.workload import Workload


@dataclass(frozen=True)
class Batch:
    """Samples with the plan they were drawn under.

    Attributes:
        tensors: named tensors as they leave the loader, e.g. ``lq`` (N, C, h, w) and ``gt`` (N, C, H, W), uint8.
        workload: the kind of its samples: how the tensors are divided and measured.
        names: file each sample came from, for messages.
        first_sample: position of the step's first sample in the run's stream of samples.
        drawn: the plan they were drawn under.
        plan: the plan they are to be trained under; within ``drawn`` on every axis.
        shape: what the batch holds, for cost models and progress counters.
        units: work in it, in the unit its throughput is reported in: high-quality pixels, or tokens.
        others: samples that the other ranks train in the same step.
        share: batch of this rank relative to the plan's, where batches follow memory.
        draw_samples: samples of the whole draw it is of, on all ranks; 0 where that is the ``batch_size`` of ``drawn``.
        stand_in: tensors of one sample of another rank, where this one has none: a rank that others wait for within the
            backward pass runs it, with weight 0.
    """

    tensors: Mapping[str, Tensor]
    workload: Workload
    names: tuple[str, ...]
    first_sample: int
    drawn: Plan
    plan: Plan
    shape: BatchShape
    units: int = 0
    others: int = 0
    share: float = 1.0
    draw_samples: int = 0
    stand_in: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def step_samples(self) -> int:
        """Samples of the step, on all ranks."""
        return len(self) + self.others

    def __len__(self) -> int:
        return len(self.names)
