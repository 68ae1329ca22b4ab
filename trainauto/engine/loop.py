"""The loop: one screen. What surrounds a step is in ``train_step.py``, a validation in ``run_validation.py``."""

import time
from dataclasses import replace

from trainauto.core.batch import Batch
from trainauto.core.records import StepRecord
from trainauto.core.run_events import RunEnd
from trainauto.core.workload import ShowableSamples
from trainauto.engine.few_steps import warn_of_few_steps
from trainauto.engine.leaving import end_of, reporting_failure, saving_on_errors
from trainauto.engine.long_steps import warning_if_long
from trainauto.engine.oom_policy import on_group_oom
from trainauto.engine.removed import undo_removed
from trainauto.engine.rollback import carry_out
from trainauto.engine.run import Run
from trainauto.engine.run_validation import end_epoch_and_save_if_due, make_up, validate_if_due
from trainauto.engine.step import optimize_parameters
from trainauto.engine.step_outcome import DoesNotFit
from trainauto.engine.train_step import begin_step, give_back, next_batch, rates_now, record_step, take_in
from trainauto.engine.training import Training
from trainauto.engine.warmup import warm_up_memory
from trainauto.models.compiled_network import failed_compilations_told


def train(run: Run) -> RunEnd:
    """Train from where ``run`` stands to its length, a signal, or an automation's stop.

    A checkpoint is written at the end in every one of these cases; an error says itself whether one is written.
    """
    undo_removed(run)
    for automation in run.journal.automations:
        automation.on_run_start(run.facts(run.summary.run_directory))
    run.reporter.start(replace(run.summary, plan=run.loader.plan, progress=run.progress))
    was_complete = run.finished and not run.missed
    with reporting_failure(run):
        warm_up_memory(run)
        if run.summary.unit == "samples" and not run.progress.steps:
            warn_of_few_steps(run, run.summary.total, run.first_plan, run.loader.dataset.bounding_option)
        with run.signals, saving_on_errors(run):
            on_group_oom(run)
            train_until_done(run)
        end = end_of(run, was_complete=was_complete)
    run.reporter.end(end)
    return end


def train_until_done(run: Run) -> None:
    """Train batch after batch, validate and save where that is due."""
    if run.leaves_out_non_finite and not run.progress.steps:
        run.save()  # what the first steps can go back to
    batches = iter(run.loader)
    make_up(run)
    while not (run.finished or run.is_stopping):
        run.lock.check()
        start = time.perf_counter()
        batch = next_batch(run, batches)
        with warning_if_long(run):
            record = train_step(run, batch, data_seconds=time.perf_counter() - start)
        if record is None:
            continue
        show_first_samples(run, batch)
        take_in(run, record)
        run.reporter.step(record, run.journal.take(), run.progress)
        is_validated = run.controls.to_undo is not None or validate_if_due(run)
        if run.controls.to_undo is not None:
            carry_out(run)
            batches = iter(run.loader)
        elif is_validated:
            end_epoch_and_save_if_due(run)
    run.save()


def train_step(run: Training, batch: Batch, data_seconds: float) -> StepRecord | None:
    """Train a batch; return ``None`` if it did not fit and went back to the loader."""
    settings = begin_step(run, batch)
    predicted = run.journal.predictions.predict(batch.plan)
    try:
        with failed_compilations_told(run.model), run.meter.window() as window:
            outcome = optimize_parameters(run.model, batch, settings, snapshot=run.snapshot, ranks=run.ranks)
        learning_rates = rates_now(run)
    finally:
        run.schedule.put_back()
    if isinstance(outcome, DoesNotFit):
        give_back(run, batch, outcome, window.reading)
        return None
    return record_step(
        run,
        batch,
        outcome,
        data_seconds=data_seconds,
        peak=window.reading,
        predicted=predicted,
        learning_rates=learning_rates,
    )


SHOWN_SAMPLES = 6


def show_first_samples(run: Run, batch: Batch) -> None:
    """Report pictures of the first samples of the first step's batch, where samples can be shown."""
    workload = run.loader.dataset.workload
    if run.progress.steps or not isinstance(workload, ShowableSamples):
        return
    if shown := workload.shown(batch.tensors, SHOWN_SAMPLES):
        run.reporter.first_samples(shown)
