"""Means over the images of a validation leave out what is infinite or no number."""

import math

import pytest

from trainauto.core.mean_scores import mean_scores
from trainauto.core.records import ImageScore

INF, NAN = math.inf, math.nan


def scores(*pairs: tuple[float, float]) -> list[ImageScore]:
    return [ImageScore(str(number), {"psnr": own}, {"psnr": other}) for number, (own, other) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("pairs", "mean", "baseline", "left_out"),
    [
        ([(20.0, 18.0), (30.0, 24.0)], 25.0, 21.0, 0),
        ([(20.0, 18.0), (INF, INF), (30.0, 24.0)], 25.0, 21.0, 1),
        ([(20.0, 18.0), (60.0, INF)], 20.0, 18.0, 1),  # of the same images, or their difference is no gain
        ([(20.0, 18.0), (INF, 24.0), (NAN, 22.0)], 20.0, 18.0, 2),
        ([(INF, INF), (INF, INF)], NAN, NAN, 2),
    ],
)
def test_both_means_are_of_images_with_finite_values(
    pairs: list[tuple[float, float]], mean: float, baseline: float, left_out: int
) -> None:
    metrics, baselines, left = mean_scores(scores(*pairs))
    assert metrics["psnr"] == pytest.approx(mean, nan_ok=True)
    assert baselines["psnr"] == pytest.approx(baseline, nan_ok=True)
    assert left.get("psnr", 0) == left_out


def test_without_images_there_are_no_means() -> None:
    assert mean_scores([]) == ({}, {}, {})
