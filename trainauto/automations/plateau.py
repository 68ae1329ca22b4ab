"""Telling a figure that stands still from one that moves slowly under noise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

FEWEST = 4
"""Values of which two are compared with two."""

SIGNIFICANT = 2.0
"""Standard errors by which the mean of later values must be better to be so."""

SLOWEST = 0.01
"""Improvement within patience, as a share of the figure, that must not be taken for none."""

VISIBLE = 4.0
"""Standard errors that such an improvement would come to before standing still is believed: seen by less than
:data:`SIGNIFICANT` it is then missed in one of 40 cases."""

MOST = 1000
"""Values kept; of more, the oldest are forgotten."""


@dataclass
class Plateau:
    """Compares the later half of a stretch of values with the earlier one; lower is better.

    Noise is taken from differences of neighbours, which a slow change hardly touches (von Neumann 1941, "Distribution
    of the ratio of the mean square successive difference to the variance"). Where the later half is better, the earlier
    one is forgotten. Where it is not, the stretch grows until noise would no longer hide an improvement of a hundredth
    within patience: the noisier a figure, the longer it is looked at.

    Attributes:
        values: of the stretch.
        samples: trained for each of them.
        earlier: mean of the earlier half, when it was last compared.
        later: of the later one.
        compared: samples of the stretch then.
    """

    values: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    earlier: float = 0.0
    later: float = 0.0
    compared: int = 0

    def add(self, value: float, samples: int, patience: int, threshold: float) -> bool | None:
        """Take in a value; say whether it has improved, or stands still (False); ``None`` is not known yet.

        Args:
            value: of the figure.
            samples: that were trained for it.
            patience: samples that a stretch must have.
            threshold: share of the figure below which a change is none.
        """
        self.values.append(value)
        self.samples.append(samples)
        del self.values[:-MOST], self.samples[:-MOST]
        count, total = len(self.values), sum(self.samples)
        if count < FEWEST or total < patience:
            return None
        half = count // 2
        self.earlier, self.later, self.compared = _mean(self.values[:half]), _mean(self.values[-half:]), total
        change, error, level = self.earlier - self.later, self._error(half), abs(self.later)
        if change > SIGNIFICANT * error and change > threshold * level:
            del self.values[:half], self.samples[:half]
            return True
        # Halves lie half a stretch apart, so that this is what a slow improvement would have come to between them.
        slow = SLOWEST * level * (total / 2) / patience
        return False if slow >= VISIBLE * error else None

    def _error(self, half: int) -> float:
        """Return the standard error of the difference between the means of two halves."""
        steps = [(after - before) ** 2 for before, after in zip(self.values, self.values[1:], strict=False)]
        return sqrt(_mean(steps) / 2) * sqrt(2 / half)

    def forget(self) -> None:
        """Begin a new stretch."""
        self.values, self.samples = [], []

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"values": list(self.values), "samples": list(self.samples)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Plateau":
        """Return one that goes on where another left off."""
        return cls(list(state["values"]), list(state["samples"]))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
