"""What the last change of plans cost in seconds of ``torch.compile``, and how long growth waits for it to pay off."""

from collections.abc import Mapping
from typing import Any

SHARE = 0.1
"""Most of the time that growth may spend on compiling: the next one waits until steps have taken ten times as long."""


class CompileCost:
    """Seconds of compiling that followed the last change of plans, and of steps since then.

    The first plan's own are not counted: every run has them, and they do not say what a change costs.
    """

    def __init__(self) -> None:
        self._compiled_s = self._trained_s = 0.0
        self._has_trained = self._has_changed = False

    def change(self) -> None:
        """Take in that another plan follows."""
        self._compiled_s = self._trained_s = 0.0
        self._has_changed = self._has_trained

    def see(self, compile_s: float, step_s: float) -> None:
        """Take in a step: seconds of compiling in it, and of the rest of it."""
        self._has_trained = True
        if self._has_changed:
            self._compiled_s += compile_s
            self._trained_s += step_s

    @property
    def seconds_to_wait(self) -> float:
        """Seconds of steps before growth may cost as much again; 0 where the last change compiled nothing."""
        return max(0.0, self._compiled_s / SHARE - self._trained_s)

    @property
    def last_s(self) -> float:
        """What the last change cost."""
        return self._compiled_s

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return {"compiled_s": self._compiled_s, "trained_s": self._trained_s, "has_changed": self._has_changed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self._compiled_s, self._trained_s = float(state["compiled_s"]), float(state["trained_s"])
        self._has_trained, self._has_changed = True, bool(state["has_changed"])
