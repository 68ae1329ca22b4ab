"""From options to a run: what is built, in the order it is built."""

import logging
import os
from collections.abc import Iterator, Mapping
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
from trainauto.assembly.keeping import changed_options, keep_options, plan_started_with
from trainauto.assembly.model import build_model, build_network, build_schedule, choose_precision, run_length
from trainauto.assembly.placing import component, placed
from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import RunFacts
from trainauto.core.plan import Plan
from trainauto.core.plugins import import_installed_plugins, import_plugin
from trainauto.core.reports import RunSummary
from trainauto.data import Survey
from trainauto.engine.checkpoint import Checkpoints
from trainauto.engine.controls import Controls
from trainauto.engine.random_state import seed_everything
from trainauto.engine.run import Frequencies, Run
from trainauto.memory.meter import MemoryMeter
from trainauto.models.base_model import BaseModel
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
def build_run(loaded: LoadedOptions, *, auto_resume: bool = False) -> Iterator[Run]:
    """Build the run an option file describes, and take it down afterwards.

    Everything that can be wrong is found before the run directory is made.

    Args:
        loaded: checked options, with their places in the file.
        auto_resume: go on with the latest run of this name, if there is one.

    Raises:
        InputError: options, plugins, data or weights cannot be used.
        CheckpointError: the run to go on with is damaged or of another network.
    """
    options = loaded.options
    with HeldMessages() as held:
        _load_plugins(loaded)
        precision = choose_precision(loaded)
        seed_everything(options.manual_seed)
        network = build_network(loaded)
        train_set, surveys = build_train_set(loaded, network)
        val_sets = build_val_sets(loaded, network, surveys)
        axes = build_axes(loaded, network, surveys[train_set.name])
        plan = first_plan(options)
        model = build_model(loaded, network, precision)
        schedule = build_schedule(loaded, model)
        automations = _automations(loaded, RunFacts(axes, plan, options.scale))
        metrics = build_metrics(loaded)

        directory, checkpoints, checkpoint = _run_directory(options, auto_resume=auto_resume)
        sinks = standard_sinks(directory, options.logger.print_freq, tensorboard=options.logger.use_tb_logger)
        with Reporter(sinks) as reporter, build_loader(options, train_set, plan, precision) as loader:
            held.pass_on(reporter)
            run = Run(
                summary=_summary(loaded, directory, model, plan, precision, surveys),
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
                meter=MemoryMeter(precision.device),
                frequencies=_frequencies(options),
                budget_bytes=options.memory.budget_bytes,
            )
            _start_or_go_on(run, loaded, directory, checkpoint)
            yield run


def _run_directory(options: Options, *, auto_resume: bool) -> tuple[RunDirectory, Checkpoints, Path | None]:
    """Return the folder of the run, its checkpoints, and the one to go on from."""
    root = Path(options.path.experiments_root)
    earlier = RunDirectory.current(root, options.name) if auto_resume else None
    directory = earlier or RunDirectory.create(root, options.name)
    checkpoints = Checkpoints(directory.checkpoints, options.logger.keep_checkpoints)
    checkpoint = checkpoints.latest()
    if earlier:
        directory.rewind(int(checkpoint.name.removeprefix("step_")) if checkpoint else 0)
    return directory, checkpoints, checkpoint


def _start_or_go_on(run: Run, loaded: LoadedOptions, directory: RunDirectory, checkpoint: Path | None) -> None:
    # Building has drawn random numbers; training starts from the seed, whatever the parts drew.
    seed_everything(loaded.options.manual_seed)
    if checkpoint:
        run.restore(checkpoint)
    for line in changed_options(directory, loaded.options):
        logger.warning("changed since this run began: %s", line)
    plan = first_plan(loaded.options)
    if checkpoint and plan_started_with(directory) != plan:
        run.loader.update_plan(plan)
    keep_options(directory, loaded, run.progress.steps)


def _load_plugins(loaded: LoadedOptions) -> None:
    import_installed_plugins()
    for position, name in enumerate(loaded.options.plugins):
        with placed(loaded, ("plugins", position)):
            import_plugin(name, [loaded.path.resolve().parent, Path.cwd()])


def _automations(loaded: LoadedOptions, facts: RunFacts) -> list[Automation]:
    built: list[Automation] = []
    for name, switch in loaded.options.training_automations.active.items():
        path = ("training_automations", name)
        automation = component(loaded, AUTOMATIONS, path, name, switch.arguments)()
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
        network=f"{options.network_g.type} x{options.scale}",
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
