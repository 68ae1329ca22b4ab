"""Automations that a resumed run has no longer: what they decided ends with them."""

import logging
from collections.abc import Sequence

from trainauto.core.decisions import ClipAt, Decision, RateFactor
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
        undone = run.controls.undo(name)
        run.journal.keep(undone)
        if run.ranks.is_first:
            logger.warning(
                "%s is no longer among the automations, so its decisions are undone: %s",
                visible(name),
                _words(undone, factor),
            )


def _words(undone: Sequence[Decision], factor: float) -> str:
    """Return what holds again, after rates were multiplied by a factor."""
    rates = any(isinstance(decision, RateFactor) for decision in undone)
    clips = any(isinstance(decision, ClipAt) for decision in undone)
    return ", and ".join(
        [
            *([f"learning rates follow the schedule again, instead of {factor:g} times it"] if rates else []),
            *(["gradients are clipped as the run does without it"] if clips else []),
        ]
    )
