"""Taking logs back to a checkpoint, and saying what they lack."""

import logging
import time
from collections.abc import Sequence

from trainauto.core.decisions import MissingSteps
from trainauto.reporting.formatting import missing_text
from trainauto.reporting.jsonl import add_decision
from trainauto.storage.log_gaps import damaged_ends, lacks_validation, missing_until
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import logged_decisions

logger = logging.getLogger(__name__)


def rewind(run: RunDirectory, step: int, *, validates_every: int = 0) -> None:
    """Drop what was recorded after ``step``, and note the steps before that the log lacks.

    Args:
        run: which.
        step: that of the checkpoint it continues from.
        validates_every: steps between validations; 0 where there are none, or were others before.
    """
    damaged = damaged_ends(run)
    run.rewind(step)
    if validates_every and run.validations.name not in damaged and lacks_validation(run, step, validates_every):
        damaged.append(run.validations.name)
    gap = missing_until(run, step)
    known = [made for _, made in logged_decisions(run) if isinstance(made, MissingSteps)]
    if gap is not None and gap not in [(made.first, made.last) for made in known]:
        _note(run, *gap, damaged)
    elif gap is None and damaged:
        names = " and ".join(damaged)
        logger.warning("the end of %s is missing: what was last written there is lost. %s", names, _WHOLE)


_WHOLE = "The checkpoint is whole, and the run continues from it."


def _note(run: RunDirectory, first: int, last: int, damaged: Sequence[str]) -> None:
    names = [name for name in damaged if name != run.records.name]
    others = f"; {' and '.join(names)} may lack more" if names else ""
    reason = f"the log ended before the checkpoint of step {last}, as after a power cut{others}"
    add_decision(run, last, MissingSteps(first, last, reason), time.time())
    logger.warning(
        "%s missing in %s: %s. %s `report` and `replay` heed the gap.",
        missing_text(first, last),
        run.records.name,
        reason,
        _WHOLE,
    )
