"""Telling a loss that runs away from one that is noisy."""

from collections.abc import Mapping
from math import sqrt
from typing import Any

from trainauto.automations.loss_windows import LossWindow, WindowFigures

BLOCK_STEPS = 20
"""Steps whose median is compared with the best."""

FAR_SHARE = 0.5
"""Share of the best by which a median must lie above it."""

FAR_DEVIATIONS = 5.0
"""And as many standard deviations of a mean over a block."""

IN_A_ROW = 2
"""Blocks that must lie so far above, one after the other."""

GRACE_BLOCKS = 5
"""Blocks in which a loss may come back once something was done; one that has not by then diverges still."""


class Divergence:
    """Looks at medians over short blocks: a spike does not move them, a loss that runs away does within two of them.

    What they are compared with is the best mean so far: of a window, or before the first one is full, of the first
    block. It stays the same after a divergence: a loss that only stops rising is not back yet.
    """

    def __init__(self) -> None:
        self._block = LossWindow()
        self._best: WindowFigures | None = None
        self._high = self._grace = 0

    @property
    def is_suspected(self) -> bool:
        """Whether the last block lay far above, or has still time to come back."""
        return self._high > 0 or self._grace > 0

    @property
    def best_mean(self) -> float | None:
        """The best so far."""
        return self._best.mean if self._best is not None else None

    def add(self, loss: float, samples: int, step: int, unit: int) -> str | None:
        """Take in a step; return what is wrong, in words, where the loss diverges.

        Args:
            loss: of the step.
            samples: that it trained.
            step: its number.
            unit: samples of a step of the run's first batch: blocks count in them.
        """
        block = self._block.add(loss, samples, step, BLOCK_STEPS * unit)
        if block is None:
            return None
        if self._best is None:
            self._best = block
            return None
        if self._grace:
            self._grace -= 1
            return None
        self._high = self._high + 1 if block.median > self._best.mean + self._margin(self._best, block) else 0
        if self._high < IN_A_ROW:
            return None
        best, self._high, self._grace = self._best, 0, GRACE_BLOCKS
        return f"the loss diverges: {block.median:.4g}, and its best was {best.mean:.4g} up to step {best.last_step}"

    @staticmethod
    def _margin(best: WindowFigures, block: WindowFigures) -> float:
        return max(FAR_SHARE * abs(best.mean), FAR_DEVIATIONS * best.deviation / sqrt(block.steps))

    def note_window(self, window: WindowFigures) -> None:
        """Take in the mean over a longer window, which may be the best."""
        if self._best is None or window.mean < self._best.mean:
            self._best = window

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        best = None if self._best is None else self._best.to_dict()
        return {
            "block": [list(step) for step in self._block.steps],
            "best": best,
            "high": self._high,
            "grace": self._grace,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Divergence":
        """Return one that goes on where another left off."""
        divergence = cls()
        divergence._block = LossWindow([(float(loss), int(samples)) for loss, samples in state["block"]])
        divergence._best = WindowFigures.from_dict(state["best"])
        divergence._high, divergence._grace = int(state["high"]), int(state["grace"])
        return divergence
