"""What a run consists of before its directory is there: everything wrong with options and data is found here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainauto.builders.automations import build_automations
from trainauto.builders.distributed_setup import check_same_everywhere, limit_and_sharding
from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.precision import choose_precision
from trainauto.builders.task_parts import TaskParts
from trainauto.core.automation import Automation
from trainauto.core.decisions import RunFacts
from trainauto.core.sharding import SampleSharding
from trainauto.distributed.communicator import Communicator
from trainauto.engine.random_state import seed_everything
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions, RunSettings

BuildTask = Callable[[Precision, Communicator], TaskParts]


@dataclass(frozen=True)
class RunParts:
    """What a run consists of that is there before its directory is.

    Attributes:
        loaded: the option file.
        settings: how the run is kept and told of.
        ranks: who trains it together.
        precision: number format, and the device.
        task: network, samples and validation.
        facts: the axes and the first plan, as automations get them.
        automations: those that are switched on.
        resolved: the options as they came out, for config.json.
        meter: reads memory.
        budget_bytes: what the option file allows this rank; ``None`` without a budget.
        limit_bytes: memory that plans are made for.
        sharding: how samples are divided among ranks.
    """

    loaded: LoadedOptions[FileOptions]
    settings: RunSettings
    ranks: Communicator
    precision: Precision
    task: TaskParts
    facts: RunFacts
    automations: Sequence[Automation]
    resolved: LoadedOptions[FileOptions]
    meter: MemoryMeter
    budget_bytes: int | None
    limit_bytes: int | None
    sharding: SampleSharding


def build_parts(
    loaded: LoadedOptions[FileOptions],
    settings: RunSettings,
    build_task: BuildTask,
    ranks: Communicator,
    *,
    repeats: bool = False,
) -> RunParts:
    """Build what needs no directory; everything that can be wrong with options and data is found here.

    Args:
        loaded: the option file.
        settings: how the run is kept and told of.
        build_task: builds what is specific to its task, from the precision and the ranks.
        ranks: who trains it together.
        repeats: it repeats a logged run, which decides in place of the automations that a task has by itself.
    """
    options = loaded.options
    load_plugins(loaded)
    precision = choose_precision(loaded, ranks)
    budget_bytes = options.memory.budget_bytes(precision.device.type)
    seed_everything(options.manual_seed)
    task = build_task(precision, ranks)
    check_same_everywhere(ranks, loaded, task.datasets, task.scans)
    axes, plan = task.axes(), task.first_plan()
    total, unit = task.length
    steps = total if unit == "steps" else None
    facts = RunFacts(axes, plan, world_size=ranks.world_size, steps=steps, metrics=task.measured())
    automations, resolved = build_automations(loaded if repeats else task.automations(), facts, precision.device)
    for automation in automations:
        axes = automation.apply_minima(axes, plan)
    meter = MemoryMeter(precision.device)
    limit_bytes, sharding = limit_and_sharding(loaded, ranks, budget_bytes or meter.limit_bytes)
    return RunParts(
        loaded=loaded,
        settings=settings,
        ranks=ranks,
        precision=precision,
        task=task,
        facts=replace(facts, axes=axes),
        automations=automations,
        resolved=resolved,
        meter=meter,
        budget_bytes=budget_bytes,
        limit_bytes=limit_bytes,
        sharding=sharding,
    )
