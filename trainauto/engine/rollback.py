"""Going back to a checkpoint in mid-run, and training on from there with the samples in another order.

What is on disk is at every moment that of a run which can be resumed. The order of what happens: later checkpoints are
deleted, the run is restored in place, the checkpoint that it went back to learns of the rollback, the logs are cut. A
kill in between resumes from that same checkpoint: before it knows of the rollback, the same steps come again and the
same is decided; after that, the logs are cut at the resume.
"""

import logging
from dataclasses import replace

from trainauto.core.decisions import GiveUp, GoBack, Rollback
from trainauto.core.errors import TrainautoError
from trainauto.core.process import without_memory_limit
from trainauto.core.words import counted
from trainauto.engine.run import Run
from trainauto.memory.monitor.release import release_memory

logger = logging.getLogger(__name__)


class NothingToGoBackToError(TrainautoError):
    """A run is to go back, and no checkpoint is from before that went wrong."""


class GivenUpError(TrainautoError):
    """A run went wrong too often; its last good checkpoint stands."""


def carry_out(run: Run) -> None:
    """Go back to a checkpoint, or end the run, as was decided; every rank must ask.

    Raises:
        NothingToGoBackToError: there is no good checkpoint. Nothing was changed.
        GivenUpError: that was decided. Checkpoints that are not thought to be good are gone.
    """
    asked, run.controls.to_undo = run.controls.to_undo, None
    step = run.ranks.broadcast_object(lambda: _chosen(run, asked.good_until)) if asked is not None else None
    if isinstance(asked, GiveUp):
        if step is not None and run.ranks.is_first:
            run.checkpoints.drop_after(step)
        raise GivenUpError(f"{asked.reason}\n  {_what_stands(step)}")
    if isinstance(asked, GoBack):
        if step is None:
            raise NothingToGoBackToError(f"{asked.reason}\n  {_what_stands(None)}")
        with without_memory_limit():
            _roll_back(run, step, asked.reason)


def _chosen(run: Run, good_until: int) -> int | None:
    """Return the checkpoint to go back to: the newest good one, or where the last rollback led there, the one before.

    To come to the same end from the same weights with other samples says that the weights are at fault.
    """
    newest = run.checkpoints.newest_whole_until(good_until)
    if newest is None or not run.rollbacks or run.rollbacks[-1].to_step != newest:
        return newest
    earlier = run.checkpoints.newest_whole_until(newest - 1)
    return newest if earlier is None else earlier


def _roll_back(run: Run, step: int, reason: str) -> None:
    before, rollbacks = run.progress, run.rollbacks
    if run.ranks.is_first:
        run.checkpoints.drop_after(step)
    _let_go(run)
    run.restore(run.checkpoints.path(step))
    run.progress = before.gone_back_to(run.progress)
    order = len(rollbacks) + 1
    made = Rollback(before.steps, step, order, run.loader.reorder(order), reason)
    run.rollbacks = (*rollbacks, made)
    run.save()  # the weights are there: what is added is the order of the samples, and the rollback itself
    facts = run.facts(run.summary.run_directory)
    for automation in run.journal.automations:
        automation.on_run_start(facts)
    run.reporter.rolled_back(replace(run.summary, plan=run.loader.plan, progress=run.progress), made)
    undone = counted(before.steps - step, "step")
    logger.info("the checkpoint of step %d is restored, %s are undone; the samples come in another order", step, undone)


def _let_go(run: Run) -> None:
    """Free what is about to be replaced: both at once may not fit."""
    for optimizer in run.model.optimizers.values():
        optimizer.zero_grad(set_to_none=True)
        optimizer.state.clear()
    release_memory(run.model.device)


def _what_stands(step: int | None) -> str:
    what = (
        f"The checkpoint of step {step} is the last good one, and the newest that is kept."
        if step is not None
        else "There is no checkpoint from before: logger.save_checkpoint_freq says how often one is written."
    )
    return (
        f"{what} Lower the learning rate, clip gradients (train.grad_clip), or look at the samples of these steps; "
        "then resume with --auto_resume. max_rollbacks of SpikeGuard says how often a run goes back."
    )
