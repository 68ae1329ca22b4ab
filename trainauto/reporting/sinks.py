"""What a sink of a run's reports looks like."""

from collections.abc import Mapping, Sequence

from trainauto.core.decisions import Decision, Rollback
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import ImageArray, Picture, RunEnd, RunSummary


class Sink:
    """Somewhere reports go to: a file, a terminal, curves.

    Every event does nothing unless a sink defines it, so that a sink is written by deriving from this class. Events
    come one at a time, in the order below; ``message`` may come at any time between construction and :meth:`close`.
    What a sink is given, it never changes. A sink that raises is dropped by the
    :class:`~trainauto.reporting.reporter.Reporter`, unless it could not write or was short of memory.
    """

    def start(self, summary: RunSummary) -> None:
        """Before the first step; ``summary.progress`` tells a resumed run from a new one."""

    def first_samples(self, samples: Sequence[Mapping[str, ImageArray]]) -> None:
        """After the first step of a new run, before it is reported: pictures of some of its samples, by name."""

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        """After an optimizer step, with what was decided upon it; ``progress`` includes the step."""

    def validation(self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision]) -> None:
        """After a validation set, with some of its pictures and what was decided upon it."""

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:
        """After the run has gone back to a checkpoint, where ``summary.progress`` stands: what came after is undone."""

    def sync(self) -> None:
        """Before a checkpoint: have what was written survive a power cut, where the checkpoint relies on it."""

    def lacking(self) -> str:
        """Say what of the reports it lacks, once writing them was refused; empty where it lacks nothing."""
        return "what was reported at that time may be missing in it"

    def message(self, text: str, level: int) -> None:
        """Something said through the logger ``trainauto``, at one of the levels of :mod:`logging`."""

    def end(self, summary: RunEnd) -> None:
        """After the last step, whichever way the run ended."""

    def close(self) -> None:
        """Release files and handles; the last call, which may come without any of the others."""
