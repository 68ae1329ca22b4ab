"""What a monitor knows of a run: the run as a whole, its curves, its epochs, and the epoch on its way."""

from collections.abc import Mapping
from typing import Any

from trainauto.core.errors import InputError
from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics, EpochMetrics
from trainauto.tasks.multitask.monitoring.batch_sums import BatchSums
from trainauto.tasks.multitask.monitoring.metric_curves import MetricCurves


class MetricsHistory:
    """A run so far.

    Attributes:
        run: all batches.
        curves: all batches as points of curves.
        epochs: those that have ended.
        epoch_positions: position of the first batch of each epoch.
        epoch: number of the epoch on its way, or of the last one; -1 before the first.
        open: batches of the epoch on its way; ``None`` between epochs.
        position: that of the last batch; -1 before the first.
    """

    def __init__(self) -> None:
        self.run = BatchSums()
        self.curves = MetricCurves()
        self.epochs: list[EpochMetrics] = []
        self.epoch_positions: list[int] = []
        self.epoch = -1
        self.open: BatchSums | None = None
        self.position = -1

    def place_of(self, batch_idx: int) -> int:
        """Return the position of the next batch: its number, or where numbers begin anew the next position."""
        return max(batch_idx, self.position + 1)

    def start(self, epoch: int | None = None) -> None:
        """Begin an epoch: this one, or the next where none is named or numbers would not ascend."""
        self.epoch = max(self.epoch + 1, epoch or 0)
        self.open = BatchSums()

    def add(self, batch: BatchMetrics) -> int:
        """Take a batch of the open epoch in, and return its position.

        Raises:
            ValueError: no epoch is open.
        """
        if self.open is None:
            raise ValueError("no epoch is open")
        self.position = self.place_of(batch.batch_idx)
        if not self.open.batches:
            self.epoch_positions.append(self.position)
        for sums in (self.open, self.run):
            sums.add(batch)
        self.curves.add(self.position, batch)
        return self.position

    def so_far(self, seconds: float) -> EpochMetrics | None:
        """Return the epoch on its way as if it ended now; ``None`` between epochs."""
        if self.open is None:
            return None
        return self.open.as_epoch(self.epoch, seconds)

    def end(self, total_samples: int | None, total_batches: int | None, seconds: float) -> EpochMetrics:
        """End the epoch on its way; totals that are not given are those recorded.

        Raises:
            ValueError: no epoch is open.
        """
        if self.open is None:
            raise ValueError("no epoch is open")
        metrics = self.open.as_epoch(self.epoch, seconds, total_samples, total_batches)
        self.epochs.append(metrics)
        self.open = None
        return metrics


class ReadBack:
    """Builds a history anew from lines of an earlier run, up to where a resume goes on.

    Lines of batches come first, then those of epochs.

    Args:
        batch_idx: number of the batch that the resumed run trains next.
        epoch: number of the epoch that this batch is in.

    Attributes:
        history: of what was kept.
        seconds: of the epoch that goes on, before the resume.
    """

    def __init__(self, batch_idx: int, epoch: int) -> None:
        self.history = MetricsHistory()
        self.seconds = 0.0
        self._batch_idx, self._epoch = batch_idx, epoch
        self._ended: dict[int, EpochMetrics] = {}

    def keeps_batch(self, line: Mapping[str, Any]) -> bool:
        """Take in a line of a batch, and return whether it stays: it was trained before the resume goes on."""
        try:
            batch, epoch, seconds = BatchMetrics.from_dict(line), int(line["epoch"]), float(line["epoch_seconds"])
        except (InputError, KeyError, TypeError, ValueError):
            return False
        history = self.history
        if history.place_of(batch.batch_idx) >= self._batch_idx or epoch > self._epoch:
            return False
        if history.open is None or epoch != history.epoch:
            self.end_open()
            history.start(epoch)
        history.add(batch)
        self.seconds = seconds
        return True

    def end_open(self) -> None:
        """End the epoch on its way, if there is one, at what it held."""
        if self.history.open is not None:
            self.history.end(None, None, self.seconds)
            self.seconds = 0.0

    def keeps_epoch(self, line: Mapping[str, Any]) -> bool:
        """Take in a line of an epoch, and return whether it stays: it had ended before the resume goes on."""
        try:
            metrics = EpochMetrics.from_dict(line)
        except (KeyError, TypeError, ValueError):
            return False
        if metrics.epoch >= self._epoch:
            return False
        self._ended[metrics.epoch] = metrics
        return True

    def finish(self) -> list[EpochMetrics]:
        """Settle the epochs, and return those whose line is missing: the run was killed before it was written."""
        history = self.history
        if history.epoch < self._epoch:
            self.end_open()
        rebuilt = {metrics.epoch: metrics for metrics in history.epochs}
        history.epochs = [metrics for _, metrics in sorted((rebuilt | self._ended).items())]
        history.epoch = max(history.epoch, *(metrics.epoch for metrics in history.epochs), -1)
        return [metrics for epoch, metrics in sorted(rebuilt.items()) if epoch not in self._ended]
