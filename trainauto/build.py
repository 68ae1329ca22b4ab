"""From options to a run: what is built, in the order it is built."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from trainauto.assembly.data import (
    build_axes,
    build_loader,
    build_metrics,
    build_train_set,
    build_val_sets,
    build_validator,
    first_plan,
)
from trainauto.assembly.foreknowledge import foretell
from trainauto.assembly.keeping import changed_options, keep_foresight, keep_options
from trainauto.assembly.memory import controller_defaults, preset_for, with_memory
from trainauto.assembly.model import build_model, build_network, build_schedule, choose_precision, run_length
from trainauto.assembly.placing import component, placed
from trainauto.assembly.plugins import load_plugins
from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.core.reports import RunSummary
from trainauto.data import DynamicDataset, Survey
from trainauto.engine.checkpoint import Checkpoints
from trainauto.engine.controls import Controls
from trainauto.engine.last_resort import LastResort
from trainauto.engine.random_state import seed_everything
from trainauto.engine.run import Frequencies, Run
from trainauto.memory.meter import MemoryMeter
from trainauto.models.base_model import BaseModel
from trainauto.optim.batch_scaling import BatchScaling
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Options
from trainauto.reporting.held import HeldMessages
from trainauto.reporting.reporter import Reporter
from trainauto.reporting.run_directory import RunDirectory
from trainauto.reporting.standard import standard_sinks

logger = logging.getLogger(__name__)

GIB = 1024**3


@contextmanager
def build_run(
    loaded: LoadedOptions,
    *,
    auto_resume: bool = False,
    check_samples: Callable[[DynamicDataset], None] = lambda _dataset: None,
) -> Iterator[Run]:
    """Build the run an option file describes, and take it down afterwards.

    Everything that can be wrong is found before the run directory is made.

    Args:
        loaded: checked options, with their places in the file.
        auto_resume: go on with the latest run of this name, if there is one.
        check_samples: raises where the training set is not what it is to be.

    Raises:
        InputError: options, plugins, data or weights cannot be used.
        CheckpointError: the run to go on with is damaged or of another network.
    """
    options = loaded.options
    with HeldMessages() as held:
        earlier, checkpoints = _earlier_run(options) if auto_resume else (None, None)
        checkpoint = checkpoints.latest() if checkpoints else None
        load_plugins(loaded)
        precision = choose_precision(loaded)
        budget_bytes = options.memory.budget_bytes(precision.device.type)
        seed_everything(options.manual_seed)
        # The weights of a checkpoint replace pretrained ones, which need not exist any more.
        network = build_network(loaded, pretrained=checkpoint is None)
        train_set, surveys = build_train_set(loaded, network)
        check_samples(train_set)
        val_sets = build_val_sets(loaded, network, surveys)
        axes = build_axes(loaded, network, surveys[train_set.name])
        plan = first_plan(options)
        model = build_model(loaded, network, precision, pretrained=checkpoint is None)
        schedule = build_schedule(loaded, model)
        automations = _automations(loaded, RunFacts(axes, plan, options.scale), precision.device)
        for automation in automations:
            axes = automation.floored(axes, plan)
        metrics = build_metrics(loaded)
        meter = MemoryMeter(precision.device)
        limit_bytes = budget_bytes or meter.limit_bytes
        known = foretell(
            loaded,
            network,
            RunFacts(axes, plan, options.scale),
            precision.device,
            limit_bytes,
            automations,
            calibrated=options.memory.calibration,
        )

        directory = earlier or _new_run(loaded)
        checkpoints = checkpoints or Checkpoints(directory.checkpoints, options.logger.keep_checkpoints)
        sinks = standard_sinks(directory, options.logger.print_freq, tensorboard=options.logger.use_tb_logger)
        with Reporter(sinks) as reporter, build_loader(options, train_set, known.plan, precision) as loader:
            held.pass_on(reporter)
            summary = _summary(loaded, directory, model, known.plan, precision, surveys)
            run = Run(
                summary=with_memory(summary, limit_bytes, automations),
                model=model,
                loader=loader,
                axes=axes,
                schedule=schedule,
                controls=Controls(loader, options.train.grad_clip),
                automations=automations,
                validators=[
                    build_validator(loaded, dataset, metrics, network, precision.device, directory)
                    for dataset in val_sets
                ],
                checkpoints=checkpoints,
                reporter=reporter,
                meter=meter,
                frequencies=_frequencies(options),
                budget_bytes=budget_bytes,
                first_plan=plan,
                batch_scaling=BatchScaling(options.train.lr_scaling, known.configured_samples),
                last_resort=LastResort(allowed=options.memory.allow_gradient_checkpointing),
            )
            # Building has drawn random numbers; training starts from the seed, whatever the parts drew.
            seed_everything(options.manual_seed)
            if earlier:
                _go_on(run, directory, checkpoint, changed_options(directory, options))
            keep_options(directory, loaded, train_set, known.configured_samples, run.progress.steps)
            keep_foresight(directory, known.foresight, limit_bytes, precision.device)
            try:
                yield run
            finally:
                known.keep()


def _earlier_run(options: Options) -> tuple[RunDirectory | None, Checkpoints | None]:
    """Return the latest run of this name and its checkpoints, where there is one."""
    directory = RunDirectory.current(Path(options.path.experiments_root), options.name)
    if directory is None:
        return None, None
    return directory, Checkpoints(directory.checkpoints, options.logger.keep_checkpoints)


def _new_run(loaded: LoadedOptions) -> RunDirectory:
    with placed(loaded, ("path", "experiments_root")):
        try:
            return RunDirectory.create(Path(loaded.options.path.experiments_root), loaded.options.name)
        except OSError as error:
            raise InputError(f"the run directory cannot be made: {error}") from error


def _go_on(run: Run, directory: RunDirectory, checkpoint: Path | None, changes: Sequence[str]) -> None:
    """Take up the run where its checkpoint is, under the options of now; the logs are cut only when that has worked."""
    if checkpoint:
        run.restore(checkpoint)
    directory.rewind(run.progress.steps)
    for line in changes:
        logger.warning("changed since this run was last started: %s", line)
    if changes and run.controls.stop_reason:
        logger.warning(
            "the run had been stopped (%s); its options have changed, so it goes on", run.controls.stop_reason
        )
        run.controls.stop_reason = ""


def _automations(loaded: LoadedOptions, facts: RunFacts, device: torch.device) -> list[Automation]:
    for name in loaded.options.training_automations.model_extra or {}:
        with placed(loaded, ("training_automations", name)):
            AUTOMATIONS.get(name)  # a misspelt name would switch nothing off
    active = loaded.options.training_automations.active
    preset = preset_for(device, loaded.options.memory.budget_bytes(device.type)) if active else None
    defaults = controller_defaults(preset, facts.plan)
    built: list[Automation] = []
    for name, switch in active.items():
        path = ("training_automations", name)
        automation = component(loaded, AUTOMATIONS, path, name, switch.arguments, defaults)()
        with placed(loaded, path):
            automation.check(facts)
        built.append(automation)
    return sorted(built, key=lambda automation: automation.priority)


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
    surveys: Mapping[str, Survey],
) -> RunSummary:
    options = loaded.options
    total, unit = run_length(options)
    train = options.datasets.train
    against = f" against {options.network_d.type}" if options.network_d else ""
    facts = (
        ("smallest", f"image of {surveys[train.name].smallest_lq_px} px (of the input)"),
        ("workers", f"{train.num_worker_per_gpu}, looking {train.lookahead} batches ahead"),
        ("seed", f"{options.manual_seed}, {torch.get_num_threads()} threads"),
        ("torch", torch.__version__),
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
        precision=str(precision),
        facts=facts,
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":  # pragma: no cuda
        properties = torch.cuda.get_device_properties(device)
        return f"{device} {properties.name} ({properties.total_memory / GIB:.1f} GiB)"
    return f"cpu ({os.cpu_count()} cores)"
