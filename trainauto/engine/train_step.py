"""What surrounds a step: its batch, its settings, its record, and what follows where it does not fit."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import nullcontext

from trainauto.core.batch import Batch
from trainauto.core.errors import InputError, Problem, Saving, have_saved
from trainauto.core.objectives import parameters_of
from trainauto.core.plan import BATCH_SIZE
from trainauto.core.process import without_memory_limit
from trainauto.core.records import PeakReading, StepRecord
from trainauto.core.words import counted
from trainauto.core.workload import UnevenSamples
from trainauto.data.worker_failures import WorkersFailedError
from trainauto.distributed.communicator import ABORT
from trainauto.engine.oom_policy import on_batch_too_large, on_recovered
from trainauto.engine.reduce import reduce_failure, reduce_step
from trainauto.engine.step import StepSettings, tell_weight
from trainauto.engine.step_outcome import DoesNotFit, Stepped
from trainauto.engine.training import Training
from trainauto.memory.monitor.oom import in_words, shortage_in
from trainauto.memory.monitor.release import heap_trimmed_after, release_between_plans

logger = logging.getLogger(__name__)

AS_LARGE = 0.95
"""Share of what the largest samples take from which on a step counts as full."""


def next_batch(run: Training, batches: Iterator[Batch]) -> Batch:
    """Return the next batch; where there is none, tell the other ranks, and all save and leave.

    Raises:
        InputError: an unreadable file, or no memory to make the batch, here or in a worker.
        WorkersFailedError: a process that loads samples was killed, or crashed.
    """
    # On the CPU, what samples leave in the heap would be counted as the step's.
    leaves_some = run.budget_bytes is not None and run.loader.loads_here and run.model.device.type == "cpu"
    try:
        with without_memory_limit(), heap_trimmed_after() if leaves_some else nullcontext():
            batch = _made(batches)
    except (InputError, WorkersFailedError) as error:
        if not run.ranks.reduces_in_backward:  # there nobody waits where a word would be heard
            tell_weight(run.loader.dataset.workload, 0.0, run.ranks)  # the others ask for it before they compute
            run.ranks.sum_gradients(parameters_of(run.model.objectives_at(run.progress.steps + 1)[0]), ABORT)
            have_saved(error, Saving.TOGETHER)
        raise
    return batch


def _made(batches: Iterator[Batch]) -> Batch:
    try:
        return next(batches)
    except (RuntimeError, MemoryError) as error:
        message = in_words(shortage_in(error))
    advice = "Use fewer workers or a smaller batch, or free memory that other programs hold. The batch is drawn again."
    raise InputError(Problem(f"out of memory while the next batch was loaded: {message}", advice=advice))


def begin_step(run: Training, batch: Batch) -> StepSettings:
    """Make room for another plan, set the learning rates; return how the step is to run."""
    run.journal.follow(run.script.begin_step())
    if (compilation := run.model.compilation()) is not None:
        compilation.begin_step()
    if run.trained_plan != batch.plan:
        release_between_plans(run.model.device)
        run.meter.cap_at_available()
    samples = samples_for_rates(run, batch)
    rate_factor = run.controls.rate_factor * run.batch_scaling.rate_factor(samples)
    run.schedule.set_rates(run.model.optimizers.values(), run.progress, rate_factor)
    return StepSettings(
        max_norm=run.controls.max_norm,
        axes=run.axes,
        average_share=run.batch_scaling.average_share(samples),
        splits=run.script.splits(),
        may_requeue=run.script.is_free,
        max_norms=run.controls.max_norms,
        step=run.progress.steps + 1,
        measures_noise=_measures_noise(run),
        leaves_out_non_finite=run.leaves_out_non_finite or run.script.leaves_out_non_finite(),
    )


def samples_for_rates(run: Training, batch: Batch) -> int:
    """Return the samples of a step that rates follow: those it has, or those that its plan has on average."""
    if not run.batch_scaling.by_plan:
        return batch.step_samples
    ranks = run.loader.sharding.equivalent_ranks * run.script.ranks_before()
    return round(ranks * run.loader.dataset.mean_samples(batch.plan))


def _measures_noise(run: Training) -> bool:
    """Say whether the step measures how gradients differ: among ranks on a fixed beat, which all of them know."""
    step = run.progress.steps + 1
    if run.ranks.world_size > 1:
        return bool(run.noise_every) and step % run.noise_every == 0
    return run.script.is_free and any(automation.measures_noise(step) for automation in run.journal.automations)


def give_back(run: Training, batch: Batch, failure: DoesNotFit, peak: PeakReading | None) -> None:
    """Give a batch that does not fit back to the loader, under a smaller plan.

    Raises:
        ReplayError: steps are laid down, and this one cannot be run.
        NothingFitsError: there is no smaller plan.
    """
    run.script.refuse(failure)
    if not failure.is_elsewhere:
        run.journal.count_oom()
    failure, run.signals.agreed = reduce_failure(run.ranks, failure, run.signals.received)
    on_batch_too_large(run, batch, failure, peak)


def rates_now(run: Training) -> dict[str, float]:
    """Return the rate of each optimizer's first group."""
    return {name: optimizer.param_groups[0]["lr"] for name, optimizer in run.model.optimizers.items()}


def record_step(
    run: Training,
    batch: Batch,
    outcome: Stepped,
    *,
    data_seconds: float,
    peak: PeakReading | None,
    predicted: int | None,
    learning_rates: Mapping[str, float],
) -> StepRecord:
    """Return the record of a step, the same on every rank; have later batches fit where this one ran out of memory."""
    mine = StepRecord(
        step=run.progress.steps + 1,
        plan=batch.plan,
        drawn=batch.drawn,
        shape=batch.shape,
        first_sample=batch.first_sample,
        losses=outcome.losses,
        learning_rates=learning_rates,
        grad_norms=outcome.grad_norms,
        data_seconds=data_seconds,
        step_seconds=outcome.seconds,
        compile_seconds=0.0 if (compilation := run.model.compilation()) is None else compilation.seconds,
        units=batch.units,
        peak=peak,
        skipped=outcome.skipped,
        ooms=run.journal.take_ooms() + len(outcome.failures),
        predicted=predicted,
        pieces=outcome.pieces,
        draw_samples=batch.draw_samples,
        non_finite=outcome.non_finite,
        told=outcome.told,
        left_out=outcome.left_out,
        noise=outcome.noise,
        task_losses={task: loss for task, (loss, _) in outcome.task_losses.items()},
        task_samples={task: samples for task, (_, samples) in outcome.task_losses.items()},
        fills_plan=fills_plan(batch) and run.model.takes_full_memory(run.progress.steps + 1),
    )
    record, failures, run.signals.agreed = reduce_step(
        run.ranks, run.loader.sharding, mine, outcome.failures, run.signals.received
    )
    on_recovered(run, batch, failures)
    for objective in run.model.objectives():
        if objective.notes is not None and objective.name not in record.left_out:
            objective.notes.recorded(record, run.ranks)
    return record


def fills_plan(batch: Batch) -> bool:
    """Say whether samples are about as large as the largest there are, where plans count them and nothing else."""
    workload, plan = batch.workload, batch.plan
    if not isinstance(workload, UnevenSamples) or plan.has_size or BATCH_SIZE not in plan:
        return True
    return bool(len(batch)) and workload.fullness(batch.tensors, plan.forward_batch_size) >= AS_LARGE


def take_in(run: Training, record: StepRecord) -> None:
    """Count a step, and have automations and the script decide upon it; say the first time that one trains nothing."""
    if not (record.losses or run.has_said_nothing_learned):
        run.has_said_nothing_learned = True
        logger.warning(
            "step %d trains nothing: all of its %s have weight 0, as samples without labels do. Such steps have no "
            "loss and do not change the weights. Later ones are not logged",
            record.step,
            counted(record.shape.samples, "sample"),
        )
    run.progress += record
    run.last_resort.see(record)
    dataset = run.loader.dataset
    in_first_pass = run.progress.samples <= len(dataset)  # which may decode what is then kept
    if dataset.if_waiting and run.ranks.is_first and not in_first_pass:
        run.data_wait.see(record, dataset.if_waiting)
    note_plan(run, record)
    decide_on_step(run, record)


def decide_on_step(run: Training, record: StepRecord) -> None:
    """Have automations and the script decide upon a step."""
    run.journal.decide(run.journal.ask(lambda automation: automation.on_step_end(record)), record.plan)
    run.journal.follow(run.script.end_step(record, finished=run.finished))


def note_plan(run: Training, record: StepRecord) -> None:
    """Remember the plan of the last step; say what was compiled for it."""
    if record.compile_seconds and (compilation := run.model.compilation()) is not None:
        graphs = counted(compilation.graphs, "graph")
        logger.info("step %d: torch.compile took %.1f s; %s so far", record.step, record.compile_seconds, graphs)
    run.trained_plan = record.plan
