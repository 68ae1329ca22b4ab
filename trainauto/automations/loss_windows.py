"""Losses of steps put together to windows of so many samples, in which single steps no longer matter."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from statistics import median
from typing import Any


@dataclass(frozen=True)
class WindowFigures:
    """What a window of steps came to.

    Attributes:
        mean: of the losses, each weighted by the samples of its step.
        median: of the losses, which a few steps far off do not move.
        deviation: standard deviation of a step's loss from the mean.
        steps: how many there were.
        samples: that they trained.
        last_step: the last of them.
    """

    mean: float
    median: float
    deviation: float
    steps: int
    samples: int
    last_step: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> "WindowFigures | None":
        """Take back :meth:`to_dict`; ``None`` is none."""
        return None if values is None else cls(**values)


@dataclass
class LossWindow:
    """Collects steps until they have so many samples.

    Attributes:
        steps: loss and samples of each step so far.
    """

    steps: list[tuple[float, int]] = field(default_factory=list)

    def add(self, loss: float, samples: int, step: int, length: float) -> WindowFigures | None:
        """Take in a step; return the figures of the window where it is full, which begins anew then.

        Args:
            loss: of the step.
            samples: that it trained.
            step: its number.
            length: samples of a window.
        """
        self.steps.append((loss, samples))
        if sum(count for _, count in self.steps) < length:
            return None
        figures = _figures(self.steps, step)
        self.steps = []
        return figures


def _figures(steps: Sequence[tuple[float, int]], last_step: int) -> WindowFigures:
    samples = sum(count for _, count in steps)
    mean = sum(loss * count for loss, count in steps) / samples
    variance = sum((loss - mean) ** 2 * count for loss, count in steps) / samples
    return WindowFigures(mean, median(loss for loss, _ in steps), sqrt(variance), len(steps), samples, last_step)
