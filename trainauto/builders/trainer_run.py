"""A run of an option file that goes through the Trainer of transformers, whatever it trains."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainauto.engine.signals import StopSignals
from trainauto.options.source_locations import KeyPath
from trainauto.storage.run_directory import RunDirectory

Pair = tuple[str, str]
"""A label, and what it says."""


@dataclass(frozen=True)
class RunPlace:
    """Where the runs of an option file go.

    Attributes:
        root: folder of runs.
        name: of theirs in it; empty where runs lie right in it.
        option: that says so.
    """

    root: Path
    name: str
    option: KeyPath


class TrainerRun(ABC):
    """A run that is built, and whose folder is not there yet: all that can be wrong with options and data is known.

    Attributes:
        place: where its folder goes.
        checkpoint_words: how often it writes checkpoints, e.g. ``a checkpoint every 100 steps``.
        has_curves: whether it writes event files.
        changes: options that a resume changes, a line each.
    """

    place: RunPlace
    checkpoint_words: str
    has_curves: bool
    changes: Sequence[str] = ()

    @abstractmethod
    def checkpoints(self, directory: RunDirectory) -> Path:
        """Return the folder in which the Trainer writes its checkpoints: its output directory."""

    @abstractmethod
    def curves(self, directory: RunDirectory) -> Path:
        """Return the folder of its event files."""

    def check_earlier(self, directory: RunDirectory) -> None:
        """Refuse to resume a run that is of another model; here, none is.

        Raises:
            InputError: says what differs.
        """
        del directory

    @abstractmethod
    def facts(self) -> Sequence[Pair]:
        """Return lines of the start: labels with what they say."""

    @abstractmethod
    def train(self, directory: RunDirectory, signals: StopSignals, *, resumes: bool) -> Sequence[Pair]:
        """Train, and return lines of the end.

        Args:
            directory: the run's folder.
            signals: the first one ends the run after its step, with a checkpoint.
            resumes: from its newest whole checkpoint.
        """

    @abstractmethod
    def try_steps(self, folder: Path, steps: int) -> Sequence[Pair]:
        """Train a few steps and measure as at the end of an epoch; return lines of what came of it.

        Args:
            folder: for what it writes; whoever gives it removes it.
            steps: how many.
        """
