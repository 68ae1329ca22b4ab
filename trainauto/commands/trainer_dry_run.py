"""A dry run of an option file whose runs go through the Trainer of transformers: built, and trained a few steps."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainauto.builders.trainer_runs import build_trainer_run
from trainauto.options.load import load_options


class TrainerDryRun:
    """The run of an option file, built by what builds real ones.

    Args:
        options: the option file.
        overrides: items of ``--force_yml``.
        folder: for what the Trainer writes; whoever gives it removes it.

    Raises:
        InputError: it cannot be built.
    """

    def __init__(self, options: Path, overrides: Sequence[str], folder: Path) -> None:
        start = time.perf_counter()
        self._run = build_trainer_run(load_options(options, overrides))
        self._folder, self._seconds = folder, time.perf_counter() - start

    def built(self) -> dict[str, Any]:
        """Return the lines of the run's start, and how long it took to build."""
        return {"pairs": self._run.facts(), "seconds": self._seconds}

    def train(self, steps: int) -> dict[str, Any]:
        """Train some steps, and measure; return lines of what came of it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return {"pairs": self._run.try_steps(self._folder, steps)}
