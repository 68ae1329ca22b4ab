"""The published figures of memory."""

from collections.abc import Callable

import pytest

from trainauto.tasks.multitask.prediction.published_constants import PUBLISHED, published_gib


def test_images_count_once() -> None:
    """A30: the source multiplied by 1.85 for two images after it had added both."""

    def faulty(images: int) -> float:
        return published_gib(images) * {1: 1.0, 2: 1.85}[images]

    def is_a_line(gib: Callable[[int], float]) -> bool:
        first, second, third = (gib(images) for images in (0, 1, 2))
        return abs((third - second) - (second - first)) < 1e-9

    assert is_a_line(published_gib)
    assert faulty(2) - faulty(1) > 1.5 * (published_gib(2) - published_gib(1))


def test_figures_are_the_published_ones() -> None:
    assert PUBLISHED == {"T1": 1, "T2": 2, "T3": 2}
    assert published_gib(1) == pytest.approx(0.90)
    assert published_gib(2) == pytest.approx(1.53)
    assert published_gib(2, is_training=False) == pytest.approx(0.83)
    assert published_gib(0) == pytest.approx(0.27)
