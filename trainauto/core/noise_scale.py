"""The gradient noise scale: how many samples a step can use before more of them say the same.

S. McCandlish et al., "An Empirical Model of Large-Batch Training", https://arxiv.org/abs/1812.06162, appendix A: B =
tr(S) / |G|^2, with S the covariance of the gradients of single samples and G their mean. A step of b samples is in the
mean worth b * (B + b0) / (B + b) samples in steps of b0 (section 2.2 there; A. Qiao et al., "Pollux", OSDI 2021).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

REMEMBERED = 50
"""Sampled steps over which the estimate forgets: the scale grows while a run converges."""

LEAST_REMEMBERED = 8
"""The same in the beginning; afterwards half of what was sampled so far, up to that."""

DOUBT = 1.0
"""Standard errors by which bounds of the scale lie off its estimate."""


@dataclass(frozen=True)
class NoiseSample:
    """Norms of the gradients of one step whose batch ran in parts.

    Attributes:
        parts_square: sum over the parts of their share of the batch times the squared norm of their mean gradient.
        square: squared norm of the whole batch's mean gradient.
        parts: how many there were.
        amount: what the batch held, in the unit that plans count: samples, or tokens.
    """

    parts_square: float
    square: float
    parts: int
    amount: int

    def joined(self, other: "NoiseSample") -> "NoiseSample":
        """Return what both say that were computed on two ranks of one step."""
        return NoiseSample(
            self.parts_square + other.parts_square, self.square, self.parts + other.parts, self.amount + other.amount
        )

    @property
    def trace(self) -> float:
        """Unbiased estimate of tr(S), by the spread of the parts; it may be below 0 by chance alone."""
        return (self.parts_square - self.square) * self.amount / (self.parts - 1)

    @property
    def mean_square(self) -> float:
        """Unbiased estimate of |G|^2, which is below that of the batch by its own noise."""
        return self.square - self.trace / self.amount

    @property
    def is_told(self) -> bool:
        """Whether it is worth a record: gradients of parts were seen, and are finite numbers."""
        return self.parts > 0 and isfinite(self.parts_square) and isfinite(self.square)

    @property
    def is_usable(self) -> bool:
        """Whether it tells anything: several parts, and finite numbers."""
        return self.is_told and self.parts > 1 and self.amount > 1


@dataclass
class NoiseScale:
    """The noise scale of one optimizer: the ratio of both estimates, each averaged over the last sampled steps."""

    samples: int = 0
    _weight: float = 0.0
    _trace: float = 0.0
    _mean_square: float = 0.0
    _squares: tuple[float, float] = (0.0, 0.0)
    _squared_weight: float = 0.0

    def add(self, sample: NoiseSample) -> None:
        """Take in a sampled step."""
        if not sample.is_usable:
            return
        self.samples += 1
        # Gradients are largest in the beginning: what is summed there must not outweigh what comes after it for long.
        keep = 1 - 1 / min(REMEMBERED, max(LEAST_REMEMBERED, self.samples / 2))
        self._weight = keep * self._weight + 1
        self._squared_weight = keep**2 * self._squared_weight + 1
        self._trace = keep * self._trace + sample.trace
        self._mean_square = keep * self._mean_square + sample.mean_square
        self._squares = (
            keep * self._squares[0] + sample.trace**2,
            keep * self._squares[1] + sample.mean_square**2,
        )

    @property
    def value(self) -> float | None:
        """The scale, in what plans count; ``None`` while nothing is known, infinite where no mean can be told."""
        if not self.samples:
            return None
        if self._mean_square <= 0:
            return float("inf")
        return max(0.0, self._trace) / self._mean_square

    @property
    def least(self) -> float:
        """A lower bound: less noise and a larger mean, by :data:`DOUBT` standard errors; 0 while nothing is known."""
        if self.samples < 2:
            return 0.0
        trace, mean = (
            total / self._weight + sign * DOUBT * self._error(total, squares)
            for total, squares, sign in zip((self._trace, self._mean_square), self._squares, (-1, 1), strict=True)
        )
        return max(0.0, trace) / mean if mean > 0 else float("inf")

    def _error(self, total: float, squares: float) -> float:
        """Return the standard error of a mean."""
        mean = total / self._weight
        variance = max(0.0, squares / self._weight - mean**2)
        return sqrt(variance * self._squared_weight) / self._weight

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return {
            "samples": self.samples,
            "sums": [self._weight, self._squared_weight, self._trace, self._mean_square, *self._squares],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "NoiseScale":
        """Rebuild :meth:`state_dict`."""
        weight, squared_weight, trace, mean_square, *squares = (float(number) for number in state["sums"])
        return cls(int(state["samples"]), weight, trace, mean_square, (squares[0], squares[1]), squared_weight)


class NoiseScales:
    """The noise scales of a run, by optimizer, from what its records say."""

    def __init__(self) -> None:
        self._scales: dict[str, NoiseScale] = {}

    def add(self, samples: Mapping[str, NoiseSample]) -> dict[str, float]:
        """Take in what a step says; return the scales of its optimizers, where a mean can be told."""
        for name, sample in samples.items():
            self._scales.setdefault(name, NoiseScale()).add(sample)
        values = {name: self._scales[name].value for name in samples}
        return {name: value for name, value in values.items() if value is not None and isfinite(value)}


def worth(amount: float, noise: float, base: float) -> float:
    """Return what a sample of a step of ``amount`` is worth, over one of a step of ``base``: at most 1 beyond it.

    ``noise`` is the noise scale.
    """
    if noise == float("inf"):
        return 1.0
    return (noise + base) / (noise + amount)
