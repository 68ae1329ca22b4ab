"""Passes over the training samples, and what is done at the end of each."""

from collections.abc import Callable
from dataclasses import dataclass

from trainauto.core.records import Progress


def _nothing(_epoch: int) -> None:
    return


@dataclass
class Epochs:
    """Which passes over the training samples have ended, whatever steps they ended in.

    A step may reach over the end of a pass, several ranks and a changing batch let it do so anywhere: an end is due as
    soon as so many samples are trained. It is handled before the next step. Where a kill comes between a step and that,
    the resume handles it, for a checkpoint holds what was handled by then.

    Attributes:
        samples: of a pass.
        at_end: handles an end; it gets the number of passes that are whole, and may be asked again for the same one.
        handled: passes whose end has been handled.
    """

    samples: int
    at_end: Callable[[int], None] = _nothing
    handled: int = 0

    def whole(self, progress: Progress) -> int:
        """Return how many passes are whole."""
        return progress.samples // self.samples

    def handle(self, progress: Progress) -> None:
        """Handle the end of a pass if one has ended since; of several at once, the last."""
        if (epoch := self.whole(progress)) != self.handled:
            self.at_end(epoch)
            self.handled = epoch

    def state_dict(self) -> dict[str, int]:
        """Return what a resume needs."""
        return {"samples": self.samples, "handled": self.handled}

    def load_state_dict(self, state: dict[str, int] | None, progress: Progress) -> None:
        """Continue as a run left off; one that had other samples, or kept nothing, has handled all ends so far."""
        is_same = state is not None and state["samples"] == self.samples
        self.handled = state["handled"] if state is not None and is_same else self.whole(progress)
