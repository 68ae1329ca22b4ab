"""Curves of a run in bounded memory: where batches become many, each point stands for several of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics
from trainauto.tasks.multitask.monitoring.batch_sums import BatchSums

MOST_POINTS = 1000
"""A picture is about as many pixels wide as it has points: more would not be seen."""


@dataclass
class CurvePoint:
    """Some consecutive batches.

    Attributes:
        position: that of the last of them.
        sums: they as one.
    """

    position: int
    sums: BatchSums = field(default_factory=BatchSums)


class MetricCurves:
    """All batches so far, as at most so many points of equally many batches each (the last may lack some).

    Args:
        most_points: how many; an even number.

    Attributes:
        points: in their order.
        batches_a_point: batches that a whole point stands for; it doubles where points would become too many.
    """

    def __init__(self, most_points: int = MOST_POINTS) -> None:
        self._most = most_points
        self.points: list[CurvePoint] = []
        self.batches_a_point = 1

    def add(self, position: int, batch: BatchMetrics) -> None:
        """Take one more batch in; positions ascend."""
        if not self.points or self.points[-1].sums.batches >= self.batches_a_point:
            if len(self.points) >= self._most:
                self._halve()
            self.points.append(CurvePoint(position))
        self.points[-1].sums.add(batch)
        self.points[-1].position = position

    def _halve(self) -> None:
        for first, second in zip(self.points[::2], self.points[1::2], strict=True):
            first.sums.merge(second.sums)
            first.position = second.position
        self.points = self.points[::2]
        self.batches_a_point *= 2


def relative_losses(points: Sequence[CurvePoint]) -> dict[str, float]:
    """Return the loss of each task in the last tenth of the points, over that in the first tenth.

    It compares tasks whose losses are of other scales: below 1 the task was learned. Tasks that lack a loss in either
    tenth are left out, and all are where there are fewer than two points.
    """
    if len(points) < 2:
        return {}
    tenth = max(1, len(points) // 10)
    first, last = (_together(part).task_means for part in (points[:tenth], points[-tenth:]))
    return {task: last[task] / first[task] for task in first if first[task] > 0 and task in last}


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


def _together(points: Sequence[CurvePoint]) -> BatchSums:
    sums = BatchSums()
    for point in points:
        sums.merge(point.sums)
    return sums
