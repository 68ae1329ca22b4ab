"""What is measured of tiles, against other ways of measuring it, and on photographs that were spoilt."""

from itertools import combinations
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.fft import dctn

from tests.conftest import PHOTOGRAPHS
from trainauto.tasks.sr.preparation.tiles import Grid, cut
from trainauto.tasks.sr.preparation.work import blockiness, detail, grey_levels, perceptual_hash

NAMES = ("astronaut.png", "coffee.png", "chelsea.png", "camera.png", "rocket.jpg")


@pytest.fixture(scope="module")
def photographs() -> list[NDArray[Any]]:
    return [cv2.imread(str(PHOTOGRAPHS / name))[:, :, ::-1] for name in NAMES]


def as_jpeg(pixels: NDArray[Any], quality: int) -> NDArray[Any]:
    encoded = cv2.imencode(".jpg", pixels[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return cv2.imdecode(encoded, cv2.IMREAD_COLOR)[:, :, ::-1]


def distance(one: NDArray[Any], other: NDArray[Any]) -> int:
    return (perceptual_hash(grey_levels(one)) ^ perceptual_hash(grey_levels(other))).bit_count()


def test_luma_is_the_same_at_16_bits(photographs: list[NDArray[Any]]) -> None:
    grey = grey_levels(photographs[0])
    expected = photographs[0] @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(grey, expected, atol=0.51)
    np.testing.assert_allclose(grey_levels(photographs[0].astype(np.uint16) * 257), expected, atol=0.01)


def test_hash_is_that_of_another_dct(photographs: list[NDArray[Any]]) -> None:
    for photograph in photographs:
        grey = grey_levels(photograph)
        small = cv2.resize(grey, (32, 32), interpolation=cv2.INTER_AREA).astype(np.float64)
        lowest = dctn(small, norm="ortho")[:8, :8].ravel()
        expected = sum(1 << (63 - place) for place in range(64) if lowest[place] > np.median(lowest))
        assert perceptual_hash(grey) == expected


def test_hashes_of_copies_are_near_and_of_others_far(photographs: list[NDArray[Any]]) -> None:
    for photograph in photographs:
        half = cv2.resize(photograph, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
        brighter = np.clip(photograph * 1.1, 0, 255).astype(np.uint8)
        assert max(distance(photograph, copy) for copy in (as_jpeg(photograph, 30), half, brighter)) <= 2
    assert min(distance(*pair) for pair in combinations(photographs, 2)) >= 16


def test_detail_counts_levels_between_neighbours() -> None:
    assert detail(np.full((5, 5), 7, np.float32)) == 0
    ramp = np.tile(np.arange(9, dtype=np.float32) * 3, (9, 1))
    assert detail(ramp) == pytest.approx(1.5)  # 3 across, 0 down
    assert detail(np.zeros((1, 1), np.float32)) == 0


def ratio_of_loops(grey: NDArray[Any]) -> float:
    """The definition, pixel by pixel."""
    ratios = []
    for image in (grey, grey.T):
        sums: list[list[float]] = [[] for _ in range(8)]
        for column in range(image.shape[1] - 1):
            sums[column % 8].append(np.mean([abs(float(row[column + 1]) - float(row[column])) for row in image]))
        second, first = sorted(np.mean(steps) for steps in sums)[-2:]
        ratios.append((first + 0.5) / (second + 0.5))
    return min(ratios)


def test_blockiness_is_its_definition(photographs: list[NDArray[Any]]) -> None:
    grey = grey_levels(as_jpeg(photographs[2], 20))[3:51, 5:69]
    assert blockiness(grey) == pytest.approx(ratio_of_loops(grey), rel=1e-6)


def test_blocks_are_told_from_what_only_looks_like_them(photographs: list[NDArray[Any]]) -> None:
    """At the threshold that is the default: 1.4."""
    for photograph in photographs:
        for box in Grid(240).boxes(*photograph.shape[:2]):
            assert blockiness(grey_levels(cut(photograph, box))) < 1.2
        cropped = as_jpeg(photograph, 10)[3:, 5:]  # the grid begins elsewhere
        assert all(blockiness(grey_levels(cut(cropped, box))) > 1.4 for box in Grid(240).boxes(*cropped.shape[:2]))
    art = np.random.default_rng(1).integers(0, 256, (64, 64), np.uint8)
    for times in (2, 4):
        assert blockiness(np.kron(art, np.ones((times, times))).astype(np.float32)) < 1.2
    assert blockiness(np.zeros((64, 64), np.float32)) == 1
    assert blockiness(np.zeros((64, 20), np.float32)) == 1
