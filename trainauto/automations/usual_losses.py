"""What losses are usual, so that a leap is told from noise."""

from collections import deque
from collections.abc import Mapping
from heapq import nlargest
from math import sqrt
from statistics import median
from typing import Any

WINDOW_STEPS = 100
"""Steps whose losses say what is usual."""

FEWEST_STEPS = 50
"""Losses before anything is called unusual."""

FAR_DEVIATIONS = 10.0
"""Robust standard deviations that a loss must lie above the median to be far off."""

FAR_SHARE = 0.5
"""And the share of the median that it must lie above it at least: losses of a run that has converged hardly scatter."""

FAR_ABOVE_HIGHEST = 1.5
"""And how many times as far above the median as the third highest of the usual losses: where tasks or lengths differ,
or most losses are 0, a median absolute deviation says nothing of the high ones."""

HIGHEST = 3
"""Which of the highest losses that is: one or two freak batches hide no leap."""

LOOKED_AT = 10
"""Steps between looks at what is usual: two medians of a hundred losses are dear for every step."""

NORMAL = 1.4826
"""Standard deviations of a normal distribution in a median absolute deviation (1 / its 75 % quantile)."""


class UsualLosses:
    """The losses of the last hundred steps of a kind.

    Attributes:
        middle: their median.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque(maxlen=WINDOW_STEPS)
        self.middle, self._scatter = 0.0, 0.0
        self._high = 0.0, 1  # how far above the median the third highest lies, and of how many samples it is
        self._until_look = FEWEST_STEPS

    @property
    def is_known(self) -> bool:
        """Whether there are enough of them to say what is usual."""
        return len(self._steps) >= FEWEST_STEPS

    def bound(self, samples: int) -> float | None:
        """Return what a loss over so many samples is far off above; ``None`` while too little is known."""
        if not self.is_known:
            return None
        high, samples_of_high = self._high
        # Smaller batches have more noise. Larger ones are not taken to have less: part of it may not be theirs.
        above_highest = FAR_ABOVE_HIGHEST * high * sqrt(max(1.0, samples_of_high / samples))
        spread = max(FAR_DEVIATIONS * self._scatter / sqrt(samples), above_highest)
        # Losses that are all the same, as those of a hinge that is never touched, do not say what is far from them.
        return self.middle + max(spread, FAR_SHARE * abs(self.middle)) if spread else None

    def add(self, loss: float, samples: int) -> None:
        """Count a loss among them."""
        self._steps.append((loss, samples))
        self._until_look -= 1
        if self._until_look <= 0:
            self._until_look = LOOKED_AT
            middle = self.middle = median(known for known, _ in self._steps)
            self._scatter = NORMAL * median(abs(known - middle) * sqrt(count) for known, count in self._steps)
            highest, count = nlargest(HIGHEST, self._steps)[-1]
            self._high = highest - middle, count

    def state_dict(self) -> dict[str, Any]:
        """Return them as plain values."""
        return {
            "steps": [list(step) for step in self._steps],
            "middle": self.middle,
            "scatter": self._scatter,
            "until_look": self._until_look,
            "high": list(self._high),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "UsualLosses":
        """Return those that :meth:`state_dict` gave."""
        usual = cls()
        usual._steps.extend((float(loss), int(samples)) for loss, samples in state["steps"])
        usual.middle, usual._scatter = float(state["middle"]), float(state["scatter"])
        usual._until_look = int(state["until_look"])
        usual._high = float(state["high"][0]), int(state["high"][1])
        return usual
