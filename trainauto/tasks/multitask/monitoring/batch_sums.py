"""Batches summed up one at a time: their means, deviations and ends, in memory that does not grow with their number."""

import math

from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics, EpochMetrics


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

    def merge(self, other: "Spread") -> None:
        """Take all figures of another in."""
        if other.weight <= 0:
            return
        total = self.weight + other.weight
        away = other._mean - self._mean
        self._squares += other._squares + away * away * self.weight * other.weight / total
        self._mean += away * (other.weight / total)
        self.weight = total
        self._low, self._high = min(self._low, other._low), max(self._high, other._high)

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


class BatchSums:
    """Some batches as one: those of an epoch, of a run, of a point of a curve.

    Attributes:
        batches: how many.
        samples: theirs together.
        oom_recoveries: batches in which memory ran out, and that were trained after all.
        first_timestamp: when the first was trained, in seconds since 1970.
        last_timestamp: when the last was trained.
        loss: of batches, weighted by their samples.
        batch_size: samples of a batch, each batch counting once.
        allocated_mb: highest memory of a batch in MiB, each batch counting once.
        reserved_mb: likewise, what the allocator had taken.
        throughput: samples a second, weighted by seconds: its mean is samples over seconds.
        learning_rate: of batches, each counting once.
        gradient_norm: likewise; norms that overflowed are left out.
        task_loss: loss of each task, weighted by its samples.
        task_samples: samples of each task.
    """

    def __init__(self) -> None:
        self.batches = self.samples = self.oom_recoveries = 0
        self.first_timestamp: float | None = None
        self.last_timestamp: float | None = None
        self.loss, self.batch_size = Spread(), Spread()
        self.allocated_mb, self.reserved_mb = Spread(), Spread()
        self.throughput, self.learning_rate, self.gradient_norm = Spread(), Spread(), Spread()
        self.task_loss: dict[str, Spread] = {}
        self.task_samples: dict[str, int] = {}

    def add(self, batch: BatchMetrics) -> None:
        """Take one more batch in."""
        self.batches += 1
        self.samples += batch.batch_size
        self.oom_recoveries += batch.is_oom_recovery
        if self.first_timestamp is None:
            self.first_timestamp = batch.timestamp
        self.last_timestamp = batch.timestamp
        self.loss.add(batch.loss, batch.batch_size)
        self.batch_size.add(batch.batch_size)
        for spread, value in (
            (self.allocated_mb, batch.memory_allocated_mb),
            (self.reserved_mb, batch.memory_reserved_mb),
            (self.learning_rate, batch.learning_rate),
        ):
            if value is not None:
                spread.add(value)
        if batch.gradient_norm is not None and math.isfinite(batch.gradient_norm):
            self.gradient_norm.add(batch.gradient_norm)
        if batch.throughput_samples_per_sec:
            self.throughput.add(batch.throughput_samples_per_sec, batch.batch_size / batch.throughput_samples_per_sec)
        samples = batch.samples_by_task
        for task, count in samples.items():
            self.task_samples[task] = self.task_samples.get(task, 0) + count
        for task, loss in batch.per_task_loss.items():
            self.task_loss.setdefault(task, Spread()).add(loss, samples.get(task, 0))

    def merge(self, other: "BatchSums") -> None:
        """Take the batches of another in, which were trained after these."""
        self.batches += other.batches
        self.samples += other.samples
        self.oom_recoveries += other.oom_recoveries
        if self.first_timestamp is None:
            self.first_timestamp = other.first_timestamp
        if other.last_timestamp is not None:
            self.last_timestamp = other.last_timestamp
        for name in (
            "loss",
            "batch_size",
            "allocated_mb",
            "reserved_mb",
            "throughput",
            "learning_rate",
            "gradient_norm",
        ):
            getattr(self, name).merge(getattr(other, name))
        for task, count in other.task_samples.items():
            self.task_samples[task] = self.task_samples.get(task, 0) + count
        for task, spread in other.task_loss.items():
            self.task_loss.setdefault(task, Spread()).merge(spread)

    @property
    def task_means(self) -> dict[str, float]:
        """Mean loss of each task that has one."""
        return {task: spread.mean for task, spread in self.task_loss.items() if spread.mean is not None}

    def as_epoch(self, epoch: int, total_samples: int, total_batches: int, seconds: float) -> EpochMetrics:
        """Return the batches as an epoch.

        Args:
            epoch: its number, from 0.
            total_samples: samples that it held, recorded or not.
            total_batches: batches that it held, recorded or not.
            seconds: how long it took.
        """
        throughput = self.throughput.mean
        if throughput is None and seconds > 0 and total_samples:
            throughput = total_samples / seconds
        return EpochMetrics(
            epoch=epoch,
            total_batches=total_batches,
            total_samples=total_samples,
            avg_loss=self.loss.mean,
            per_task_avg_loss=self.task_means,
            per_task_samples=dict(self.task_samples),
            peak_memory_mb=self.allocated_mb.high,
            avg_memory_mb=self.allocated_mb.mean,
            avg_throughput_samples_per_sec=throughput,
            oom_recoveries=self.oom_recoveries,
            epoch_time_seconds=seconds,
            recorded_batches=self.batches,
            recorded_samples=self.samples,
        )
