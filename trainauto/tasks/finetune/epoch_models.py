"""The model at the end of each epoch, in a folder of its own that transformers and peft load."""

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import directory_written_atomically, read_text, write_json_atomically
from trainauto.core.json_text import from_json
from trainauto.core.process import without_memory_limit
from trainauto.core.records import Progress

logger = logging.getLogger(__name__)

EPOCH = re.compile(r"epoch_(\d+)")
PROGRESS_FILE = "progress.json"
"""Says after which step, epoch and conversation a folder was written."""


def write_epoch(folder: Path, epoch: int, progress: Progress, write: Callable[[Path], None]) -> Path:
    """Write the model of an epoch, whole or not at all, in place of one that is there; return its folder.

    Args:
        folder: of all of them: ``epoch_0``, ``epoch_1`` ...
        epoch: from 0.
        progress: what has been trained.
        write: writes the model into a folder: adapters or weights, with the processor.
    """
    own = folder / f"epoch_{epoch}"
    with without_memory_limit(), directory_written_atomically(own) as temporary:
        write(temporary)
        figures = {"epoch": epoch, "step": progress.steps, "samples": progress.samples}
        write_json_atomically(temporary / PROGRESS_FILE, figures)
    logger.info("the model of epoch %d is in %s", epoch, own)
    return own


def steps_of(folder: Path) -> int:
    """Return after which step the model of a folder was written; 0 where it does not say."""
    try:
        return int(from_json(read_text(folder / PROGRESS_FILE))["step"])
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
