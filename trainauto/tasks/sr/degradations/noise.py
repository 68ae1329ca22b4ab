"""Gaussian and Poisson noise, in colour or the same in all channels."""

import math
from functools import lru_cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from trainauto.tasks.sr.degradations.image import Image, to_pixels

LUMA = np.array([0.2989, 0.587, 0.114], np.float32)
"""Weights of red, green and blue in grey, ITU-R BT.601."""

LEVELS = 256
BUCKETS = 4096
"""Of the guide to Poisson quantiles: each draw starts within a step or two of its value."""


def with_gaussian_noise(rng: Generator, image: Image, sigma: float, *, gray: bool) -> Image:
    """Return the image with Gaussian noise, clipped to 0 to 1.

    Args:
        rng: what to draw from.
        image: (H, W, C).
        sigma: standard deviation, in 255ths.
        gray: draw one plane for all channels.
    """
    shape = (*image.shape[:2], 1) if gray else image.shape
    noise = rng.standard_normal(shape, np.float32)
    noise *= np.float32(sigma / 255)
    noisy: Image = np.clip(image + noise, 0, 1)
    return noisy


def with_poisson_noise(rng: Generator, image: Image, scale: float, *, gray: bool) -> Image:
    """Return the image with Poisson noise (P(v * x) / v - x) * scale, clipped to 0 to 1.

    ``x`` is the image rounded to 8 bits, and ``v`` the number of its distinct values, rounded up to a power of two.
    Its variance is x / v * scale^2.

    Args:
        rng: what to draw from.
        image: (H, W, C).
        scale: factor of the noise.
        gray: draw one plane, of the grey image, for all channels.
    """
    grey = gray and image.shape[2] == 3
    levels = to_pixels(image @ LUMA[:, None] if grey else image)
    values = 2 ** math.ceil(math.log2(np.count_nonzero(np.bincount(levels.ravel(), minlength=LEVELS))))
    noise = _poisson_of_levels(rng, levels, values).astype(np.float32)
    noise /= values
    noise -= levels * np.float32(1 / 255)
    noise *= np.float32(scale)
    noisy: Image = np.clip(image + noise, 0, 1)
    return noisy


def _poisson_of_levels(rng: Generator, levels: NDArray[np.uint8], values: int) -> NDArray[np.int32]:
    """Draw Poisson numbers of mean level / 255 * values, by inverting the distribution of each of 256 levels."""
    cumulative, guide = _tables(values)
    uniform = rng.random(levels.shape, np.float32).ravel()
    level = levels.ravel().astype(np.int32)
    drawn = guide[level, (uniform * BUCKETS).astype(np.int32)].astype(np.int32)
    behind = np.flatnonzero(uniform >= cumulative[level, drawn])
    while behind.size:
        drawn[behind] += 1
        behind = behind[uniform[behind] >= cumulative[level[behind], drawn[behind]]]
    return drawn.reshape(levels.shape)


@lru_cache(maxsize=9)
def _tables(values: int) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
    """Return P(X <= k) of each level, and the smallest k where it exceeds the start of each bucket."""
    mean = np.arange(LEVELS)[:, None] / (LEVELS - 1) * values
    # Beyond 12 standard deviations lies less than a uniform float32 tells from 1.
    most = math.ceil(values + 12 * math.sqrt(values) + 12)
    k = np.arange(most + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(k[1:]))])
    with np.errstate(divide="ignore", invalid="ignore"):
        log_pmf = np.where(k == 0, 0.0, k * np.log(mean)) - mean - log_factorial
    cumulative = np.cumsum(np.exp(log_pmf), axis=1).astype(np.float32)
    cumulative[:, -1] = 2  # ends every search
    starts = np.arange(BUCKETS, dtype=np.float32) / BUCKETS
    guide = np.stack([np.searchsorted(row, starts, side="right") for row in cumulative]).astype(np.int16)
    return cumulative, guide
