"""What commands do with option files whose runs go through the Trainer of transformers."""

import argparse
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from trainauto.commands.engine_task import refuse_accepted_samples
from trainauto.core.errors import InputError, Problem
from trainauto.core.process import without_garbage_collection
from trainauto.forecast.task import CardsRequest, Task, Trial
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.options.tasks import KEY, kind_of
from trainauto.reporting.finding import UNKNOWN, Finding

# Nothing here may import torch at the top, as in the class that this one is of.
if TYPE_CHECKING:
    from trainauto.builders.task_parts import PartsRequest, TaskParts
    from trainauto.builders.trainer_run import TrainerRun
    from trainauto.core.plan import Plan
    from trainauto.core.worker_process import WorkerProcess
    from trainauto.engine.traced_training import FakeTraining
    from trainauto.forecast.card_answer import CardPlans
    from trainauto.options.cards import CardPreset

OfTrainer = TypeVar("OfTrainer", bound=FileOptions, contravariant=True)

TRIAL = "To try it: validate -opt FILE"
"""What there is where commands build no run of theirs."""


class TrainerTask(Task[OfTrainer], Generic[OfTrainer]):
    """A task whose runs are :class:`~trainauto.builders.trainer_run.TrainerRun`."""

    @abstractmethod
    def build(self, loaded: LoadedOptions[OfTrainer]) -> "TrainerRun":
        """Build the run of an option file, with its plugins and its seed.

        Raises:
            InputError: options, data or packages cannot be used.
        """

    def train(self, loaded: LoadedOptions[OfTrainer], parsed: argparse.Namespace) -> int:
        """Train with the arguments of the command; return the exit code."""
        refuse_accepted_samples(parsed)
        with without_garbage_collection():
            from trainauto.builders.trainer_runs import train_with_trainer

        return train_with_trainer(
            loaded, lambda: self.build(loaded), auto_resume=parsed.auto_resume, launcher=parsed.launcher
        )

    def validate(self, loaded: LoadedOptions[OfTrainer], steps: int) -> int:
        """Train some steps in a separate process and print the results; return the exit code."""
        from trainauto.commands.run_validate import validate_with_trainer

        return validate_with_trainer(loaded, steps)

    def trial(self, loaded: LoadedOptions[OfTrainer], folder: Path) -> Trial:
        """Build a run whose files go to ``folder``."""
        start = time.perf_counter()
        return TrainerTrial(self.build(loaded), folder, time.perf_counter() - start)

    def findings(self, loaded: LoadedOptions[OfTrainer], built: dict[str, Any]) -> Iterator[Finding]:
        """Say that nothing of a run is looked at."""
        del built
        words = kind_of(loaded.options).words
        fact = f"{loaded.path}: options that may stand together; model and data of {words} are not looked at here"
        yield Finding("the run", UNKNOWN, fact, TRIAL)

    def engine_options(self, loaded: LoadedOptions[OfTrainer]) -> LoadedOptions[FileOptions]:
        """Refuse: a Trainer builds its run itself."""
        raise _no_run_here(loaded, "this command")

    def parts(self, loaded: LoadedOptions[OfTrainer], request: "PartsRequest") -> "TaskParts":
        """Refuse: a Trainer builds its run itself."""
        del request
        raise _no_run_here(loaded, "this command")

    def fake(
        self, loaded: LoadedOptions[OfTrainer], *, like_cuda: bool, world_size: int, known: Mapping[str, Any]
    ) -> "FakeTraining":
        """Refuse, where a task does not say how its step is traced."""
        del like_cuda, world_size, known
        raise _no_run_here(loaded, "plan")

    def first_plan(self, loaded: LoadedOptions[OfTrainer]) -> "Plan":
        """Refuse: no plan is known before a run."""
        raise _no_run_here(loaded, "plan")

    def plan(self, loaded: LoadedOptions[OfTrainer], request: CardsRequest) -> "CardPlans":
        """Refuse, where a task does not say what fits."""
        del request
        raise _no_run_here(loaded, "plan")

    def recipes(
        self, loaded: LoadedOptions[OfTrainer], cards: "Sequence[CardPreset]", child: "WorkerProcess", *, as_json: bool
    ) -> str:
        """Refuse, where a task does not say what ways to train take."""
        del cards, child, as_json
        raise _no_run_here(loaded, "plan")


class TrainerTrial:
    """A run of a Trainer that is tried.

    Args:
        run: the run.
        folder: the Trainer writes to it, and the caller removes it.
        seconds: that building it took.
    """

    def __init__(self, run: "TrainerRun", folder: Path, seconds: float) -> None:
        self._run, self._folder, self._seconds = run, folder, seconds

    def built(self) -> dict[str, Any]:
        """Return the lines of the run's start, and how long it took to build."""
        return {"pairs": self._run.facts(), "seconds": self._seconds}

    def read(self) -> dict[str, Any]:
        """Return nothing: how fast samples are read is not timed."""
        return {}

    def train(self, steps: int) -> dict[str, Any]:
        """Train some steps and evaluate; return the results as lines."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return {"pairs": self._run.try_steps(self._folder, steps)}


def _no_run_here(loaded: LoadedOptions[FileOptions], action: str) -> InputError:
    message = f"{action} builds no run of a Trainer, and this file is of {kind_of(loaded.options).words}"
    advice = f"Its options may stand together. {TRIAL}"
    return InputError(Problem(message, loaded.places.of_value((KEY,)), advice))
