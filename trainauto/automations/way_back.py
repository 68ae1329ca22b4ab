"""A loss that ran away: whether it rises further, comes back to what it was, or stands still above that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainauto.automations.loss_windows import WindowFigures, joined
from trainauto.automations.plateau import SIGNIFICANT, VISIBLE, Halves
from trainauto.automations.span import NOTHING, Span

LOOKED_AT = 5
"""Blocks after which it is looked at."""

BACK_SHARE = 0.1
"""Share of the best by which a loss may lie above it to be back."""

RISING = 3.0
"""Standard errors by which it must have risen further to be still running away."""

RISEN_SHARE = 0.1
"""And share of the way to its best by which it must."""

SLOWEST_RETURN_STEPS = 4000
"""A loss that would be back after so many steps is coming back, and noise must not hide that."""

STILL = 0.001
"""Share of the loss below which a fall is none, however sure."""

Found = Literal["back", "rises", "stands"]
"""What a look may find: it is back near its best, it has risen further, it stands still."""


@dataclass
class WayBack:
    """Compares medians of short blocks, the later half of a stretch of them with the earlier one.

    A loss that falls at all is left alone, and looked at anew from its later half on. It stands still where it does
    not fall, and noise would not hide a fall that has it back within 4000 steps: the nearer it is to its best, and the
    noisier, the longer that takes to see.

    Attributes:
        best: what it was before it ran away.
        away: how far above that it was when it was last looked at.
        level: what it was then; ``None`` before.
        unrisen: since when it has not risen.
    """

    best: WindowFigures
    away: float
    level: WindowFigures | None = None
    unrisen: Span = NOTHING
    _blocks: list[WindowFigures] = field(default_factory=list)

    def add(self, block: WindowFigures) -> Found | None:
        """Take in a block; say what a look finds; ``None`` where there is none yet, or nothing to say."""
        self._blocks.append(block)
        self.unrisen += block.span
        if len(self._blocks) % LOOKED_AT:
            return None
        self.level = joined(self._blocks[-LOOKED_AT:])
        before, self.away = self.away, self.level.median - self.best.mean
        if self.away <= self.best.margin(BACK_SHARE, self.level):
            return "back"
        halves = Halves.of([block.median for block in self._blocks])
        risen = halves.later - halves.earlier
        if risen > max(RISING * halves.error, RISEN_SHARE * before):
            self._blocks, self.unrisen = [], NOTHING
            return "rises"
        if -risen > max(SIGNIFICANT * halves.error, STILL * abs(self.level.median)):
            later = self._blocks[len(self._blocks) // 2 :]
            self._blocks = later[len(later) % LOOKED_AT :]
            return None
        half = len(self._blocks) // 2
        apart = sum(block.steps for block in self._blocks[half:])
        if self.away * apart / SLOWEST_RETURN_STEPS < VISIBLE * halves.error:
            return None
        self._blocks = []
        return "stands"

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "best": self.best.to_dict(),
            "away": self.away,
            "level": None if self.level is None else self.level.to_dict(),
            "unrisen": [self.unrisen.steps, self.unrisen.samples],
            "blocks": [block.to_dict() for block in self._blocks],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "WayBack":
        """Return one that goes on where another left off."""
        return cls(
            WindowFigures.from_dict(state["best"]),
            float(state["away"]),
            None if state["level"] is None else WindowFigures.from_dict(state["level"]),
            Span(*(int(count) for count in state["unrisen"])),
            [WindowFigures.from_dict(block) for block in state["blocks"]],
        )
