"""Automations that a resumed run has no longer: what they decided ends with them."""

import logging

from trainauto.core.words import visible
from trainauto.engine.training import Training

logger = logging.getLogger(__name__)


def undo_removed(run: Training) -> None:
    """Undo what automations decided that are not there any more, and say so; every rank must ask.

    Of a run that repeats a log nothing is undone: there it says what holds.
    """
    deciders = sorted(run.controls.deciders())
    if not deciders or not run.script.is_free:
        return
    there = {automation.name for automation in run.journal.automations}
    for name in run.ranks.broadcast_object(lambda: [one for one in deciders if one not in there]):
        factor = run.controls.rate_factor
        run.journal.keep(run.controls.undo(name))
        rates = f"; learning rates were multiplied by {factor:g}" if run.controls.rate_factor != factor else ""
        if run.ranks.is_first:
            words = "%s is gone, and what it had decided with it: schedule and clipping are the run's own again%s"
            logger.warning(words, visible(name), rates)
