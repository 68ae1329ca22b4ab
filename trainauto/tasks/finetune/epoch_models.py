"""The model at the end of each epoch, in a folder of its own that transformers and peft load."""

import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import directory_written_atomically, remove_leftovers, write_json_atomically
from trainauto.core.process import without_memory_limit
from trainauto.integrations.huggingface.checkpoints import is_written

logger = logging.getLogger(__name__)

EPOCH = re.compile(r"epoch_(\d+)")
PROGRESS_FILE = "progress.json"
"""Says after which step, epoch and conversation a folder was written."""


class EpochModels(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Writes ``epoch_0``, ``epoch_1`` ...: adapters or weights with the processor, each whole or not at all.

    What a killed run left half written is removed.

    Args:
        folder: of all of them, and of the Trainer's checkpoints.
        trainer: whose model.
        write: writes the model into a folder.
    """

    def __init__(self, folder: Path, trainer: Any, write: Callable[[Path], None]) -> None:
        self._folder, self._trainer, self._write = folder, trainer, write
        remove_leftovers(folder)

    def on_train_begin(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Write the model of an epoch that a run was killed behind, before it was written."""
        epoch = self._ended_epoch
        if epoch is not None and steps_of(self._folder / f"epoch_{epoch}") != self._trainer.memory.progress.steps:
            self._save(epoch)
        return control

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Write the model of an epoch that is whole, and have a checkpoint written where this step has none."""
        epoch = self._ended_epoch
        if epoch is not None and self._trainer.memory.trained_samples:
            self._save(epoch)
            step = self._trainer.memory.progress.steps
            control.should_save = not is_written(self._folder / f"{PREFIX_CHECKPOINT_DIR}-{step}")
        return control

    @property
    def _ended_epoch(self) -> int | None:
        """The epoch that has just ended; ``None`` within one."""
        session = self._trainer.memory
        epochs, rest = divmod(session.progress.samples, len(session.data.samples))
        return epochs - 1 if epochs and not rest else None

    def finish(self) -> Path:
        """Return the folder of the last step's model, which is written where the run ended within an epoch."""
        session = self._trainer.memory
        samples, of_epoch = session.progress.samples, len(session.data.samples)
        epoch = max(0, -(-samples // of_epoch) - 1)
        folder = self._folder / f"epoch_{epoch}"
        if not folder.is_dir() or steps_of(folder) != session.progress.steps:
            self._save(epoch)
        return folder

    def _save(self, epoch: int) -> None:
        progress = self._trainer.memory.progress
        folder = self._folder / f"epoch_{epoch}"
        with without_memory_limit(), directory_written_atomically(folder) as temporary:
            self._write(temporary)
            figures = {"epoch": epoch, "step": progress.steps, "samples": progress.samples}
            write_json_atomically(temporary / PROGRESS_FILE, figures)
        logger.info("the model of epoch %d is in %s", epoch, folder)


def steps_of(folder: Path) -> int:
    """Return after which step the model of a folder was written; 0 where it does not say."""
    try:
        return int(json.loads((folder / PROGRESS_FILE).read_text(encoding="utf-8"))["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def chosen_epoch(checkpoints: Path, which: str, losses: Mapping[int, float]) -> Path:
    """Return the folder of an epoch's model.

    Args:
        checkpoints: folder of a run's checkpoints.
        which: ``best`` (the latest where nothing was measured), ``latest``, a number, or ``epoch_`` with one.
        losses: what was measured, by the step it was measured after.

    Raises:
        InputError: there is no such one.
    """
    matches = (
        [(EPOCH.fullmatch(folder.name), folder) for folder in checkpoints.iterdir()] if checkpoints.is_dir() else []
    )
    numbered = {int(match[1]): folder for match, folder in matches if match and folder.is_dir()}
    if not numbered:
        advice = "A model is written after each epoch; --auto_resume goes on to the next."
        raise InputError(Problem(f"{checkpoints} has no model of an epoch yet", advice=advice))
    if which == "best":
        of_epochs = {epoch: losses[step] for epoch in numbered if (step := steps_of(numbered[epoch])) in losses}
        return numbered[min(of_epochs, key=of_epochs.__getitem__)] if of_epochs else numbered[max(numbered)]
    if which == "latest":
        return numbered[max(numbered)]
    number = which.removeprefix("epoch_")
    if number.isdigit() and int(number) in numbered:
        return numbered[int(number)]
    known = ", ".join(f"epoch_{epoch}" for epoch in sorted(numbered))
    raise InputError(Problem(f"there is no epoch '{which}' in {checkpoints}", advice=f"There are {known}."))
