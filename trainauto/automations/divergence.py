"""Telling a loss that runs away from one that is noisy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean
from typing import Any

from trainauto.automations.loss_windows import LossWindow, WindowFigures

BLOCK_STEPS = 20
"""Steps whose median is compared with the best."""

FAR_SHARE = 0.5
"""Share of the best by which a median must lie above it."""

BACK_SHARE = 0.1
"""And by which it may, to be back again."""

NOISE = 5.0
"""Standard deviations of a mean over as many steps that it must, or may, lie above at least."""

IN_A_ROW = 2
"""Blocks that must lie so far above, one after the other."""

LOOKED_AT = 5
"""Blocks after which it is looked at whether a loss that ran away comes back."""

CLOSED = 0.1
"""Share of the way back that it must have come by then."""


@dataclass(frozen=True)
class Diverged:
    """A loss that is far above its best.

    Attributes:
        reason: in words.
        is_new: whether it ran away just now; else it has not come back.
    """

    reason: str
    is_new: bool


@dataclass
class Divergence:
    """Looks at medians over short blocks: a spike does not move them, a loss that runs away does within two of them.

    What they are compared with is the best mean so far: of a window, or before the first one is full, of the first
    block. It stays the same after a divergence, which lasts until the loss is back near it.

    Attributes:
        best: so far.
        away: how far above it the loss was when it was last looked at, since it ran away; ``None`` while it has not.
    """

    best: WindowFigures | None = None
    away: float | None = None
    _block: LossWindow = field(default_factory=LossWindow)
    _high: int = 0
    _levels: list[float] = field(default_factory=list)

    @property
    def is_suspected(self) -> bool:
        """Whether the last block lay far above, or the loss is not back yet."""
        return self._high > 0 or self.away is not None

    def add(self, loss: float, samples: int, step: int, unit: int) -> Diverged | None:
        """Take in a step; say where the loss has run away, or does not come back.

        Args:
            loss: of the step.
            samples: that it trained.
            step: its number.
            unit: samples of a step of the run's first batch: blocks count in them.
        """
        block = self._block.add(loss, samples, step, BLOCK_STEPS * unit)
        if block is None:
            return None
        if self.best is None:
            self.best = block
            return None
        if self.away is not None:
            return self._coming_back(self.best, block, self.away)
        is_high = block.median - self.best.mean > _margin(self.best, FAR_SHARE, block.steps)
        self._high = self._high + 1 if is_high else 0
        if self._high < IN_A_ROW:
            return None
        self._high, self.away = 0, block.median - self.best.mean
        return Diverged(f"the loss diverges: {block.median:.4g}, and {_words(self.best)}", is_new=True)

    def _coming_back(self, best: WindowFigures, block: WindowFigures, before: float) -> Diverged | None:
        self._levels.append(block.median)
        if len(self._levels) < LOOKED_AT:
            return None
        level, self._levels = fmean(self._levels), []
        self.away = level - best.mean
        if self.away <= _margin(best, BACK_SHARE, LOOKED_AT * block.steps):
            self.away = None
            return None
        if self.away <= (1 - CLOSED) * before:
            return None
        return Diverged(f"the loss has diverged and does not come back: {level:.4g}, and {_words(best)}", is_new=False)

    def note_window(self, window: WindowFigures) -> None:
        """Take in the mean over a longer window, which may be the best."""
        if self.best is None or window.mean < self.best.mean:
            self.best = window

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "best": None if self.best is None else self.best.to_dict(),
            "away": self.away,
            "block": [list(step) for step in self._block.steps],
            "high": self._high,
            "levels": list(self._levels),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Divergence":
        """Return one that goes on where another left off."""
        block = LossWindow([(float(loss), int(samples)) for loss, samples in state["block"]])
        best = WindowFigures.from_dict(state["best"])
        return cls(best, state["away"], block, int(state["high"]), list(state["levels"]))


def _margin(best: WindowFigures, share: float, steps: int) -> float:
    return max(share * abs(best.mean), NOISE * best.deviation / sqrt(steps))


def _words(best: WindowFigures) -> str:
    return f"its best was {best.mean:.4g} up to step {best.last_step}"
