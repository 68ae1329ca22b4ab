"""Draws that several steps make."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from numpy.random import Generator

Item = TypeVar("Item")


def happens(rng: Generator, probability: float) -> bool:
    """Return ``True`` with a probability; one draw, whatever it is."""
    return bool(rng.random() < probability)


def weighted(rng: Generator, items: Sequence[Item], weights: Sequence[float]) -> Item:
    """Return an item with a probability in proportion to its weight."""
    left = rng.random() * sum(weights)
    for item, weight in zip(items, weights, strict=True):
        left -= weight
        if left < 0:
            return item
    return next(item for item, weight in zip(reversed(items), reversed(weights), strict=True) if weight > 0)


def chosen(rng: Generator, weights: Mapping[str, float]) -> str:
    """Return a name with a probability in proportion to its weight."""
    return weighted(rng, list(weights), list(weights.values()))


def odd_size(rng: Generator, smallest: int, largest: int) -> int:
    """Return an odd number, uniform from the smallest to the largest, both of them odd."""
    return smallest + 2 * int(rng.integers((largest - smallest) // 2 + 1))


def around_one(rng: Generator, lowest: float, highest: float) -> float:
    """Return a number below 1 as often as above, uniform on either side: how Real-ESRGAN draws shapes of kernels."""
    return float(rng.uniform(lowest, 1) if rng.random() < 0.5 else rng.uniform(1, highest))
