"""Telling a loss that runs away from one that is noisy, and one that comes back from one that does not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from trainauto.automations.loss_windows import LossWindow, WindowFigures, joined
from trainauto.automations.plateau import SIGNIFICANT, VISIBLE, Halves
from trainauto.automations.span import NOTHING, Span

BLOCK_STEPS = 20
"""Steps whose median is compared with the best, however large their batches are."""

LOOKED_AT = 5
"""Blocks that make a mean which may be the best, and after which it is looked at whether a loss comes back."""

FAR_SHARE = 0.5
"""Share of the best by which a median must lie above it."""

BACK_SHARE = 0.1
"""And by which it may, to be back again."""

NOISE = 5.0
"""Standard deviations of a mean over as many steps that it must, or may, lie above at least."""

IN_A_ROW = 2
"""Blocks that must lie so far above, one after the other."""

RISING = 3.0
"""Standard errors by which a loss must have risen further to be still running away."""

RISEN_SHARE = 0.1
"""And share of the way to its best by which it must."""

SLOWEST_RETURN_STEPS = 4000
"""A loss that would be back after so many steps is coming back, and noise must not hide that."""

STILL = 0.001
"""Share of the loss below which a fall is none, however sure."""


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

    What they are compared with is the best mean so far, over five blocks that lie nowhere near a divergence; before
    there are five, it is the first one. A divergence lasts until the loss is back near that best, or has not risen for
    as long as patience: what it has come to is then what later losses are compared with, for it comes back slowly, or
    not at all, as with other data. Meanwhile it is told again whenever it rises further, and once where it stands still
    for so long that noise would not hide a return within 4000 steps. A loss that falls at all is left alone.

    Attributes:
        best: so far.
        away: how far above it the loss was when it was last looked at, since it ran away; ``None`` while it has not.
    """

    best: WindowFigures | None = None
    away: float | None = None
    _block: LossWindow = field(default_factory=LossWindow)
    _blocks: list[WindowFigures] = field(default_factory=list)
    _high: int = 0
    _unrisen: Span = NOTHING
    _has_stood: bool = False

    @property
    def is_suspected(self) -> bool:
        """Whether the last block lay far above, or the loss is not back yet."""
        return self._high > 0 or self.away is not None

    def add(self, loss: float, samples: int, step: int, patience: Span) -> Diverged | None:
        """Take in a step; say where the loss has run away, or does not come back.

        Args:
            loss: of the step.
            samples: that it trained.
            step: its number.
            patience: how long a loss must not have risen to be no divergence any more.
        """
        block = self._block.add(loss, samples, step, BLOCK_STEPS)
        if block is None:
            return None
        if self.best is None:
            self.best = block
        self._blocks.append(block)
        self._unrisen += block.span
        if self.away is not None:
            return self._coming_back(self.best, self.away, patience)
        is_high = block.median - self.best.mean > _margin(self.best, FAR_SHARE, block)
        self._high = self._high + 1 if is_high else 0
        if self._high >= IN_A_ROW:
            self._high, self.away = 0, block.median - self.best.mean
            self._begin_looking()
            return Diverged(f"the loss diverges: {block.median:.4g}, and {_words(self.best)}", is_new=True)
        self._note_best(self.best)
        return None

    def _note_best(self, best: WindowFigures) -> None:
        if self._high:
            self._blocks = []
        elif len(self._blocks) >= LOOKED_AT:
            window, self._blocks = joined(self._blocks), []
            self.best = window if window.mean < best.mean else best

    def _begin_looking(self) -> None:
        self._blocks, self._unrisen, self._has_stood = [], NOTHING, False

    def _coming_back(self, best: WindowFigures, before: float, patience: Span) -> Diverged | None:
        """Say where a loss that ran away rises further, or stands still."""
        if len(self._blocks) % LOOKED_AT:
            return None
        newest = joined(self._blocks[-LOOKED_AT:])
        level = newest.median
        self.away = level - best.mean
        if self.away <= _margin(best, BACK_SHARE, newest):
            self.away, self._blocks = None, []
            return None
        halves = Halves.of([block.median for block in self._blocks])
        risen = halves.later - halves.earlier
        if risen > max(RISING * halves.error, RISEN_SHARE * before):
            self._begin_looking()
            return Diverged(f"the loss has diverged and rises further: {level:.4g}, and {_words(best)}", is_new=False)
        if self._unrisen.reaches(patience):
            self.best, self.away, self._blocks = newest, None, []
            return None
        if -risen > max(SIGNIFICANT * halves.error, STILL * abs(level)):
            later = self._blocks[len(self._blocks) // 2 :]
            self._blocks = later[len(later) % LOOKED_AT :]
            return None
        apart = (len(self._blocks) - len(self._blocks) // 2) * BLOCK_STEPS
        if self._has_stood or self.away * apart / SLOWEST_RETURN_STEPS < VISIBLE * halves.error:
            return None
        self._has_stood, self._blocks = True, []
        words = f"the loss has diverged and does not come back: {level:.4g}, and {_words(best)}"
        return Diverged(words, is_new=False)

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "best": None if self.best is None else self.best.to_dict(),
            "away": self.away,
            "block": [list(step) for step in self._block.steps],
            "blocks": [block.to_dict() for block in self._blocks],
            "high": self._high,
            "unrisen": [self._unrisen.steps, self._unrisen.samples],
            "has_stood": self._has_stood,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Divergence":
        """Return one that goes on where another left off; of an earlier version's, it begins anew."""
        if "blocks" not in state:
            return cls()
        return cls(
            None if state["best"] is None else WindowFigures.from_dict(state["best"]),
            state["away"],
            LossWindow([(float(loss), int(samples)) for loss, samples in state["block"]]),
            [WindowFigures.from_dict(block) for block in state["blocks"]],
            int(state["high"]),
            Span(*(int(count) for count in state["unrisen"])),
            bool(state["has_stood"]),
        )


def _margin(best: WindowFigures, share: float, window: WindowFigures) -> float:
    """Return how far above the best a window may lie.

    Noise of a step is that of its samples: smaller batches than the best's have more of it. Larger ones are not taken
    to have less, since part of it may not be theirs.
    """
    fewer = (best.samples / best.steps) / (window.samples / window.steps)
    deviation = best.deviation * sqrt(max(1.0, fewer))
    return max(share * abs(best.mean), NOISE * deviation / sqrt(window.steps))


def _words(best: WindowFigures) -> str:
    return f"its best was {best.mean:.4g} up to step {best.last_step}"
