"""Telling a loss that runs away from one that is noisy, and one that comes back from one that does not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainauto.automations.loss_windows import LossWindow, WindowFigures, joined
from trainauto.automations.span import Span
from trainauto.automations.way_back import WayBack

BLOCK_STEPS = 20
"""Steps whose median is compared with the best, however large their batches are."""

BEST_BLOCKS = 5
"""Blocks whose mean may be the best."""

FAR_SHARE = 0.5
"""Share of the best by which a median must lie above it."""

IN_A_ROW = 2
"""Blocks that must lie so far above, one after the other."""


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
    as long as patience. Later losses are then compared with the level it has reached. The loss may return slowly, or
    not at all, as with other data. It is told of again whenever it rises further meanwhile; and once where it stands
    still, also after that.

    Attributes:
        best: so far.
        way_back: of a loss that ran away; ``None`` where none is on it.
    """

    best: WindowFigures | None = None
    way_back: WayBack | None = None
    _is_lasting: bool = False
    _has_stood: bool = False
    _high: int = 0
    _block: LossWindow = field(default_factory=LossWindow)
    _blocks: list[WindowFigures] = field(default_factory=list)

    @property
    def is_suspected(self) -> bool:
        """Whether the last block lay far above, or a divergence lasts."""
        return self._high > 0 or self._is_lasting

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
        if not self._is_lasting and self._runs_away(self.best, block):
            self.way_back = WayBack(self.best, block.median - self.best.mean)
            self._is_lasting, self._has_stood, self._high, self._blocks = True, False, 0, []
            return Diverged(f"the loss diverges: {block.median:.4g}, and {_words(self.best)}", is_new=True)
        return self._coming_back(self.way_back, block, patience) if self.way_back is not None else None

    def _runs_away(self, best: WindowFigures, block: WindowFigures) -> bool:
        """Say whether the loss has; note the best so far where it has not."""
        is_high = block.median - best.mean > best.margin(FAR_SHARE, block)
        self._high = self._high + 1 if is_high else 0
        self._blocks = [] if is_high else [*self._blocks, block]
        if len(self._blocks) >= BEST_BLOCKS:
            window, self._blocks = joined(self._blocks), []
            self.best = window if window.mean < best.mean else best
        return self._high >= IN_A_ROW

    def _coming_back(self, way_back: WayBack, block: WindowFigures, patience: Span) -> Diverged | None:
        found = way_back.add(block)
        if self._is_lasting and way_back.level is not None and way_back.unrisen.reaches(patience):
            self.best, self._is_lasting = way_back.level, False
        if found == "back":
            self.way_back, self._is_lasting = None, False
        if found == "rises" and self._is_lasting:
            return _not_back("rises further", way_back)
        if found == "stands":
            return self._standing(way_back)
        return None

    def _standing(self, way_back: WayBack) -> Diverged | None:
        """Say so once; the second time, it is not to come back."""
        if self._has_stood:
            self.way_back = None if not self._is_lasting else way_back
            return None
        self._has_stood = True
        return _not_back("does not recover", way_back)

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "best": None if self.best is None else self.best.to_dict(),
            "way_back": None if self.way_back is None else self.way_back.state_dict(),
            "is_lasting": self._is_lasting,
            "has_stood": self._has_stood,
            "high": self._high,
            "block": [list(step) for step in self._block.steps],
            "blocks": [block.to_dict() for block in self._blocks],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Divergence":
        """Return one that goes on where another left off; of an earlier version's, it begins anew."""
        if "way_back" not in state:
            return cls()
        return cls(
            None if state["best"] is None else WindowFigures.from_dict(state["best"]),
            None if state["way_back"] is None else WayBack.from_state(state["way_back"]),
            bool(state["is_lasting"]),
            bool(state["has_stood"]),
            int(state["high"]),
            LossWindow([(float(loss), int(samples)) for loss, samples in state["block"]]),
            [WindowFigures.from_dict(block) for block in state["blocks"]],
        )


def _not_back(how: str, way_back: WayBack) -> Diverged:
    level = way_back.best.mean + way_back.away
    return Diverged(f"the loss has diverged and {how}: {level:.4g}, and {_words(way_back.best)}", is_new=False)


def _words(best: WindowFigures) -> str:
    return f"its best was {best.mean:.4g} up to step {best.last_step}"
