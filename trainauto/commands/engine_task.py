"""What commands do with option files whose runs are the engine's, whatever they train."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from trainauto.commands.common_arguments import refuse_given
from trainauto.commands.doctor_checks import training
from trainauto.core.errors import InputError, Problem, TrainautoError
from trainauto.forecast.task import Task, Trial
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.options.tasks import kind_of
from trainauto.reporting.finding import Finding
from trainauto.storage.run_directory import RunDirectory

# Nothing here may import torch at the top, as in the class that this one is of.
if TYPE_CHECKING:
    from trainauto.commands.run_validate import DryRunner
    from trainauto.core.worker_process import WorkerProcess
    from trainauto.options.cards import CardPreset

BEGIN_ANEW = "A run of this task begins anew with other samples: leave --auto_resume out, and name its weights."

OfEngine = TypeVar("OfEngine", bound=FileOptions, contravariant=True)


def refuse_accepted_samples(parsed: argparse.Namespace) -> None:
    """Refuse ``--accept_samples`` of a task whose runs are not resumed with other samples.

    Raises:
        InputError: it was given.
    """
    if parsed.accept_samples:
        raise InputError(Problem("--accept_samples is for runs of images and language models", advice=BEGIN_ANEW))


class EngineTask(Task[OfEngine], Generic[OfEngine]):
    """A task whose runs consist of :class:`~trainauto.builders.task_parts.TaskParts`.

    A task of its own has to say what these are, how its step is traced and what its plans are; ``test`` and ``export``
    where it has them.
    """

    def train(self, loaded: LoadedOptions[OfEngine], parsed: argparse.Namespace) -> int:
        """Train with the arguments of the command; return the exit code."""
        from trainauto.commands.run_train import train_run

        return train_run(loaded, parsed)

    def validate(self, loaded: LoadedOptions[OfEngine], steps: int) -> int:
        """Train some steps in a separate process and print the results; return the exit code."""
        from trainauto.commands.run_validate import validate

        return validate(loaded, steps, self.smaller)

    def trial(self, loaded: LoadedOptions[OfEngine], folder: Path) -> Trial:
        """Build a run whose files go to ``folder``."""
        from trainauto.commands.dry_run import DryRun

        return DryRun(loaded, folder)

    def recipes(
        self, loaded: LoadedOptions[OfEngine], cards: "Sequence[CardPreset]", child: "WorkerProcess", *, as_json: bool
    ) -> str:
        """Return what a plan takes while none, some or all blocks of the network run again in the backward pass."""
        from trainauto.commands.recomputations_table import recomputations_json, recomputations_table
        from trainauto.forecast.option_plans import plan_recipes_of_blocks

        recipes = plan_recipes_of_blocks(loaded, cards, child)
        return recomputations_json(recipes) if as_json else recomputations_table(recipes)

    def test(self, directory: RunDirectory, loaded: LoadedOptions[OfEngine], parsed: argparse.Namespace) -> int:
        """Measure what a run has trained on its validation sets; return the exit code."""
        others = {"-opt": parsed.opt, "--lq": parsed.lq, "--answers": parsed.answers, "FOLDER": parsed.folder}
        words = kind_of(loaded.options).words
        refuse_given(others, f"means nothing to runs of {words}", "test RUN measures on the run's validation sets.")
        from trainauto.commands.trained_model import measure

        return measure(self, directory, loaded, parsed)

    def export(self, directory: RunDirectory, loaded: LoadedOptions[OfEngine], parsed: argparse.Namespace) -> str:
        """Write what a run has trained into a folder; return what there is to say of it."""
        others = {"--format": parsed.format, "--size": parsed.size}
        words = kind_of(loaded.options).words
        refuse_given(others, f"means nothing to runs of {words}", "export RUN FOLDER writes a folder.")
        from trainauto.commands.trained_model import write

        return write(self, directory, loaded, parsed)

    def findings(self, loaded: LoadedOptions[OfEngine], built: dict[str, Any]) -> Iterator[Finding]:
        """Yield what ``doctor`` finds of a run that is built in a process of its own."""
        from trainauto.commands.run_validate import DryRunner

        with DryRunner(loaded) as dry_runner:
            try:
                built |= dry_runner.build()
            except TrainautoError as error:
                yield training.refused(error)
                return
            yield from training.built_finding(built)
            yield from self.findings_of_samples(loaded, dry_runner, built)

    def findings_of_samples(
        self, loaded: LoadedOptions[OfEngine], dry_runner: "DryRunner", built: Mapping[str, Any]
    ) -> Sequence[Finding]:
        """Return what ``doctor`` finds of the samples of a run that is built; here nothing."""
        del loaded, dry_runner, built
        return ()
