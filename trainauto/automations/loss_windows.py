"""Losses of steps put together to windows of so many steps, in which single ones no longer matter."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from statistics import median
from typing import Any

from trainauto.automations.span import Span

NOISE = 5.0
"""Standard deviations of a mean over the steps of a window by which it may differ from another one."""


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

    @property
    def span(self) -> Span:
        """How long it is."""
        return Span(self.steps, self.samples)

    def margin(self, share: float, window: "WindowFigures") -> float:
        """Return how far above this one another window may lie: by a share of it, or by five times its own noise.

        Noise of a step is that of its samples: smaller batches have more of it. Larger ones are not taken to have less,
        since part of it may not be theirs.
        """
        fewer = (self.samples / self.steps) / (window.samples / window.steps)
        deviation = self.deviation * sqrt(max(1.0, fewer))
        return max(share * abs(self.mean), NOISE * deviation / sqrt(window.steps))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "WindowFigures":
        """Take back :meth:`to_dict`."""
        return cls(**values)


@dataclass
class LossWindow:
    """Collects steps until there are so many: fewer large batches would say no more of noise that is not theirs.

    Attributes:
        steps: loss and samples of each step so far.
    """

    steps: list[tuple[float, int]] = field(default_factory=list)

    def add(self, loss: float, samples: int, step: int, length: int) -> WindowFigures | None:
        """Take in a step; return the figures of the window where it is full, which begins anew then.

        Args:
            loss: of the step.
            samples: that it trained.
            step: its number.
            length: steps of a window.
        """
        self.steps.append((loss, samples))
        if len(self.steps) < length:
            return None
        figures = _figures(self.steps, step)
        self.steps = []
        return figures


def joined(windows: Sequence[WindowFigures]) -> WindowFigures:
    """Return what windows that follow each other came to together; the median is that of their medians."""
    samples, steps = sum(window.samples for window in windows), sum(window.steps for window in windows)
    mean = sum(window.mean * window.samples for window in windows) / samples
    squares = sum((window.deviation**2 + (window.mean - mean) ** 2) * window.samples for window in windows)
    middle = median(window.median for window in windows)
    return WindowFigures(mean, middle, sqrt(squares / samples), steps, samples, windows[-1].last_step)


def _figures(steps: Sequence[tuple[float, int]], last_step: int) -> WindowFigures:
    samples = sum(count for _, count in steps)
    mean = sum(loss * count for loss, count in steps) / samples
    variance = sum((loss - mean) ** 2 * count for loss, count in steps) / samples
    return WindowFigures(mean, median(loss for loss, _ in steps), sqrt(variance), len(steps), samples, last_step)
