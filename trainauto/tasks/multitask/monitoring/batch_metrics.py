"""What is noted of a batch and of an epoch, under the names that users of BrainVLM's monitor know."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.quotas import apportioned

_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""How lines of JSON hold what JSON has no number for."""


@dataclass
class BatchMetrics:
    """One batch, as it was trained: the samples of one optimizer step.

    Figures may be numbers of any kind that ``float`` takes, tensors of one element among them. What was not measured is
    ``None``, and counts in no mean.

    Attributes:
        batch_idx: its number in the run, from 0. One that does not ascend (counted anew in each epoch) is taken for the
            next number.
        timestamp: when it was trained, in seconds since 1970.
        task_types: the task of each sample; or the names of the tasks in it, each once.
        batch_size: how many samples it held.
        loss: mean over its samples, as it was minimised (weights of tasks included).
        per_task_loss: mean of each task over its own samples, without weights.
        learning_rate: of the optimizer's first group.
        memory_allocated_mb: highest memory of the step, in MiB: held by tensors (CUDA), or by the process (CPU).
        memory_reserved_mb: what the allocator had taken for it, in MiB; on a CPU the private memory of the process.
        throughput_samples_per_sec: samples a second, waiting for the batch included.
        gradient_norm: over all weights, before clipping.
        is_oom_recovery: whether memory ran out, and the batch was trained after all, in smaller pieces.
        per_task_samples: samples of each task. Without it they are counted in ``task_types`` where that names the task
            of each sample; where it only names the tasks, the samples are taken to be shared equally among them.

    Raises:
        InputError: figures contradict each other.
    """

    batch_idx: int
    timestamp: float
    task_types: Sequence[str]
    batch_size: int
    loss: float
    per_task_loss: Mapping[str, float] = field(default_factory=dict)
    learning_rate: float | None = None
    memory_allocated_mb: float | None = None
    memory_reserved_mb: float | None = None
    throughput_samples_per_sec: float | None = None
    gradient_norm: float | None = None
    is_oom_recovery: bool = False
    per_task_samples: Mapping[str, int] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if problems := list(self._problems()):
            raise InputError(problems)
        self.task_types = list(self.task_types)
        self.loss, self.timestamp = float(self.loss), float(self.timestamp)
        self.per_task_loss = {task: float(loss) for task, loss in self.per_task_loss.items()}
        if self.per_task_samples is not None:
            self.per_task_samples = {task: int(count) for task, count in self.per_task_samples.items()}
        for name in _OPTIONAL:
            value = getattr(self, name)
            setattr(self, name, None if value is None else float(value))

    def _problems(self) -> Iterator[Problem]:
        if isinstance(self.task_types, str):
            advice = f"Write ['{self.task_types}']."
            yield Problem(f"task_types is a list of task names, got the text '{self.task_types}'", advice=advice)
            return
        if self.batch_idx < 0:
            yield Problem(f"batch_idx counts batches from 0, got {self.batch_idx}")
        if self.batch_size < 1:
            yield Problem(f"batch_size is the number of samples in the batch, 1 or more, got {self.batch_size}")
            return
        names = set(self.task_types)
        if len(names) > self.batch_size:
            yield Problem(f"task_types names {len(names)} tasks, and batch_size is {self.batch_size}")
        if self.per_task_samples is not None:
            names |= set(self.per_task_samples)
            total = sum(self.per_task_samples.values())
            if total != self.batch_size or min(self.per_task_samples.values(), default=0) < 0:
                counts = dict(self.per_task_samples)
                yield Problem(
                    f"per_task_samples are {total} samples in all ({counts}), and batch_size is {self.batch_size}",
                    advice="Count each sample of the batch once.",
                )
        for task in self.per_task_loss:
            if task not in names:
                yield Problem(
                    f"per_task_loss has '{task}', of which the batch has no sample", advice=nearest(task, names)
                )

    @property
    def samples_by_task(self) -> dict[str, int]:
        """Samples of each task; together they are those of the batch, unless no task is named at all."""
        if self.per_task_samples is not None:
            return dict(self.per_task_samples)
        if len(self.task_types) == self.batch_size:
            return dict(Counter(self.task_types))
        return apportioned(self.batch_size, dict.fromkeys(self.task_types, 1))

    def to_dict(self) -> dict[str, Any]:
        """Return it as a line of batch_metrics.jsonl holds it."""
        return asdict(self) | {"per_task_samples": self.samples_by_task}

    @classmethod
    def from_dict(cls, line: Mapping[str, Any]) -> "BatchMetrics":
        """Return what :meth:`to_dict` gave, read from JSON; other entries are passed over.

        Raises:
            InputError: figures contradict each other.
            TypeError: one that every batch has is missing.
        """
        return cls(**_known(cls, line))


@dataclass
class EpochMetrics:
    """One epoch: sums, and means over the batches that were recorded in it.

    What was not measured is ``None``.

    Attributes:
        epoch: its number, from 0.
        total_batches: batches of the epoch, as :meth:`DynamicBatchingMonitor.end_epoch` was told.
        total_samples: samples of the epoch, likewise.
        avg_loss: mean of the losses of the batches, each weighted by its samples: what a mean over samples gives.
        per_task_avg_loss: mean loss of each task, weighted by its samples in each batch.
        per_task_samples: samples of each task.
        peak_memory_mb: the highest ``memory_allocated_mb`` of a batch, in MiB.
        avg_memory_mb: its mean over the batches, in MiB, each batch counting once.
        avg_throughput_samples_per_sec: samples over the seconds that their batches took; where no batch says how long
            it took, ``total_samples`` over ``epoch_time_seconds``.
        oom_recoveries: batches in which memory ran out, and that were trained after all.
        epoch_time_seconds: from :meth:`start_epoch` to :meth:`end_epoch`, evaluations in between included; of an epoch
            that a resume continued, the time of both runs.
        recorded_batches: batches that the means are over.
        recorded_samples: samples that the means are over.
    """

    epoch: int
    total_batches: int
    total_samples: int
    avg_loss: float | None = None
    per_task_avg_loss: dict[str, float] = field(default_factory=dict)
    per_task_samples: dict[str, int] = field(default_factory=dict)
    peak_memory_mb: float | None = None
    avg_memory_mb: float | None = None
    avg_throughput_samples_per_sec: float | None = None
    oom_recoveries: int = 0
    epoch_time_seconds: float = 0.0
    recorded_batches: int = 0
    recorded_samples: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as a line of epoch_metrics.jsonl holds it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, line: Mapping[str, Any]) -> "EpochMetrics":
        """Return what :meth:`to_dict` gave, read from JSON; other entries are passed over.

        Raises:
            TypeError: one that every epoch has is missing.
        """
        return cls(**_known(cls, line))


_OPTIONAL = tuple(
    each.name for each in fields(BatchMetrics) if each.default is None and each.name != "per_task_samples"
)


def _known(cls: type, line: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(cls)}
    return {name: _parsed(value) for name, value in line.items() if name in names}


def _parsed(value: Any) -> Any:
    """Return a figure as a number, also one that JSON has none for."""
    if isinstance(value, Mapping):
        return {key: _parsed(item) for key, item in value.items()}
    return float(value) if isinstance(value, str) and value in _NOT_FINITE else value
