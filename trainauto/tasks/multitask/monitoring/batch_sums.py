"""Batches summed up one at a time: their means, deviations and ends, in memory that does not grow with their number."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics, EpochMetrics

LOSS, ALLOCATED, RESERVED = "loss/all_tasks", "memory/allocated_mib", "memory/reserved_mib"
BATCH_SIZE, SPEED, RATE, NORM = "batch/samples", "speed/samples_per_s", "learning_rate", "gradient_norm"
RECOVERIES = "events/oom_recovery"
TASK_LOSS, TASK_SHARE = "loss_by_task/", "share_of_samples/"
"""Tags of curves; those of tasks end in the task's name."""

HIGHEST = frozenset({ALLOCATED, RESERVED})


class Spread:
    """Weighted mean, standard deviation and ends of figures that come one at a time (Welford 1962, West 1979).

    Attributes:
        weight: of all figures so far; 0 before the first.
    """

    __slots__ = ("_high", "_low", "_mean", "_squares", "weight")

    def __init__(self) -> None:
        self.weight = 0.0
        self._mean = self._squares = 0.0
        self._low, self._high = math.inf, -math.inf

    def add(self, value: float, weight: float = 1.0) -> None:
        """Take one more figure in; one without weight is passed over."""
        if weight <= 0:
            return
        self.weight += weight
        away = value - self._mean
        self._mean += away * (weight / self.weight)
        self._squares += weight * away * (value - self._mean)
        self._low, self._high = min(self._low, value), max(self._high, value)

    @property
    def mean(self) -> float | None:
        """Weighted mean; ``None`` where there is no figure."""
        return self._mean if self.weight else None

    @property
    def low(self) -> float | None:
        """The lowest figure; ``None`` where there is none."""
        return self._low if self._low <= self._high else None

    @property
    def high(self) -> float | None:
        """The highest figure; ``None`` where there is none."""
        return self._high if self._low <= self._high else None

    def to_dict(self, unit: str = "") -> dict[str, float | None]:
        """Return lowest, highest, mean and standard deviation (of these figures, not of what they are a sample of).

        Args:
            unit: end of the names, such as ``_mb``.
        """
        deviation = math.sqrt(max(0.0, self._squares / self.weight)) if self.weight else None
        figures = {"min": self.low, "max": self.high, "mean": self.mean, "std": deviation}
        return {f"{name}{unit}": value for name, value in figures.items()}


def measured(batch: BatchMetrics) -> Iterator[tuple[str, float, float]]:
    """Yield what was measured of a batch: tag, figure, and what the figure weighs in a mean.

    Losses are weighted by samples, speed by seconds, so that its mean is samples over seconds. In all else each batch
    counts once. Norms that overflowed are left out.
    """
    samples, speed, norm = batch.samples_by_task, batch.throughput_samples_per_sec, batch.gradient_norm
    figures: list[tuple[str, float | None, float]] = [
        (LOSS, batch.loss, batch.batch_size),
        (BATCH_SIZE, batch.batch_size, 1),
        (ALLOCATED, batch.memory_allocated_mb, 1),
        (RESERVED, batch.memory_reserved_mb, 1),
        (RATE, batch.learning_rate, 1),
        (NORM, norm if norm is not None and math.isfinite(norm) else None, 1),
        (SPEED, speed, batch.batch_size / speed if speed else 0),
        *((f"{TASK_LOSS}{task}", loss, samples.get(task, 0)) for task, loss in batch.per_task_loss.items()),
    ]
    return ((tag, value, weight) for tag, value, weight in figures if value is not None and weight > 0)


class BatchSums:
    """Some batches as one: those of an epoch, or of a run; :func:`measured` says what each figure weighs.

    Attributes:
        batches: how many.
        samples: theirs together.
        oom_recoveries: batches in which memory ran out, and that were trained after all.
        first_timestamp: when the first was trained, in seconds since 1970.
        last_timestamp: when the last was trained.
        task_samples: samples of each task.
    """

    def __init__(self) -> None:
        self.batches = self.samples = self.oom_recoveries = 0
        self.first_timestamp: float | None = None
        self.last_timestamp: float | None = None
        self.task_samples: Counter[str] = Counter()
        self._spreads: defaultdict[str, Spread] = defaultdict(Spread)

    def of(self, tag: str) -> Spread:
        """Return the figures of a curve; those of tasks end in the task's name."""
        return self._spreads.get(tag, Spread())

    def add(self, batch: BatchMetrics) -> None:
        """Take one more batch in."""
        self.batches += 1
        self.samples += batch.batch_size
        self.oom_recoveries += batch.is_oom_recovery
        self.task_samples.update(batch.samples_by_task)
        if self.first_timestamp is None:
            self.first_timestamp = batch.timestamp
        self.last_timestamp = batch.timestamp
        for tag, value, weight in measured(batch):
            self._spreads[tag].add(value, weight)

    @property
    def task_means(self) -> dict[str, float]:
        """Mean loss of each task that has one."""
        means = {tag: spread.mean for tag, spread in self._spreads.items() if tag.startswith(TASK_LOSS)}
        return {tag.removeprefix(TASK_LOSS): mean for tag, mean in means.items() if mean is not None}

    def figures(self) -> dict[str, float]:
        """Return what curves show, by tag; tags without measurements are left out.

        Memory is the highest, out of memory a count, all else a mean: the same in pictures and in TensorBoard.
        """
        shown = {tag: spread.high if tag in HIGHEST else spread.mean for tag, spread in self._spreads.items()}
        return {
            **{tag: value for tag, value in shown.items() if value is not None},
            **{f"{TASK_SHARE}{task}": count / self.samples for task, count in self.task_samples.items()},
            RECOVERIES: float(self.oom_recoveries),
        }

    def as_epoch(
        self, epoch: int, seconds: float, total_samples: int | None = None, total_batches: int | None = None
    ) -> EpochMetrics:
        """Return the batches as an epoch.

        Args:
            epoch: its number, from 0.
            seconds: how long it took.
            total_samples: samples that it held, recorded or not; ``None``: those recorded.
            total_batches: batches that it held, likewise.
        """
        samples = self.samples if total_samples is None else total_samples
        speed = self.of(SPEED).mean
        return EpochMetrics(
            epoch=epoch,
            total_batches=self.batches if total_batches is None else total_batches,
            total_samples=samples,
            avg_loss=self.of(LOSS).mean,
            per_task_avg_loss=self.task_means,
            per_task_samples=dict(self.task_samples),
            peak_memory_mb=self.of(ALLOCATED).high,
            avg_memory_mb=self.of(ALLOCATED).mean,
            avg_throughput_samples_per_sec=samples / seconds if speed is None and seconds > 0 and samples else speed,
            oom_recoveries=self.oom_recoveries,
            epoch_time_seconds=seconds,
            recorded_batches=self.batches,
            recorded_samples=self.samples,
        )
