"""From options to a run: what is built, in the order it is built."""

import gc
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.builders.automations import build_automations
from trainauto.builders.data import (
    build_axes,
    build_loader,
    build_metrics,
    build_train_set,
    build_val_sets,
    build_validator,
    first_plan,
)
from trainauto.builders.distributed_setup import (
    check_same_everywhere,
    checkpoints_of,
    earlier_run,
    limit_and_sharding,
    new_run,
    parallel_of,
)
from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.memory import preset_for, with_memory
from trainauto.builders.model import (
    build_model,
    build_network,
    build_schedule,
    choose_precision,
    load_compiler,
    run_length,
)
from trainauto.core.decisions import RunFacts
from trainauto.core.errors import NetworkMismatchError
from trainauto.core.plan import Plan
from trainauto.core.run_events import RunSummary
from trainauto.core.worker_process import WorkerProcess
from trainauto.data import DatasetScan, DynamicDataset
from trainauto.distributed.communicator import SINGLE_PROCESS, Communicator
from trainauto.engine.checkpoint import Best
from trainauto.engine.checkpointing_fallback import CheckpointingFallback
from trainauto.engine.controls import Controls
from trainauto.engine.journal import DecisionJournal
from trainauto.engine.random_state import seed_everything, seed_rank
from trainauto.engine.run import Frequencies, Run
from trainauto.forecast.memory_forecast import keep_forecast
from trainauto.forecast.warm_start import foretell, foretold, kind_of_run
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.models.base_model import BaseModel
from trainauto.optim.batch_scaling import BatchScaling
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Options
from trainauto.reporting.default_sinks import default_sinks
from trainauto.reporting.reporter import Reporter
from trainauto.reporting.sinks import Sink
from trainauto.reporting.startup_log import StartupLog
from trainauto.reporting.step_stats import counted
from trainauto.storage.resumes import CHANGED
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_lock import RunLock
from trainauto.storage.run_log import validated_sets
from trainauto.storage.run_metadata import changed_options, configured_samples, write_run_metadata

logger = logging.getLogger(__name__)

GIB = 1024**3


@contextmanager
def build_run(
    loaded: LoadedOptions,
    *,
    auto_resume: bool = False,
    restarted: bool = False,
    check_samples: Callable[[DynamicDataset], None] = lambda _dataset: None,
    ranks: Communicator = SINGLE_PROCESS,
    tracer: WorkerProcess | None = None,
) -> Iterator[Run]:
    """Build the run an option file describes, and take it down afterwards.

    Everything that can be wrong is found before the run directory is made.

    Args:
        loaded: checked options, with their places in the file.
        auto_resume: go on with the latest run of this name, if there is one.
        restarted: torchrun has started the ranks again: go on with the latest run if it is one of this launch.
        check_samples: raises where the training set is not what it is to be.
        ranks: who trains it together. The first of them traces, decides, reports and writes.
        tracer: a process that traces, started before; it is ended here.

    Raises:
        InputError: options, plugins, data or weights cannot be used, ranks were given different ones, or another
            process trains the run.
        NetworkMismatchError: the run to go on with is of another network.
        CheckpointError: it cannot be read.
    """
    options = loaded.options
    with StartupLog() as held, RunLock() as lock:
        earlier, checkpoints, checkpoint = earlier_run(
            options, ranks, lock, auto_resume=auto_resume, restarted=restarted
        )
        load_plugins(loaded)
        precision = choose_precision(loaded, ranks)
        budget_bytes = options.memory.budget_bytes(precision.device.type)
        seed_everything(options.manual_seed)
        # The weights of a checkpoint replace pretrained ones, which need not exist any more.
        network = build_network(loaded, pretrained=checkpoint is None)
        train_set, surveys = build_train_set(loaded, network)
        check_samples(train_set)
        val_sets = build_val_sets(loaded, network, surveys)
        check_same_everywhere(ranks, loaded, [train_set, *val_sets], surveys)
        axes = build_axes(loaded, network, surveys[train_set.name])
        plan = first_plan(options)
        facts = RunFacts(axes, plan, options.scale, ranks.world_size)
        automations, resolved = build_automations(loaded, facts, precision.device)
        for automation in automations:
            axes = automation.apply_minima(axes, plan)
        facts = replace(facts, axes=axes)
        metrics = build_metrics(loaded)
        meter = MemoryMeter(precision.device)
        limit_bytes, sharding = limit_and_sharding(loaded, ranks, budget_bytes or meter.limit_bytes)
        steered = any(isinstance(one, DynamicBatchSizeOptimizer) for one in automations)
        tell = partial(
            foretell,
            loaded,
            kind_of_run(loaded, network, precision.device, ranks.world_size) if steered and ranks.is_first else {},
            facts,
            precision.device,
            limit_bytes,
            automations,
            calibrated=options.memory.calibration,
            tracer=tracer,
        )
        with ThreadPoolExecutor(1) as beside:
            # The process that traces has loaded what it needs by now; here torch loads its compiler meanwhile.
            foreknowledge = beside.submit(tell) if ranks.is_first else None
            try:
                load_compiler()
                model = build_model(
                    loaded, network, precision, pretrained=checkpoint is None, parallel=parallel_of(options, ranks)
                )
                schedule = build_schedule(loaded, model)
            except BaseException:
                if tracer is not None:
                    tracer.end()  # nobody wants its answers now
                raise
        known = foretold(ranks, facts.plan, foreknowledge)
        if tracer is not None:
            tracer.end()  # what an earlier run has learned may have made it idle
        configured = sharding.total(known.configured_samples), known.configured_samples
        directory = earlier or new_run(loaded, ranks, lock)
        checkpoints = checkpoints or checkpoints_of(directory, options, ranks)
        sinks: Sequence[Sink] = ()
        if ranks.is_first:
            sinks = default_sinks(directory, options.logger.print_freq, tensorboard=options.logger.use_tb_logger)
        loader = build_loader(options, train_set, known.plan, precision, sharding, ranks.rank)
        with Reporter(sinks) as reporter, loader:
            held.pass_on(reporter)
            summary = _summary(loaded, directory, model, known.plan, precision, surveys, ranks)
            run = Run(
                summary=with_memory(
                    summary, limit_bytes, automations, axes, preset_for(precision.device, budget_bytes)
                ),
                model=model,
                loader=loader,
                axes=axes,
                schedule=schedule,
                journal=DecisionJournal(
                    Controls(loader, options.train.grad_clip), automations if ranks.is_first else (), ranks
                ),
                validators=[
                    build_validator(
                        loaded, dataset, metrics, network, precision.device, directory, in_step=model.is_sharded
                    )
                    for dataset in val_sets
                ],
                checkpoints=checkpoints,
                reporter=reporter,
                meter=meter,
                frequencies=_frequencies(options),
                budget_bytes=budget_bytes,
                first_plan=plan,
                batch_scaling=BatchScaling(options.train.lr_scaling, configured[0]),
                checkpointing_fallback=CheckpointingFallback(allowed=options.memory.allow_gradient_checkpointing),
                limit_bytes=limit_bytes,
                ranks=ranks,
                lock=lock,
            )
            # Building has drawn random numbers; training starts from the seed, whatever the parts drew.
            seed_rank(options.manual_seed, ranks.rank)
            if earlier:
                # The first rank reads and tells, for it is about to write these files anew.
                changes = ranks.broadcast_object(partial(changed_options, directory, resolved, ranks.world_size))
                samples = ranks.broadcast_object(partial(configured_samples, directory, *configured))
                run.batch_scaling = replace(run.batch_scaling, configured_samples=samples)
                _go_on(run, directory, checkpoint, changes)
            if ranks.is_first:
                configured = run.batch_scaling.configured_samples, known.configured_samples
                write_run_metadata(directory, resolved, train_set, configured, run.progress.steps, ranks.world_size)
                keep_forecast(directory, known.foresight, limit_bytes, precision.device)
            try:
                yield run
            finally:
                known.keep()
                gc.unfreeze()


def _go_on(run: Run, directory: RunDirectory, checkpoint: Path | None, changes: Sequence[str]) -> None:
    """Take up the run where its checkpoint is, under the options of now; the logs are cut only when that has worked."""
    if checkpoint:
        try:
            run.restore(checkpoint)
        except NetworkMismatchError as error:
            raise _explained(error, changes) from error
    if run.ranks.is_first:
        directory.rewind(run.progress.steps)
    every, step = run.frequencies.validate, run.progress.steps
    # Under another interval nobody can tell whether it was due; after the last step it always was.
    is_same = not any(line.startswith("val.val_freq:") for line in changes)
    if every and step and ((is_same and step % every == 0) or run.finished):
        made = run.ranks.broadcast_object(lambda: _made_validations(run, directory))
        run.missed = [one for one in run.validators if one.dataset.name not in made]
    for line in changes:
        logger.warning("%s%s", CHANGED, line)
    if changes and run.controls.stop_reason:
        logger.warning(
            "the run had been stopped (%s); its options have changed, so it goes on", run.controls.stop_reason
        )
        run.controls.stop_reason = ""


def _made_validations(run: Run, directory: RunDirectory) -> list[str]:
    """Return the sets that were validated after the last step; the score of the first one is noted, if nobody has."""
    step, metric = run.progress.steps, run.frequencies.best_metric
    made = validated_sets(directory, step)
    first = run.validators[0].dataset.name if run.validators else ""
    with suppress(KeyError, TypeError, ValueError):  # validated by another metric, or by none
        score = Best(step, float(made[first]["metrics"][metric]), f"{first}/{metric}")
        run.checkpoints.note_score(score, better_is_higher=made[first]["better_is_higher"][metric])
    return sorted(made)


def _explained(error: NetworkMismatchError, changes: Sequence[str]) -> NetworkMismatchError:
    """Return the error with what was changed since, as far as networks follow from it, and what to do."""
    of_networks = [line for line in changes if line.startswith(("network_", "scale", "model_type", "plugins"))]
    changed = "".join(f"\n  changed since: {line}" for line in of_networks)
    return NetworkMismatchError(
        f"{error}{changed}\n  Nothing was trained. Take that back, or leave --auto_resume out: a run of its own begins,"
        " from these weights with path: pretrain_network_g (strict_load_g: false takes what fits)."
    )


def _frequencies(options: Options) -> Frequencies:
    best = options.logger.best_metric or next(iter(options.val.metrics), None)
    return Frequencies(
        options.val.val_freq if options.val.val_enabled else 0, options.logger.save_checkpoint_freq, best
    )


def _summary(
    loaded: LoadedOptions,
    directory: RunDirectory,
    model: BaseModel,
    plan: Plan,
    precision: Precision,
    surveys: Mapping[str, DatasetScan],
    ranks: Communicator,
) -> RunSummary:
    options = loaded.options
    total, unit = run_length(options)
    train = options.datasets.train
    against = f" against {options.network_d.type}" if options.network_d else ""
    together = (
        (("ranks", f"{ranks.world_size}, batches by {options.distributed.batches}"),) if ranks.world_size > 1 else ()
    )
    threads, workers = torch.get_num_threads(), train.num_worker_per_gpu
    processes = counted(threads, "thread"), counted(workers, "worker"), f"{counted(train.lookahead, 'batch')} ahead"
    facts = (
        *together,
        ("seed", f"{options.manual_seed}, torch {torch.__version__}, {', '.join(processes)}"),
        ("curves", str(directory.tensorboard) if options.logger.use_tb_logger else ""),
    )
    return RunSummary(
        name=options.name,
        run_directory=str(directory.path),
        device=_device_name(precision.device),
        network=f"{options.network_g.type} x{options.scale}{against}",
        parameters=sum(
            p.numel() for network in model.networks.values() for p in network.parameters() if p.requires_grad
        ),
        plan=plan,
        total=total,
        unit=unit,
        samples={name: survey.samples for name, survey in surveys.items()},
        train_set=train.name,
        smallest_px=surveys[train.name].smallest_lq_px,
        precision=str(precision),
        facts=facts,
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":  # pragma: no cuda
        properties = torch.cuda.get_device_properties(device)
        return f"{device} {properties.name} ({properties.total_memory / GIB:.1f} GiB)"
    return f"cpu ({counted(os.cpu_count() or 1, 'core')})"
