"""Checkpoints of a Trainer: which is whole, and where the next run goes on.

Transformers writes file by file into the folder's final name, the Trainer's own state last. Ours is there before, and
the sums of all files after it: what was killed in between is told from a whole one.
"""

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trainauto.core.errors import CheckpointError, InputError
from trainauto.core.files import remove_leftovers, write_atomically
from trainauto.engine.checkpoint_integrity import SUMS_FILE, damage_of, sums_renewed, write_sums

logger = logging.getLogger(__name__)

STATE_FILE = "trainauto.pt"
"""What a checkpoint of the Trainer holds of ours, beside what it holds of its own."""

TRAINER_STATE = "trainer_state.json"
"""What transformers writes last."""

OTHER_RANKS = "rng_state_*.pth"
"""Written by processes that the first one does not wait for."""

NOT_OURS = "it was not written by a MemoryAwareTrainer, and where in an epoch it stands is not known"
BEGIN_ANEW = "Begin a new run with its weights: from_pretrained(checkpoint)."


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write our part of a checkpoint that is about to be written.

    What says of an earlier one that it is whole goes first, for its files change.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in (SUMS_FILE, TRAINER_STATE):
        (folder / name).unlink(missing_ok=True)
    remove_leftovers(folder)
    write_atomically(folder / STATE_FILE, partial(torch.save, state))


def is_written(folder: Path) -> bool:
    """Whether a checkpoint is there whole."""
    return (folder / SUMS_FILE).is_file()


@contextmanager
def whole_at_the_end(folder: Path, *, is_first: bool) -> Iterator[None]:
    """Note the sums of a checkpoint's files once all are written inside; of several processes, the first does."""
    yield
    if is_first:
        write_sums(folder, leave_out=OTHER_RANKS)


def checkpoint_to_take(given: Any, output_dir: str | None) -> str | None:
    """Return the checkpoint that ``resume_from_checkpoint`` asks for, looked through; ``None`` where it asks for none.

    Of ``True`` the newest whole one of the output directory; those that are left aside are named in the log. They stay
    where they are: the run writes them anew when it comes there.

    Raises:
        CheckpointError: the one that is named, or each that there is, cannot be resumed from.
    """
    if not given:  # of an empty text transformers says that there is no such checkpoint
        return None
    if given is not True:
        named = Path(os.fspath(given))
        if named.is_dir() and (damage := _damage(named)):
            raise CheckpointError(f"{named} cannot be resumed from: {damage}\n  {_advice(named, damage)}")
        return str(named)
    aside: list[tuple[Path, str]] = []
    for folder in written_checkpoints(output_dir or ".").values():
        damage = _damage(folder)
        if not damage:
            for left, how in aside:
                logger.warning("%s is left aside (%s): resuming from %s instead", left, how, folder.name)
            return str(folder)
        aside.append((folder, damage))
    if not aside:
        return None
    listed = "".join(f"\n  {folder}: {how}" for folder, how in aside)
    raise CheckpointError(f"no checkpoint in {output_dir} can be resumed from{listed}\n  {_advice(*aside[0])}")


def check_same_steps(theirs: int | None, ours: int | None) -> None:
    """Refuse a checkpoint of other steps.

    Args:
        theirs: samples of a step of a process there; ``None`` where steps are not fixed.
        ours: the same of the run that is to resume from it.

    Raises:
        InputError: says how many samples they have, and what to give.
    """
    if theirs != ours:
        given = [f"steps of {count} samples each" if count else "no fixed steps" for count in (theirs, ours)]
        raise InputError(
            f"the checkpoint is of a run with {given[0]}, this one has {given[1]} (per_device_train_batch_size * "
            "gradient_accumulation_steps, where these are above 1): give what makes as many, or begin a new run"
        )


def warn_of_other_rows(theirs: int | None, ours: int | None) -> None:
    """Say where a few rows of the dataset are others than when the checkpoint was written."""
    if theirs is not None and ours is not None and theirs != ours:
        logger.warning(
            "train_dataset holds other rows than when this checkpoint was written, or in another order: samples that "
            "were trained in this epoch may come again, others not at all. Give the dataset of then, or begin a new "
            "run with the checkpoint's weights"
        )


def written_checkpoints(output_dir: str, *, whole: bool = False) -> dict[int, Path]:
    """Return the checkpoints of a Trainer in an output directory by their steps, the newest first.

    Args:
        output_dir: of the Trainer.
        whole: leave out those that cannot be resumed from.
    """
    folder = Path(output_dir)
    numbered = re.compile(rf"^{PREFIX_CHECKPOINT_DIR}-(\d+)$")
    named = [(numbered.match(path.name), path) for path in (folder.iterdir() if folder.is_dir() else ())]
    found = sorted(((int(match[1]), path) for match, path in named if match and path.is_dir()), reverse=True)
    return {step: path for step, path in found if not (whole and _damage(path))}


def renew_state(folder: Path, state: dict[str, Any]) -> None:
    """Replace our part of a checkpoint that is there; it is whole at every moment."""
    with sums_renewed(folder, STATE_FILE, leave_out=OTHER_RANKS):
        write_atomically(folder / STATE_FILE, partial(torch.save, state))


def _damage(folder: Path) -> str:
    """Say why a checkpoint cannot be resumed from; empty where it can.

    Where no sums were noted (a kill just before, an earlier version), what transformers writes last says that all is
    there.
    """
    try:
        if not (folder / STATE_FILE).is_file():
            return f"{STATE_FILE} is missing: {NOT_OURS}"
        if not (folder / TRAINER_STATE).is_file():
            return f"{TRAINER_STATE}, which is written last, is missing: writing it was interrupted"
        if damage := damage_of(folder):
            return damage
        TrainerState.load_from_json(str(folder / TRAINER_STATE))
        if not (folder / SUMS_FILE).is_file():
            torch.load(folder / STATE_FILE, weights_only=True)
    except (OSError, ValueError, TypeError, RuntimeError, EOFError, json.JSONDecodeError) as error:
        return f"a file of it cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    return ""


def _advice(folder: Path, damage: str) -> str:
    if NOT_OURS in damage and (folder / TRAINER_STATE).is_file():
        return BEGIN_ANEW
    return (
        "Copy it back from elsewhere; or resume from an earlier one (resume_from_checkpoint=True takes the newest "
        "whole one); or begin a new run."
    )
