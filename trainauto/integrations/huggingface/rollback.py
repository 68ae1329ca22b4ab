"""Going back to a checkpoint of a Trainer: its loop ends, and begins again there with the samples in another order."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy

from trainauto.core.decisions import GiveUp, GoBack, Rollback
from trainauto.core.errors import InputError
from trainauto.core.words import counted
from trainauto.engine.rollback import Before, GivenUpError, NothingToGoBackToError, chosen_step
from trainauto.engine.training import Training
from trainauto.integrations.huggingface.checkpoints import written_checkpoints

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Undone:
    """What one start of the Trainer's loop leaves to the next, which goes back.

    Attributes:
        checkpoint: folder that it goes back to.
        before: the run as it was.
        reason: of this rollback.
    """

    checkpoint: Path
    before: Before
    reason: str


def check_that_it_saves(args: Any) -> None:
    """Refuse a run that may go back and writes no checkpoints, or none that a run can be resumed from.

    Raises:
        InputError: says what to set.
    """
    if args.save_strategy == SaveStrategy.NO:
        raise InputError("SpikeGuard goes back to checkpoints, and save_strategy is 'no': set it to 'steps'")
    if args.save_only_model:
        words = "and with save_only_model they hold neither optimizer nor schedule: leave it out"
        raise InputError(f"SpikeGuard goes back to checkpoints, {words}")


def undone_by(run: Training, output_dir: str) -> Undone | None:
    """Return where a run whose loop has ended goes on, where it is to go back; every rank must ask.

    Later checkpoints are deleted: their weights are not thought to be good, and a resume would take the newest.

    Raises:
        NothingToGoBackToError: there is no good checkpoint.
        GivenUpError: that was decided.
    """
    asked, run.controls.to_undo = run.controls.to_undo, None
    if asked is None:
        return None
    rollbacks = run.rollbacks if isinstance(asked, GoBack) else ()
    step = run.ranks.broadcast_object(lambda: _chosen(output_dir, asked.good_until, rollbacks))
    if step is None:
        raise GivenUpError.after(asked, None) if isinstance(asked, GiveUp) else NothingToGoBackToError.after(asked)
    if run.ranks.is_first:
        for later, folder in written_checkpoints(output_dir).items():
            if later > step:
                logger.info("%s is deleted: its weights are not thought to be good", folder)
                shutil.rmtree(folder, ignore_errors=True)
    if isinstance(asked, GiveUp):
        raise GivenUpError.after(asked, step)
    folder = Path(output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{step}"
    undone = counted(run.progress.steps - step, "step")
    logger.warning(
        "step %d: back to %s, %s are undone and the samples come in another order: %s",
        run.progress.steps,
        folder.name,
        undone,
        asked.reason,
    )
    return Undone(folder, Before.of(run), asked.reason)


def _chosen(output_dir: str, good_until: int, rollbacks: Sequence[Rollback]) -> int | None:
    steps = written_checkpoints(output_dir, whole=True)
    return chosen_step(lambda most: max((step for step in steps if step <= most), default=None), good_until, rollbacks)
