"""A run of an option file that goes through the Trainer of transformers, whatever it trains."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from trainauto.engine.signals import StopSignals
from trainauto.storage.run_directory import RunDirectory

Pair = tuple[str, str]
"""A label, and what it says."""


class TrainerRun(ABC):
    """A run that is built, and whose folder is not there yet: all that can be wrong with options and data is known."""

    @abstractmethod
    def facts(self) -> Sequence[Pair]:
        """Return lines of the start: labels with what they say."""

    @abstractmethod
    def train(self, directory: RunDirectory, signals: StopSignals, *, resumes: bool) -> Sequence[Pair]:
        """Train, and return lines of the end.

        Args:
            directory: the run's folder, and the Trainer's output directory.
            signals: the first one ends the run after its step, with a checkpoint.
            resumes: from its newest whole checkpoint.
        """
