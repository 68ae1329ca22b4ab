"""Means over the images of a validation."""

import math
from collections.abc import Mapping, Sequence

from trainauto.core.records import ImageScore

Means = dict[str, float]


def mean_scores(scores: Sequence[ImageScore]) -> tuple[Means, Means, dict[str, int]]:
    """Return the mean of each metric, that of what costs nothing, and how many images each metric leaves out.

    An image counts if its value and that of its baseline are finite. Identical images have an infinite PSNR: one blank
    page that is enlarged without an error would make the mean infinite for good, and every later checkpoint worse. Both
    means are of the same images, so that their difference is a gain. Where no image counts they are NaN.
    """
    if not scores:
        return {}, {}, {}
    metrics: Means = {}
    baseline: Means = {}
    left_out: dict[str, int] = {}
    for name in scores[0].metrics:
        counted = [score for score in scores if _counts(score, name)]
        metrics[name] = _mean([score.metrics for score in counted], name)
        if name in scores[0].baseline:
            baseline[name] = _mean([score.baseline for score in counted], name)
        if len(counted) < len(scores):
            left_out[name] = len(scores) - len(counted)
    return metrics, baseline, left_out


def _counts(score: ImageScore, name: str) -> bool:
    return math.isfinite(score.metrics[name]) and math.isfinite(score.baseline.get(name, 0.0))


def _mean(values: Sequence[Mapping[str, float]], name: str) -> float:
    return sum(value[name] for value in values) / len(values) if values else math.nan
