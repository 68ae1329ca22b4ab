"""The loop: one screen."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from signal import Signals

from trainauto.core.batch import Batch
from trainauto.core.decisions import Decision, RunFacts
from trainauto.core.errors import InputError, TrainautoError
from trainauto.core.process import without_memory_limit
from trainauto.core.records import StepRecord, ValidationRecord
from trainauto.core.run_events import RunEnd
from trainauto.distributed.communicator import ABORT
from trainauto.engine.checkpoint import Best
from trainauto.engine.distributed_validation import validated
from trainauto.engine.long_steps import said_if_long
from trainauto.engine.oom_notes import write_oom_note
from trainauto.engine.oom_policy import on_batch_too_large, on_group_oom, on_recovered
from trainauto.engine.reduce import reduce_failure, reduce_step
from trainauto.engine.run import Run
from trainauto.engine.snapshot import BatchTooLargeError, GroupOutOfMemoryError
from trainauto.engine.step import (
    ELSEWHERE,
    OptimizerOutOfMemoryError,
    RankAbortedError,
    optimize_parameters,
    parameters_of,
)
from trainauto.engine.validation_room import lack_of_room
from trainauto.engine.warmup import lift_budget, warm_up_memory
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.monitor.release import release_memory
from trainauto.models.validation import Validator

logger = logging.getLogger(__name__)


def train(run: Run) -> RunEnd:
    """Train from where ``run`` stands to its length, a signal, or an automation's stop.

    A checkpoint is written at the end in every one of these cases; an error leaves the last one as it is.
    """
    for automation in run.automations:
        automation.on_run_start(RunFacts(run.axes, run.loader.plan, run.loader.dataset.scale))
    run.reporter.start(replace(run.summary, plan=run.loader.plan, progress=run.progress))
    was_complete = run.finished and not run.missed
    try:
        warm_up_memory(run)
        on_group_oom(run)
        with run.signals:
            _train_until_done(run)
        end = _end_of(run, was_complete=was_complete)
    except KeyboardInterrupt:
        checkpoint = str(run.last_checkpoint or "")
        run.reporter.end(RunEnd("interrupted", "stopped at once", run.progress, checkpoint, go_on=run.go_on))
        raise
    except BaseException as error:
        # The first line is enough here: the command line prints all of it. Errors of ours say what they are.
        said = str(error) if isinstance(error, TrainautoError) else f"{type(error).__name__}: {error}"
        reason = next(iter(said.splitlines()), type(error).__name__)
        run.reporter.end(RunEnd("failed", reason, run.progress, str(run.last_checkpoint or "")))
        raise
    finally:
        lift_budget(run)
    run.reporter.end(end)
    return end


def _train_until_done(run: Run) -> None:
    batches = iter(run.loader)
    if run.missed:
        _validate_or_save(run, run.missed)
    while not (run.finished or run.is_stopping):
        run.lock.check()
        start = time.perf_counter()
        try:
            with without_memory_limit():
                batch = next(batches)
        except InputError:
            if not run.ranks.reduces_in_backward:  # there nobody waits where a word would be heard
                run.ranks.sum_gradients(parameters_of(run.model.objectives()[0]), ABORT)
                run.save()  # an unreadable file: every step so far is whole
            raise
        with said_if_long(run):
            record = _step(run, batch, data_seconds=time.perf_counter() - start)
        if record is None:
            continue
        run.progress += record
        run.last_resort.see(record, run.model)
        _say_new_plan(run, record)
        decisions = run.ranks.broadcast_decisions(partial(_asked, run, record))
        run.controls.apply(decisions)
        decided = run.expectations.completed(decisions, record.plan)
        if run.replay is not None:
            decided += run.replay.end_step(record, finished=run.finished)
            run.controls.apply(decided)
        run.reporter.step(record, [*run.decided, *decided], run.progress)
        run.decided.clear()
        if _is_due(run, run.frequencies.validate):
            _save_before_the_last(run)
            _validate_or_save(run, run.validators)
        if _is_due(run, run.frequencies.save):
            run.save()
    run.save()


def _asked(run: Run, record: StepRecord) -> list[Decision]:
    return [d for a in run.automations if (d := a.on_step_end(record)) is not None]


def _step(run: Run, batch: Batch, data_seconds: float) -> StepRecord | None:
    """Train a batch; return ``None`` if it did not fit and went back to the loader."""
    if run.replay is not None:
        run.decided += run.replay.begin_step()
        run.controls.apply(run.decided)
    optimizers = run.model.optimizers
    if run.trained_plan != batch.plan:
        release_memory(run.model.device)  # blocks cached for the old sizes would be in the way of the new ones
        run.meter.cap_at_available()
    rate_factor = run.controls.rate_factor * run.batch_scaling.rate_factor(batch.step_samples)
    run.schedule.set_rates(optimizers.values(), run.progress, rate_factor)
    predicted = run.expectations.of(batch.plan)
    outcome = too_large = None
    with run.meter.window() as window:
        try:
            outcome = optimize_parameters(
                run.model,
                batch,
                max_norm=run.controls.max_norm,
                rewind=run.rewind,
                axes=run.axes,
                average_share=run.batch_scaling.average_share(batch.step_samples),
                replayed=run.replay.pieces() if run.replay is not None else None,
                ranks=run.ranks,
            )
        except BatchTooLargeError as error:
            too_large = error.with_traceback(None)
        except OptimizerOutOfMemoryError:
            if run.ranks.world_size == 1:  # the others have stepped: the last checkpoint is the last common moment
                run.save()
            raise
        except GroupOutOfMemoryError as error:
            with without_memory_limit():
                write_oom_note(
                    run.checkpoints.folder,
                    run.ranks.rank,
                    run.progress.steps + 1,
                    batch,
                    error.failure,
                    run.meter.limit_bytes,
                )
            raise
        except RankAbortedError:
            run.save()  # it waits for that, and every step so far is whole
            raise
    if run.replay is not None and too_large is not None:
        run.save()
        raise run.replay.cannot_follow(str(too_large))
    if outcome is None:
        run.uncounted_ooms += too_large is not None and too_large.message != ELSEWHERE
        answer: Sequence[Decision] = ()
        if too_large is not None:
            too_large, run.signal = reduce_failure(run.ranks, too_large, run.signals.received)
            answer = on_batch_too_large(run, batch, too_large, window.reading)
        run.decided += [replace(one, early=True) for one in run.expectations.completed(answer, batch.plan)]
        return None
    ooms, run.uncounted_ooms = run.uncounted_ooms + len(outcome.failures), 0
    mine = StepRecord(
        step=run.progress.steps + 1,
        plan=batch.plan,
        drawn=batch.drawn,
        shape=batch.shape,
        first_sample=batch.first_sample,
        losses=outcome.losses,
        learning_rates={name: optimizer.param_groups[0]["lr"] for name, optimizer in optimizers.items()},
        grad_norms=outcome.grad_norms,
        data_seconds=data_seconds,
        step_seconds=outcome.seconds,
        pixels=batch.pixels,
        peak=window.reading,
        skipped=outcome.skipped,
        ooms=ooms,
        predicted=predicted,
        pieces=outcome.pieces,
    )
    record, failures, run.signal = reduce_step(
        run.ranks, run.loader.division, mine, outcome.failures, run.signals.received
    )
    run.decided += run.expectations.completed(on_recovered(run, batch, failures), batch.plan)
    return record


def _say_new_plan(run: Run, record: StepRecord) -> None:
    """Say when a plan is first trained: a larger one takes effect the loader's lookahead after it was decided."""
    if run.trained_plan is not None and record.plan != run.trained_plan:
        graphs = run.model.compiled_graphs()
        compiled = f"; {graphs} graphs compiled so far" if graphs is not None else ""
        logger.info(
            "step %d is the first under %s (plan change %d%s)",
            record.step,
            record.plan,
            run.controls.plan_changes,
            compiled,
        )
    run.trained_plan = record.plan


def _is_due(run: Run, every: int) -> bool:
    return every > 0 and (run.progress.steps % every == 0 or run.finished)


def _save_before_the_last(run: Run) -> None:
    """Save before a validation that nothing follows: it may take long, and whoever stops the run may not wait."""
    if run.finished or run.is_stopping:
        run.save()


def _validate_or_save(run: Run, validators: Sequence[Validator]) -> None:
    try:
        _validate(run, validators)
        release_memory(run.model.device)
    except Exception as error:
        if run.ranks.world_size == 1:  # several have saved together
            run.save()  # whatever is wrong with the validation set: every step so far is whole
        if not is_out_of_memory(error):
            raise
        raise lack_of_room(run) from None


def _validate(run: Run, validators: Sequence[Validator]) -> None:
    for validator in validators:
        with run.meter.window() as window:  # no step is under way: windows of training begin and end with theirs
            result = validated(run, validator)
        if result is None:
            return  # a signal: saving comes first
        record, pictures = replace(result[0], peak=window.reading), result[1]
        decisions = run.ranks.broadcast_decisions(partial(_asked_of_validation, run, record))
        run.controls.apply(decisions)
        run.reporter.validation(record, pictures, run.expectations.completed(decisions, run.trained_plan))
        # Before the next set, in which a signal or a kill may come; what was decided belongs to this step.
        if validator is run.validators[0]:
            _note_score(run, record)
        if run.is_saved:
            run.save()


def _asked_of_validation(run: Run, record: ValidationRecord) -> list[Decision]:
    return [d for a in run.automations if (d := a.on_validation_end(record)) is not None]


def _note_score(run: Run, record: ValidationRecord) -> None:
    metric = run.frequencies.best_metric
    if metric is None:
        return
    score = Best(record.step, record.metrics[metric], f"{record.dataset}/{metric}")
    higher = record.better_is_higher[metric]
    if run.ranks.broadcast_object(lambda: run.checkpoints.note_score(score, better_is_higher=higher)):
        # The best is worth a checkpoint of its own, wherever the saving interval stands.
        run.save()


def _end_of(run: Run, *, was_complete: bool) -> RunEnd:
    facts = run.replay.facts() if run.replay is not None else ()
    checkpoint = str(run.last_checkpoint or "")
    if run.signal:
        reason = f"{Signals(run.signal).name} received"
        return RunEnd("interrupted", reason, run.progress, checkpoint, facts, run.go_on)
    if run.controls.stop_reason:
        return RunEnd("stopped", run.controls.stop_reason, run.progress, checkpoint, facts)
    if was_complete:
        unit, key = ("steps", "total_iter") if run.schedule.unit == "steps" else ("samples", "total_samples")
        what = f"it was complete before, at {run.schedule.total} {unit}: raise {key} under train to go on"
        return RunEnd("completed", what, run.progress, checkpoint, facts)
    return RunEnd("completed", "the run has come to its length", run.progress, checkpoint, facts)
