"""From options to a run: what is built, in the order it is built."""

import gc
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainauto.builders.distributed_setup import checkpoints_of, earlier_run, new_run, parallel_of
from trainauto.builders.file_checks import check_file
from trainauto.builders.kept_sets import KeptSets
from trainauto.builders.optimizers import say_parts
from trainauto.builders.precision import COMPILER, load_compiler
from trainauto.builders.resume import take_up
from trainauto.builders.run_parts import RunParts, build_parts
from trainauto.builders.summary import run_summary
from trainauto.builders.task_parts import PartsRequest
from trainauto.builders.trackers import check_trackers, tracker_sinks
from trainauto.control.controller import controllers_of
from trainauto.control.noise import AMONG_RANKS
from trainauto.core.errors import InputError, Problem
from trainauto.core.records import Progress
from trainauto.core.worker_process import WorkerProcess
from trainauto.data import DynamicDataLoader, DynamicDataset
from trainauto.data.same_samples import Accepted
from trainauto.distributed.communicator import SINGLE_PROCESS, Communicator
from trainauto.engine.checkpoint import Checkpoints
from trainauto.engine.controls import Controls
from trainauto.engine.epochs import Epochs
from trainauto.engine.journal import DecisionJournal
from trainauto.engine.optimizer_form import take_loop_form
from trainauto.engine.random_state import seed_rank
from trainauto.engine.run import Frequencies, Run
from trainauto.forecast.recomputation import recomputed_blocks, recomputing, step_bounds
from trainauto.forecast.task import ready_task
from trainauto.forecast.warm_start import (
    WarmStart,
    broadcast_warm_start,
    keep_forecast,
    kind_of_run,
    prepare_warm_start,
)
from trainauto.memory.cuda_allocator.segments import segments_of
from trainauto.models.base_model import BaseModel
from trainauto.optim.batch_scaling import BatchScaling
from trainauto.optim.schedules import RateSchedule
from trainauto.options.load import LoadedOptions
from trainauto.options.resource_options import AUTO
from trainauto.options.run_options import FileOptions
from trainauto.options.tasks import kind_of
from trainauto.reporting.default_sinks import default_sinks
from trainauto.reporting.reporter import Reporter
from trainauto.reporting.sinks import Sink
from trainauto.reporting.startup_log import StartupLog
from trainauto.reporting.tensorboard import TensorBoard
from trainauto.storage.kept_sets import keep_sets
from trainauto.storage.run_directory import CURRENT, RunDirectory
from trainauto.storage.run_lock import RunLock
from trainauto.storage.run_metadata import recomputed_blocks_of, with_blocks, write_run_metadata

logger = logging.getLogger(__name__)

MOST_SQRT = 2.0
"""How many times the file's batch ``lr_scaling: sqrt`` follows goodput: at eight times, runs collapsed."""

WAY_BACK_STEPS = 100
"""Age of the checkpoint that a run which may go back keeps: harm shows within a few steps, and grows within more."""


@contextmanager
def build_run(
    given: LoadedOptions[FileOptions],
    *,
    auto_resume: bool = False,
    restarted: bool = False,
    check_samples: Callable[[DynamicDataset], None] = lambda _dataset: None,
    ranks: Communicator = SINGLE_PROCESS,
    tracer: WorkerProcess | None = None,
    accepts_samples: bool = False,
    repeated: tuple[RunDirectory, int] | None = None,
    root: Path | None = None,
) -> Iterator[Run]:
    """Build the run an option file describes, and take it down afterwards.

    Everything that can be wrong is found before the run directory is made.

    Args:
        given: checked options, with their places in the file.
        auto_resume: resume the latest run of this name, if there is one.
        restarted: torchrun has started the ranks again: resume the latest run if it is one of this launch.
        check_samples: raises where the training set is not what it is to be.
        ranks: who trains it together. The first of them traces, decides, reports and writes.
        tracer: a process that traces, started before; it is ended here.
        accepts_samples: of a run that resumes: take the samples that are there now, and begin an epoch with them.
        repeated: the run that this one repeats, and up to which step. It has its samples, and is not warned of what
            that was.
        root: folder of runs in place of the option file's, for a run that is thrown away.

    Raises:
        InputError: what is given cannot be used, or differs between ranks, or another process trains the run.
        NetworkMismatchError: the run to resume is of another network.
        CheckpointError: it cannot be read.
    """
    loads_compiler = COMPILER not in sys.modules
    loaded = (task := ready_task(given)).engine_options(given)
    settings = loaded.options.settings if root is None else replace(loaded.options.settings, root=root)
    check_trackers(loaded, settings.trackers)
    with StartupLog(repeated[0].log if repeated else None) as startup_log, RunLock() as lock:
        earlier, checkpoints, checkpoint = earlier_run(
            settings, ranks, lock, auto_resume=auto_resume, restarted=restarted
        )
        is_new = checkpoint is None  # else its weights replace pretrained ones, which need not exist any more
        check_file(loaded, task.checks().chosen(data=True, weights=is_new))
        sets = _kept_sets(repeated, None if is_new else earlier, accepts_samples=accepts_samples)
        request = partial(PartsRequest, pretrained=is_new, check_samples=check_samples, earlier=earlier, sets=sets)
        build_task = lambda *given: task.parts(loaded, request(*given))  # noqa: E731
        parts = build_parts(loaded, settings, build_task, ranks, repeats=repeated is not None)
        before = repeated[0] if repeated else None if is_new else earlier
        model, schedule, start = _build_model(parts, tracer, before, pretrained=is_new)
        parts = replace(parts, resolved=with_blocks(parts.resolved, start.recomputed))
        directory = earlier or new_run(loaded, settings, ranks, lock)
        checkpoints = checkpoints or checkpoints_of(directory, settings, ranks)
        with _assembled(parts, model, schedule, start, directory, checkpoints, lock, startup_log) as run:
            measures = is_new and start.forecast is not None and not ranks.reduces_in_backward
            run.summary = replace(run.summary, plan_is_open=measures)
            if auto_resume and checkpoint is None and ranks.is_first:
                logger.warning("nothing to resume: %s", _why_nothing(earlier, directory))
            if earlier:
                run.loader.accepted = Accepted(sets.accepted_identities(), everything=accepts_samples)
                take_up(run, parts, start.configured_samples, directory, checkpoint, sets.accepted)
            if start.one_by_one:  # not before: a checkpoint holds the form of its own run
                take_loop_form(run.model.optimizers.values())
            ranks.broadcast_object(partial(_write_metadata, run, parts, start, directory))
            try:
                yield run
            finally:
                start.keep()
                if loads_compiler:  # parts of this run were kept from the garbage collector with it
                    gc.unfreeze()


def _why_nothing(resumed: RunDirectory | None, directory: RunDirectory) -> str:
    """Say why a run that was to be resumed begins with step 1 in ``directory``, and how to resume an earlier one."""
    older = directory.earlier_with_checkpoint
    gone = "the newest run of this name is gone" if older else "there is no run of this name yet"
    why = "the newest run of this name has no checkpoint yet" if resumed else gone
    if older is None:
        return f"{why}; it begins with step 1"
    current, name = older.path.with_name(CURRENT), older.path.name
    command = f"ln -sfn {name} {current}" if current.is_symlink() else f"echo {name}> {current}"
    way = f"{older.path} has checkpoints: to resume that run, stop this one, then `{command}`"
    return f"{why}; it begins with step 1. {way}"


def _kept_sets(
    repeated: tuple[RunDirectory, int] | None, resumed: RunDirectory | None, *, accepts_samples: bool
) -> KeptSets:
    return KeptSets(repeated[0], until=repeated[1]) if repeated else KeptSets(resumed, accepts=accepts_samples)


def _build_model(
    parts: RunParts, tracer: WorkerProcess | None, before: RunDirectory | None, *, pretrained: bool
) -> tuple[BaseModel, RateSchedule, WarmStart]:
    """Build the model and its schedule, and have the first rank learn meanwhile what is known of its memory.

    Args:
        parts: of the run.
        tracer: a process that traces.
        before: the run that is resumed or repeated.
        pretrained: load the weights it starts from.
    """
    loaded, ranks = parts.loaded, parts.ranks
    is_auto = loaded.options.memory.gradient_checkpointing == AUTO
    kept_blocks = recomputed_blocks_of(before) if is_auto and before is not None else None
    tell = partial(_known_of, parts, tracer, kept_blocks)
    with ThreadPoolExecutor(1) as beside:
        # The process that traces has loaded what it needs by now; here torch loads its compiler meanwhile.
        warm_start = beside.submit(tell) if ranks.is_first else None
        try:
            load_compiler()
            model = _with_ranks(parts, pretrained=pretrained)
            schedule = parts.task.build_schedule(model, parts.sharding)
        except BaseException:
            if tracer is not None:
                tracer.end()  # nobody wants its answers now
            raise
    start = broadcast_warm_start(ranks, parts.facts.plan, warm_start)
    if tracer is not None:
        tracer.end()  # what an earlier run has learned may have made it idle
    if start.recomputed:
        model.checkpoint_gradients(start.recomputed)
        if kept_blocks is not None:
            say_parts(kept_blocks, model)
    return model, schedule, start


def _with_ranks(parts: RunParts, *, pretrained: bool) -> BaseModel:
    """Build the model, whose network is one of several ranks where they meet in its backward pass.

    Raises:
        InputError: they are to, and the task, of a plugin perhaps, does not have it so.
    """
    loaded = parts.loaded
    parallel = parallel_of(loaded.options, parts.ranks)
    model = parts.task.build_model(parts.precision, pretrained=pretrained, parallel=parallel)
    if parallel is None or parallel.is_used:
        return model
    message = f"runs of {kind_of(loaded.options).words} know no ddp_overlap and no fully_shard"
    advice = "Leave them out: gradients are then summed after the backward pass."
    raise InputError(Problem(message, loaded.places.of_value(("distributed",)), advice))


def _known_of(parts: RunParts, tracer: WorkerProcess | None, kept_blocks: tuple[str, ...] | None) -> WarmStart:
    """Return what the first rank knows of a run's memory, and which blocks run again where the file says ``auto``."""
    loaded, device, world_size = parts.loaded, parts.precision.device, parts.ranks.world_size
    known, kind = parts.task.trace_facts(), {}
    if any(automation.steers_memory for automation in parts.automations):
        kind = kind_of_run(loaded, parts.task.network, device, world_size)
    if known:
        kind["known"] = known
    blocks = kept_blocks
    if loaded.options.memory.gradient_checkpointing == AUTO:
        if blocks is None:
            blocks = recomputed_blocks(
                loaded,
                parts.facts.plan,
                step_bounds(parts.automations, device.type, parts.limit_bytes),
                segments=segments_of(device),
                world_size=world_size,
                worker=tracer,
                known=known,
            )
        loaded = replace(loaded, overrides=(*loaded.overrides, recomputing(blocks)))
        kind["recomputed"] = blocks
    start = prepare_warm_start(
        loaded,
        kind,
        parts.facts,
        device,
        parts.limit_bytes,
        parts.automations,
        calibrated=loaded.options.memory.calibration,
        tracer=tracer,
        known=known,
    )
    return replace(start, recomputed=blocks)


@contextmanager
def _assembled(
    parts: RunParts,
    model: BaseModel,
    schedule: RateSchedule,
    start: WarmStart,
    directory: RunDirectory,
    checkpoints: Checkpoints,
    lock: RunLock,
    startup_log: StartupLog,
) -> Iterator[Run]:
    """Yield the run in its directory, with its loader and its reporter at work."""
    ranks = parts.ranks
    loader = parts.task.build_loader(start.plan, parts.precision, parts.sharding, ranks.rank)
    configured_samples = _configured_samples(parts, start)
    if goes_back := any(automation.goes_back for automation in parts.automations):
        checkpoints.way_back_steps = WAY_BACK_STEPS
    with Reporter(_sinks(parts, directory)) as reporter, loader:
        startup_log.pass_on(reporter, directory.log)
        run = Run(
            summary=(summary := run_summary(parts, directory, model, start.plan)),
            model=model,
            loader=loader,
            axes=parts.facts.axes,
            schedule=schedule,
            journal=_journal(parts, loader),
            validators=parts.task.build_validators(directory, parts.precision.device, in_step=model.is_sharded),
            checkpoints=checkpoints,
            reporter=reporter,
            meter=parts.meter,
            frequencies=_frequencies(parts),
            budget_bytes=parts.budget_bytes,
            first_plan=parts.facts.plan,
            epochs=_epochs(parts, directory),
            batch_scaling=_batch_scaling(parts, configured_samples),
            last_resort=parts.task.last_resort(checkpointing_may_help=start.checkpointing_may_help),
            length_key=parts.task.length_key,
            closing=partial(_close, parts, directory),
            limit_bytes=parts.limit_bytes,
            memory_target_bytes=summary.memory_target_bytes,
            ranks=ranks,
            lock=lock,
            leaves_out_non_finite=goes_back,
            noise_every=_noise_every(parts),
        )
        # Building has drawn random numbers; training starts from the seed, whatever the parts drew.
        seed_rank(parts.loaded.options.manual_seed, ranks.rank)
        yield run


def _close(parts: RunParts, directory: RunDirectory, progress: Progress) -> Sequence[tuple[str, str]]:
    """Have the first rank write what a run leaves behind, and return lines of its end; every rank must ask."""
    with parts.task.gathered_weights():
        return parts.task.finish(directory, progress) if parts.ranks.is_first else ()


def _configured_samples(parts: RunParts, start: WarmStart) -> int:
    """Return the samples of a step of the option file, on all ranks."""
    if not parts.task.rates_follow_plans:
        return parts.sharding.total(start.configured_samples)
    return round(parts.sharding.equivalent_ranks * parts.task.train_set.mean_samples(parts.facts.plan))


def _frequencies(parts: RunParts) -> Frequencies:
    task = parts.task
    return Frequencies(
        validate=task.validates_every,
        save=parts.settings.saves_every,
        best_metric=task.best_metric,
        validates_epochs=task.validates_epochs,
        saves_epochs=parts.settings.saves_epochs,
        validates_end=task.validates_end,
    )


def _epochs(parts: RunParts, directory: RunDirectory) -> Epochs:
    def at_end(epoch: int, progress: Progress) -> None:
        with parts.task.gathered_weights() if parts.task.writes_epochs else nullcontext():
            if parts.ranks.is_first:
                parts.task.at_epoch_end(directory, epoch, progress)

    return Epochs(len(parts.task.train_set), at_end)


def _journal(parts: RunParts, loader: DynamicDataLoader) -> DecisionJournal:
    controls = Controls(loader, parts.settings.max_norm)
    return DecisionJournal(controls, parts.automations if parts.ranks.is_first else (), parts.ranks)


def _batch_scaling(parts: RunParts, configured_samples: int) -> BatchScaling:
    """Return how rates follow batches; what grows by the gradient's noise takes a rate of twice its batch at most."""
    rule, by_plan = parts.task.rate_scaling, parts.task.rates_follow_plans
    if rule != "sqrt" or not _noise_every(parts):
        return BatchScaling(rule, configured_samples, by_plan=by_plan)
    logger.info("lr_scaling: sqrt follows a batch that goodput makes larger up to twice the option file's, no further")
    return BatchScaling(rule, configured_samples, MOST_SQRT, by_plan)


def _noise_every(parts: RunParts) -> int:
    return AMONG_RANKS if any(one.noise is not None for one in controllers_of(parts.automations)) else 0


def _sinks(parts: RunParts, directory: RunDirectory) -> Sequence[Sink]:
    if not parts.ranks.is_first:
        return ()
    settings, name = parts.settings, parts.loaded.options.name
    every = settings.prints_every
    sinks = default_sinks(directory, every, tensorboard=settings.has_curves)
    curves = next((sink for sink in sinks if isinstance(sink, TensorBoard)), None)
    trackers = tracker_sinks(settings.trackers, directory, settings.root, name, every)
    # What a task adds to curves, and says of the end, comes before these end.
    return [*parts.task.sinks(directory, curves), *sinks, *trackers]


def _write_metadata(run: Run, parts: RunParts, start: WarmStart, directory: RunDirectory) -> None:
    """Write what later commands read of the run besides its logs; where that fails, all ranks are to hear of it."""
    configured = run.batch_scaling.configured_samples, start.configured_samples
    steps, world_size = run.progress.steps, parts.ranks.world_size
    keep_sets(directory, parts.task.datasets, steps)
    write_run_metadata(
        directory, parts.resolved, parts.task.train_set, configured, steps, world_size, run.schedule.step
    )
    parts.task.keep(directory)
    keep_forecast(directory, start.forecast, parts.limit_bytes, parts.precision.device)
