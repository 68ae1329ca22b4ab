"""Passes over the training samples, and what is done at the end of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainauto.core.records import Progress

AtEnd = Callable[[int, Progress], None]
"""Handles the end of a pass: gets the number of passes that are whole, and what has been trained."""


def _nothing(_epoch: int, _progress: Progress) -> None:
    return


@dataclass
class Epochs:
    """Which passes over the training samples have ended, whatever steps they ended in.

    A step may reach over the end of a pass, several ranks and a changing batch let it do so anywhere: an end is due as
    soon as so many samples are trained. It is handled before the next step. Where a kill comes between a step and that,
    the resume handles it, for a checkpoint holds what was handled by then.

    Attributes:
        samples: of a pass.
        at_end: handles an end; it may be asked again for the same one.
        handled: passes whose end has been handled.
        since: samples that were trained when passes began to be counted as they are, and ``before`` passes were whole:
            where other samples are accepted in mid-run, a pass over them begins.
    """

    samples: int
    at_end: AtEnd = _nothing
    handled: int = 0
    since: int = 0
    before: int = 0

    def whole(self, progress: Progress) -> int:
        """Return how many passes are whole."""
        return self.before + (progress.samples - self.since) // self.samples

    def is_due(self, progress: Progress) -> bool:
        """Whether a pass has ended whose end is not handled yet."""
        return self.whole(progress) != self.handled

    def handle(self, progress: Progress) -> bool:
        """Handle the end of a pass if one has ended since, of several at once the last; say whether one had."""
        if not self.is_due(progress):
            return False
        self.at_end(self.whole(progress), progress)
        self.handled = self.whole(progress)
        return True

    def state_dict(self) -> dict[str, int]:
        """Return what a resume needs."""
        return {"handled": self.handled, "since": self.since, "before": self.before}

    def load_state_dict(
        self, state: Mapping[str, int] | None, progress: Progress, *, begins_anew: bool = False
    ) -> None:
        """Continue as a run left off.

        Args:
            state: of the run; ``None`` of one that kept none, which has handled all ends so far.
            progress: what it has trained.
            begins_anew: whether a pass begins with its next sample, since the samples are others now.
        """
        state = state or {}
        self.since, self.before = state.get("since", 0), state.get("before", 0)
        self.handled = state.get("handled", self.whole(progress))
        if begins_anew:
            self.since, self.before = progress.samples, self.handled
