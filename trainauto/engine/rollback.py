"""Going back to a checkpoint in mid-run, and training on from there with the samples in another order.

What is on disk is at every moment that of a run which can be resumed. The order of what happens: later checkpoints are
deleted, the run is restored in place, the checkpoint that it went back to learns of the rollback, the logs are cut. A
kill in between resumes from that same checkpoint: before it knows of the rollback, the same steps come again and the
same is decided; after that, the logs are cut at the resume.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from trainauto.core.decisions import USER_STOP, GiveUp, GoBack, Rollback
from trainauto.core.errors import TrainautoError
from trainauto.core.process import without_memory_limit
from trainauto.core.records import Progress
from trainauto.core.words import counted
from trainauto.engine.removed import undo_removed
from trainauto.engine.run import Run
from trainauto.engine.run_validation import end_epoch
from trainauto.engine.training import Training
from trainauto.memory.monitor.release import release_memory

logger = logging.getLogger(__name__)


_WHAT_HELPS = (
    "Lower the learning rate, clip gradients, or look at the samples of these steps; then resume. max_rollbacks of "
    "SpikeGuard limits how often a run goes back."
)


class NothingToGoBackToError(TrainautoError):
    """A run is to go back, and no checkpoint is from before it went wrong."""

    @classmethod
    def after(cls, asked: GoBack) -> "NothingToGoBackToError":
        """Return what to say where there is none."""
        none = f"There is no checkpoint of step {asked.good_until} or before: save checkpoints more often."
        return cls(f"{asked.reason}\n  {none} {_WHAT_HELPS}")


class GivenUpError(TrainautoError):
    """A run went wrong too often; its last good checkpoint stands."""

    @classmethod
    def after(cls, asked: GiveUp, step: int | None) -> "GivenUpError":
        """Return what to say where the last good checkpoint is of a step; ``None`` for none."""
        good = f"The checkpoint of step {step} is the last good one, and the newest that is kept."
        none = f"There is no checkpoint of step {asked.good_until} or before."
        return cls(f"{asked.reason}\n  {none if step is None else good} {_WHAT_HELPS}")


def chosen_step(
    newest_whole_until: Callable[[int], int | None], good_until: int, rollbacks: Sequence[Rollback]
) -> int | None:
    """Return the checkpoint to go back to: the newest good one, or where the last rollback led there, the one before.

    To come to the same end from the same weights with other samples says that the weights are at fault.

    Args:
        newest_whole_until: says which is the newest up to a step, and as it was written; ``None`` for none.
        good_until: the last step after which weights are thought to be good.
        rollbacks: those before.
    """
    newest = newest_whole_until(good_until)
    if newest is None or not rollbacks or rollbacks[-1].to_step != newest:
        return newest
    earlier = newest_whole_until(newest - 1)
    return newest if earlier is None else earlier


@dataclass(frozen=True)
class Before:
    """A run as it was before it went back, as far as that outlasts its checkpoint.

    Attributes:
        progress: what had been trained.
        rollbacks: those before.
        asked_to_end: why a person has asked for the end in the very step that is undone; empty otherwise.
        learned: what automations keep, by their names and the keys of their states.
        last_resort: what was done where no plan had fitted; what plans need follows from it.
    """

    progress: Progress
    rollbacks: tuple[Rollback, ...]
    asked_to_end: str
    learned: Mapping[str, Mapping[str, Any]]
    last_resort: Mapping[str, Any]

    @classmethod
    def of(cls, run: Training) -> "Before":
        """Return that of a run whose checkpoint is not restored yet."""
        learned = {}
        for automation in run.journal.automations:
            if automation.outlasts_rollbacks:
                state = automation.state_dict()
                learned[automation.name] = {key: state[key] for key in automation.outlasts_rollbacks}
        asked_to_end = run.controls.stop_reason if run.controls.termination == USER_STOP else ""
        return cls(run.progress, run.rollbacks, asked_to_end, deepcopy(learned), deepcopy(run.last_resort.state_dict()))


def reordered(run: Training, before: Before, reason: str) -> Rollback:
    """Have a run that was just restored go on with its samples in another order; return what was made of it.

    What has been learned of memory since the checkpoint stays, and so does an end that a person has asked for.

    Args:
        run: as its checkpoint left it.
        before: as it was when it went back.
        reason: of the rollback.
    """
    run.controls.stop_reason = before.asked_to_end
    run.controls.termination = USER_STOP if before.asked_to_end else ""
    if run.last_resort.state_dict() == before.last_resort:  # else plans need something else again
        for automation in run.journal.automations:
            if learned := before.learned.get(automation.name):
                automation.load_state_dict({**automation.state_dict(), **learned})
    run.progress = before.progress.gone_back_to(run.progress)
    order = len(before.rollbacks) + 1
    made = Rollback(before.progress.steps, run.progress.steps, order, run.loader.reorder(order), reason)
    run.rollbacks = (*before.rollbacks, made)
    return made


def carry_out(run: Run) -> None:
    """Go back to a checkpoint, or end the run, as was decided; every rank must ask.

    Raises:
        NothingToGoBackToError: there is no good checkpoint. Nothing was changed.
        GivenUpError: that was decided. Checkpoints that are not thought to be good are gone.
    """
    asked, run.controls.to_undo = run.controls.to_undo, None
    if asked is None:
        return
    rollbacks = run.rollbacks if isinstance(asked, GoBack) else ()
    step = run.ranks.broadcast_object(
        lambda: chosen_step(run.checkpoints.newest_whole_until, asked.good_until, rollbacks)
    )
    if isinstance(asked, GiveUp):
        if step is not None and run.ranks.is_first:
            run.checkpoints.drop_after(step)
        raise GivenUpError.after(asked, step)
    if step is None:
        raise NothingToGoBackToError.after(asked)
    with without_memory_limit():
        _roll_back(run, step, asked.reason)
    end_epoch(run)  # the checkpoint of a validation is older than the end that followed it


def _roll_back(run: Run, step: int, reason: str) -> None:
    before = Before.of(run)
    if run.ranks.is_first:
        run.checkpoints.drop_after(step)
    _let_go(run)
    run.restore(run.checkpoints.path(step))
    made = reordered(run, before, reason)
    undo_removed(run)  # automations that were there when the checkpoint was written, and are gone since a resume
    run.save()  # the weights are there: what is added is the order of the samples, and the rollback itself
    facts = run.facts(run.summary.run_directory)
    for automation in run.journal.automations:
        automation.on_run_start(facts)
    run.reporter.rolled_back(replace(run.summary, plan=run.loader.plan, progress=run.progress), made)
    undone = counted(before.progress.steps - step, "step")
    logger.info(
        "the checkpoint of step %d is restored and %s are undone; the samples now come in another order", step, undone
    )


def _let_go(run: Run) -> None:
    """Free what is about to be replaced: both at once may not fit."""
    for optimizer in run.model.optimizers.values():
        optimizer.zero_grad(set_to_none=True)
        optimizer.state.clear()
    release_memory(run.model.device)
