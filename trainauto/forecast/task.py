"""A task: what every command does with option files of it. No command asks itself of which task a file is."""

import argparse
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol

from typing_extensions import TypeVar

from trainauto.core.errors import InputError, Problem
from trainauto.options.load import LoadedOptions, not_of_images
from trainauto.options.run_options import FileOptions
from trainauto.options.tasks import KEY, kind_of
from trainauto.reporting.finding import Finding
from trainauto.storage.run_directory import RunDirectory

# Nothing here may import torch at the top: some commands leave it to processes of their own, or start one before.
if TYPE_CHECKING:
    from trainauto.builders.file_checks import FileChecks
    from trainauto.builders.task_parts import PartsRequest, TaskParts
    from trainauto.core.plan import Plan
    from trainauto.core.worker_process import WorkerProcess
    from trainauto.engine.traced_training import FakeTraining
    from trainauto.forecast.card_answer import CardPlans
    from trainauto.options.cards import CardPreset

OfTask = TypeVar("OfTask", bound=FileOptions, contravariant=True)

RESUME_INSTEAD = "Such a run resumes from a checkpoint: the same command with --auto_resume."


@dataclass(frozen=True)
class CardsRequest:
    """Which cards a run is planned for, and how closely.

    Attributes:
        cards: the cards.
        measure: try a few plans on the device at hand, too.
        child: a process that traces as on CUDA, where one was started already.
        closely: look at the first plan more closely, see ``PlanMemory``.
        ranks: how many processes train the run together, each on such a card.
    """

    cards: "Sequence[CardPreset]"
    measure: bool = False
    child: "WorkerProcess | None" = None
    closely: bool = False
    ranks: int = 1


class Trial(Protocol):
    """A run that is built, to be trained for some steps in a folder that is thrown away."""

    def built(self) -> dict[str, Any]:
        """Return what is known before the first step, as plain values."""

    def read(self) -> dict[str, Any]:
        """Return how fast one process reads samples."""

    def train(self, steps: int) -> dict[str, Any]:
        """Train some steps and validate; return the results as plain values."""


class Task(ABC, Generic[OfTask]):
    """What commands do with the option files of a task; it keeps nothing.

    What a task lacks raises InputError, which says of which task the file is and what there is instead. Runs of the
    engine derive from :class:`~trainauto.commands.engine_task.EngineTask`, where most of this is done.

    Attributes:
        extra: of this package, which brings what the task needs.
        smaller: options that make a step smaller, in words.
    """

    extra: str = ""
    smaller: str = "a smaller batch"

    def needed(self, options: OfTask) -> Sequence[str]:
        """Return packages that a run needs beyond what is always installed."""
        del options
        return ()

    def engine_options(self, loaded: LoadedOptions[OfTask]) -> LoadedOptions[FileOptions]:
        """Return the options as those of a run of the engine.

        Raises:
            InputError: runs of this task are built another way.
        """
        return loaded

    def check_packages(self, loaded: LoadedOptions[OfTask]) -> None:
        """Refuse a file whose runs need packages that are not installed.

        Raises:
            InputError: names them, and the extra that brings them.
        """
        lacking = [package for package in self.needed(loaded.options) if find_spec(package) is None]
        if lacking:
            verb = "is" if len(lacking) == 1 else "are"
            message = f"task: {loaded.options.task} needs {' and '.join(lacking)}, which {verb} not installed"
            raise InputError(Problem(message, loaded.places.of_value((KEY,)), f"pip install 'trainauto[{self.extra}]'"))

    def checks(self) -> "FileChecks":
        """Return what is checked of an option file before a run of it is built, beside its automations."""
        from trainauto.builders.file_checks import FileChecks

        return FileChecks()

    @abstractmethod
    def parts(self, loaded: LoadedOptions[OfTask], request: "PartsRequest") -> "TaskParts":
        """Build what a run of the engine has of its task.

        Raises:
            InputError: options or data cannot be used.
        """

    @abstractmethod
    def fake(
        self, loaded: LoadedOptions[OfTask], *, like_cuda: bool, world_size: int, known: Mapping[str, Any]
    ) -> "FakeTraining":
        """Build a run on fake tensors; its plugins must have been imported.

        Args:
            loaded: the option file.
            like_cuda: count what a card's libraries take, also where the run is not on one.
            world_size: how many train it together.
            known: what the option file alone does not say, see :meth:`TaskParts.trace_facts`.

        Raises:
            TraceError: its model cannot be built on fake tensors.
            InputError: options cannot be used.
        """

    @abstractmethod
    def first_plan(self, loaded: LoadedOptions[OfTask]) -> "Plan":
        """Return the plan that a run is planned to begin with, its samples as large as they may be."""

    @abstractmethod
    def plan(self, loaded: LoadedOptions[OfTask], request: CardsRequest) -> "CardPlans":
        """Say what fits on each card; errors are those of ``forecast.option_plans.plan_for_cards``."""

    @abstractmethod
    def recipes(
        self, loaded: LoadedOptions[OfTask], cards: "Sequence[CardPreset]", child: "WorkerProcess", *, as_json: bool
    ) -> str:
        """Return what each way to train takes, and what fits where: a table, or JSON."""

    @abstractmethod
    def train(self, loaded: LoadedOptions[OfTask], parsed: argparse.Namespace) -> int:
        """Train with the arguments of the command; return the exit code. Torch may not be loaded yet."""

    @abstractmethod
    def validate(self, loaded: LoadedOptions[OfTask], steps: int) -> int:
        """Train some steps in a separate process and print the results; return the exit code."""

    @abstractmethod
    def trial(self, loaded: LoadedOptions[OfTask], folder: Path) -> Trial:
        """Build a run whose files go to ``folder``: what the process of :meth:`validate` does."""

    @abstractmethod
    def findings(self, loaded: LoadedOptions[OfTask], built: dict[str, Any]) -> Iterator[Finding]:
        """Yield what ``doctor`` finds of a run; into ``built`` goes what :meth:`Trial.built` returns."""

    def replayed_as(self, options: OfTask, suffix: str) -> Sequence[str]:
        """Return what sets the run of a replay apart from the run that it repeats, as ``--force_yml`` has it."""
        return [f"name={options.name}{suffix}"]

    def sample_options(self, loaded: LoadedOptions[OfTask]) -> Mapping[str, Any]:
        """Return the options that say which samples steps have: a replay must not change them.

        Raises:
            InputError: runs of this task cannot be replayed.
        """
        words = kind_of(loaded.options).words
        message = f"replay repeats no runs of {words}: their task does not say which options decide their samples"
        raise InputError(Problem(message, loaded.places.of_value((KEY,)), RESUME_INSTEAD))

    def test(self, directory: RunDirectory, loaded: LoadedOptions[OfTask], parsed: argparse.Namespace) -> int:
        """Measure what a run has trained with the arguments of the command; return the exit code.

        Raises:
            InputError: it is not measured by a command.
        """
        del directory, parsed
        raise not_of_images(loaded)

    def export(self, directory: RunDirectory, loaded: LoadedOptions[OfTask], parsed: argparse.Namespace) -> str:
        """Write what a run has trained for other programs; return what there is to say of it.

        Raises:
            InputError: it is not written by a command.
        """
        del directory, parsed
        raise not_of_images(loaded)


def task_of(loaded: LoadedOptions[FileOptions]) -> "Task[Any]":
    """Return the task of an option file; what it alone needs is loaded with it."""
    module, name = kind_of(loaded.options).task.split(":")
    task: Task[Any] = getattr(importlib.import_module(module), name)()
    return task


def ready_task(loaded: LoadedOptions[FileOptions]) -> "Task[Any]":
    """Return the task of an option file, whose packages are there.

    Raises:
        InputError: names those that are not installed.
    """
    task = task_of(loaded)
    task.check_packages(loaded)
    return task
