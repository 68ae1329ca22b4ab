"""Curves of a run in bounded memory: where batches become many, each point stands for several of them."""

import math
from collections.abc import Sequence
from functools import cache

from trainauto.reporting.dashboard.bounded_curves import MOST_RANGES, Curves
from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics
from trainauto.tasks.multitask.monitoring.batch_sums import HIGHEST, RECOVERIES, TASK_LOSS, TASK_SHARE, measured


class MetricCurves:
    """All batches so far, as at most so many points of equally many batches each (the last may lack some).

    Args:
        most_points: how many.
    """

    def __init__(self, most_points: int = MOST_RANGES) -> None:
        self._curves = Curves(most_points)

    @property
    def positions(self) -> Sequence[int]:
        """Position of the last batch of each point."""
        return self._curves.steps

    @property
    def batches_a_point(self) -> int:
        """Batches that a whole point stands for; it doubles where points would become too many."""
        return self._curves.width

    def add(self, position: int, batch: BatchMetrics) -> None:
        """Take one more batch in; positions ascend."""
        values = {RECOVERIES: float(batch.is_oom_recovery), _weight(TASK_SHARE): batch.batch_size}
        values |= {_share(task): count for task, count in batch.samples_by_task.items()}
        for tag, value, weight in measured(batch):
            if tag in HIGHEST:
                values[tag] = value
            elif math.isfinite(value):
                values |= {tag: value * weight, _weight(tag): weight}
        self._curves.add(position, values)

    def of(self, tag: str) -> list[float]:
        """Return a curve; NaN where nothing was measured.

        Memory is the highest, out of memory a count, all else a mean, as in
        :meth:`~trainauto.tasks.multitask.monitoring.batch_sums.BatchSums.figures`.
        """
        if tag == RECOVERIES:
            return self._curves.sums(tag)
        of_shares = tag.startswith(TASK_SHARE)
        means = self._curves.ratio(tag, _weight(TASK_SHARE if of_shares else tag))
        points = self._curves.greatest(tag) if tag in HIGHEST else means
        return [(0.0 if of_shares else math.nan) if value is None else value for value in points]

    def relative_losses(self) -> dict[str, float]:
        """Return the loss of each task in the last tenth of the points, over that in the first tenth.

        It compares tasks whose losses are of other scales: below 1 the task was learned. Tasks that lack a loss in
        either tenth are left out, and all are where there are fewer than two points.
        """
        if len(self.positions) < 2:
            return {}
        tenth = max(1, len(self.positions) // 10)
        found = {}
        for tag in (name for name in self._curves.names if name.startswith(TASK_LOSS)):
            losses, weights = self._curves.sums(tag), self._curves.sums(_weight(tag))
            first, last = (sum(weights[part]) for part in (slice(tenth), slice(-tenth, None)))
            if first and last and (began := sum(losses[:tenth]) / first) > 0:
                found[tag.removeprefix(TASK_LOSS)] = sum(losses[-tenth:]) / last / began
        return found


@cache  # points hold names: one string for all of them
def _weight(tag: str) -> str:
    return f"weight of {tag}"


@cache
def _share(task: str) -> str:
    return f"{TASK_SHARE}{task}"


def smoothed(values: Sequence[float], span: float) -> list[float]:
    """Return exponentially weighted means over about ``span`` values, the first without a bias towards 0.

    Values that are not finite are passed over.
    """
    keep = 1 - 2 / (span + 1)
    total = weight = 0.0
    means = []
    for value in values:
        if math.isfinite(value):
            total = keep * total + (1 - keep) * value
            weight = keep * weight + (1 - keep)
        means.append(total / weight if weight else math.nan)
    return means
