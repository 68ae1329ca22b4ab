"""Low-quality images to the bit: MATLAB's in exact fractions, and those that a GTImageDataset makes."""

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from trainauto.tasks.sr.data.geometry import shrunk
from trainauto.tasks.sr.preparation.low_quality import SHRINKING, matlab_bicubic


def cubic(x: Fraction) -> Fraction:
    x = abs(x)
    if x <= 1:
        return Fraction(3, 2) * x**3 - Fraction(5, 2) * x**2 + 1
    return -Fraction(1, 2) * x**3 + Fraction(5, 2) * x**2 - 4 * x + 2 if x <= 2 else Fraction(0)


def shrunk_rows(rows: list[list[int]], scale: int, largest: int) -> list[list[int]]:
    """As imresize documents its steps, pixel by pixel, counted from 1."""
    result = []
    for place in range(1, len(rows) // scale + 1):
        centre = Fraction(place) * scale + Fraction(1 - scale, 2)
        left = floor(centre - 2 * scale)
        taps = range(left, left + 4 * scale + 2)
        weights = [cubic((centre - tap) / scale) / scale for tap in taps]
        mirrored = [*range(len(rows)), *reversed(range(len(rows)))]
        sources = [rows[mirrored[(tap - 1) % len(mirrored)]] for tap in taps]
        values = [
            sum(weight * source[column] for weight, source in zip(weights, sources, strict=True)) / sum(weights)
            for column in range(len(rows[0]))
        ]
        result.append([min(largest, max(0, floor(value + Fraction(1, 2)))) for value in values])
    return result


def reference(channel: NDArray[Any], scale: int) -> NDArray[Any]:
    largest = int(np.iinfo(channel.dtype).max)
    rows = shrunk_rows(channel.tolist(), scale, largest)
    columns = shrunk_rows([list(column) for column in zip(*rows, strict=True)], scale, largest)
    return np.array(columns).T


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize(("scale", "height", "width"), [(2, 18, 12), (3, 9, 18), (4, 16, 24), (8, 8, 16), (1, 5, 7)])
def test_matlab_is_exact(kind: type[Any], scale: int, height: int, width: int) -> None:
    rng = np.random.default_rng(scale)
    pixels = rng.integers(0, np.iinfo(kind).max + 1, (height, width, 2)).astype(kind)
    pixels[:, : width // 2] = np.where(pixels[:, : width // 2] > np.iinfo(kind).max // 2, np.iinfo(kind).max, 0)
    small = matlab_bicubic(pixels, scale)
    assert small.dtype == kind
    for channel in range(2):
        np.testing.assert_array_equal(small[:, :, channel], reference(pixels[:, :, channel], scale))


def test_matlab_of_known_values() -> None:
    """A step at scale 2, by hand: the weights are (-3, -9, 29, 111, 111, 29, -9, -3) / 256."""
    row = np.array([0] * 8 + [255] * 8, np.uint8)
    pixels = np.tile(row, (2, 1))[:, :, None]
    expected = [0, 0, 0, 0, 255, 255, 255, 255]
    expected[3] = max(0, round(255 * (29 - 9 - 3) / 256))
    expected[2] = 0  # 255 * (-3) / 256, clipped
    expected[4], expected[5] = 255 - expected[3], 255
    assert matlab_bicubic(pixels, 2)[0, :, 0].tolist() == expected


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_what_a_run_makes_keeps_16_bits(photograph: NDArray[Any], scale: int) -> None:
    assert SHRINKING["antialiased"] is shrunk
    deep = photograph[:120, :96].astype(np.uint16) * 257
    small = shrunk(deep, scale)
    assert small.dtype == np.uint16
    image = torch.from_numpy(deep.transpose(2, 0, 1).astype(np.float64))[None]
    size = 120 // scale, 96 // scale
    exact = torch.nn.functional.interpolate(image, size, mode="bicubic", antialias=True)[0].clamp(0, 65535)
    np.testing.assert_allclose(small, exact.permute(1, 2, 0), atol=0.6)
    assert len(np.unique(small)) > 256
