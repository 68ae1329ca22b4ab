"""What the last change of plans cost in seconds of ``torch.compile``, and how long growth waits for it to pay off."""

from collections.abc import Mapping
from typing import Any

SHARE = 0.1
"""Share of the time that compiling may take: growth waits until steps have taken ten times as long as it did."""


class CompileCost:
    """Seconds of compiling that followed the last change of plans, and of steps that growth waits for.

    What a process compiles before its first change is not counted: it does so in any case, also after a resume.

    Attributes:
        seconds_to_wait: of steps before growth may cost as much again.
        last_s: what the last change that compiled something cost.
    """

    def __init__(self) -> None:
        self.seconds_to_wait = self.last_s = 0.0
        self._has_trained = self._has_changed = False
        self._is_first_after_change = False

    def change(self) -> None:
        """Take in that another plan follows."""
        self._has_changed = self._is_first_after_change = self._has_trained

    def see(self, compile_s: float, step_s: float) -> None:
        """Take in a step: seconds of compiling in it, and of the rest of it."""
        self._has_trained = True
        self.seconds_to_wait = max(0.0, self.seconds_to_wait - step_s)
        if self._has_changed and compile_s:
            self.last_s = compile_s if self._is_first_after_change else self.last_s + compile_s
            self._is_first_after_change = False
            self.seconds_to_wait += compile_s / SHARE

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return {"seconds_to_wait": self.seconds_to_wait, "last_s": self.last_s}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`; what the process that resumes compiles first counts for no change."""
        self.seconds_to_wait, self.last_s = float(state["seconds_to_wait"]), float(state["last_s"])
