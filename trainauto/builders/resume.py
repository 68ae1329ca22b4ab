"""Taking up an earlier run: its checkpoint, under the options of now."""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainauto.builders.run_parts import RunParts
from trainauto.core.decisions import Rollback
from trainauto.core.errors import NetworkMismatchError
from trainauto.engine.best import Best
from trainauto.engine.run import Run
from trainauto.reporting.jsonl import add_decision
from trainauto.reporting.log_gaps import rewind
from trainauto.storage.resumes import CHANGED
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import logged_decisions, validated_sets
from trainauto.storage.run_metadata import changed_options, configured_samples, step_of_schedule

logger = logging.getLogger(__name__)


def take_up(
    run: Run,
    parts: RunParts,
    configured_now: int,
    directory: RunDirectory,
    checkpoint: Path | None,
    accepted: Sequence[str] = (),
) -> None:
    """Continue an earlier run: the first rank reads and tells, for it is about to write these files anew.

    Args:
        run: as it begins.
        parts: what it consists of.
        configured_now: samples of a step that the option file asks for.
        directory: of the run.
        checkpoint: where it stands; ``None`` before its first one.
        accepted: how its samples have changed, in words, where those of now were accepted.
    """
    ranks, configured = parts.ranks, (run.batch_scaling.configured_samples, configured_now)
    changes = ranks.broadcast_object(partial(changed_options, directory, parts.resolved, ranks.world_size))
    samples = ranks.broadcast_object(partial(configured_samples, directory, *configured))
    run.batch_scaling = replace(run.batch_scaling, configured_samples=samples)
    if run.schedule.unit == "samples":  # counted in steps, a step counts as one
        run.schedule = replace(
            run.schedule, step=ranks.broadcast_object(partial(step_of_schedule, directory, run.schedule.step))
        )
    _continue_run(run, directory, checkpoint, [*changes, *accepted])


def _continue_run(run: Run, directory: RunDirectory, checkpoint: Path | None, changes: Sequence[str]) -> None:
    """Take up the run where its checkpoint is, under the options of now; the logs are cut only when that has worked."""
    if checkpoint:
        try:
            run.restore(checkpoint)
        except NetworkMismatchError as error:
            raise _explained(error, changes) from error
    every, step = run.frequencies.validate, run.progress.steps
    # Under another interval nobody can tell whether it was due; after the last step it always was.
    is_same = run.validated_every in (None, every) and not any(line.startswith("val.val_freq:") for line in changes)
    are_same = is_same and not any(line.startswith(("val.", "datasets.")) for line in changes)
    validated_before = run.validators and are_same

    def rewind_logs() -> None:
        rewind(directory, step, validates_every=every if validated_before else 0)
        _log_rollback(run, directory)

    run.ranks.broadcast_object(rewind_logs)  # where it fails, the others hear of it
    for line in changes:
        logger.warning("%s%s", CHANGED, line)
    if changes and run.controls.stop_reason:
        logger.warning("the run was stopped (%s); its options have changed, so it continues", run.controls.stop_reason)
        run.controls.stop_reason = run.controls.termination = ""
    was_due = every and ((is_same and step % every == 0) or run.finished)
    if step and (was_due or run.is_validation_due_besides):
        made = run.ranks.broadcast_object(lambda: _made_validations(run, directory))
        run.missed = [validator for validator in run.validators if validator.name not in made]


def _log_rollback(run: Run, directory: RunDirectory) -> None:
    """Write the line on the last rollback where a kill came between the checkpoint and the log."""
    last = run.rollbacks[-1] if run.rollbacks else None
    if last is not None and last.to_step == run.progress.steps:
        orders = [made.order for _, made in logged_decisions(directory) if isinstance(made, Rollback)]
        if last.order not in orders:
            add_decision(directory, last.to_step, last, time.time())


def _made_validations(run: Run, directory: RunDirectory) -> list[str]:
    """Return the sets that were validated after the last step; note the score of the first where it is missing."""
    step, metric = run.progress.steps, run.frequencies.best_metric
    made = validated_sets(directory, step)
    first = run.validators[0].name if run.validators else ""
    with suppress(KeyError, TypeError, ValueError):  # validated by another metric, or by none
        measured_by = str(made[first].get("measured_by", {}).get(metric, ""))
        score = Best(step, float(made[first]["metrics"][metric]), f"{first}/{metric}", measured_by)
        run.checkpoints.note_score(score, better_is_higher=made[first]["better_is_higher"][metric])
    return sorted(made)


def _explained(error: NetworkMismatchError, changes: Sequence[str]) -> NetworkMismatchError:
    """Return the error with what was changed since, as far as networks follow from it, and what to do."""
    of_networks = [line for line in changes if line.startswith(("network_", "scale", "model_type", "plugins"))]
    changed = "".join(f"\n  changed since: {line}" for line in of_networks)
    return NetworkMismatchError(
        f"{error}{changed}\n  Nothing was trained. Undo the change, or begin a new run without --auto_resume. With "
        "path: pretrain_network_g it starts from these weights (strict_load_g: false takes what fits)."
    )
