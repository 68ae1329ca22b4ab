"""What a run consists of before its directory is there: everything wrong with options and data is found here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from trainauto.builders.automations import build_automations
from trainauto.builders.data import (
    MetricsByName,
    build_axes,
    build_metrics,
    build_train_set,
    build_val_sets,
    first_plan,
)
from trainauto.builders.distributed_setup import check_same_everywhere, limit_and_sharding
from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.model import build_network, choose_precision, warn_of_short_run
from trainauto.core.automation import Automation
from trainauto.core.decisions import RunFacts
from trainauto.core.sharding import SampleSharding
from trainauto.data import DatasetScan, DynamicDataset
from trainauto.distributed.communicator import Communicator
from trainauto.engine.random_state import seed_everything
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions


@dataclass(frozen=True)
class RunParts:
    """What a run consists of that is there before its directory is.

    Attributes:
        loaded: the option file.
        ranks: who trains it together.
        precision: number format, and the device.
        network: the generator.
        train_set: what is trained on.
        val_sets: what is validated on.
        scans: of all sets, by name.
        facts: the axes and the first plan, as automations get them.
        automations: those that are switched on.
        resolved: the options as they came out, for config.json.
        metrics: of validations, by name.
        meter: reads memory.
        budget_bytes: what the option file allows this rank; ``None`` without a budget.
        limit_bytes: memory that plans are made for.
        sharding: how samples are divided among ranks.
    """

    loaded: LoadedOptions
    ranks: Communicator
    precision: Precision
    network: nn.Module
    train_set: DynamicDataset
    val_sets: Sequence[DynamicDataset]
    scans: Mapping[str, DatasetScan]
    facts: RunFacts
    automations: Sequence[Automation]
    resolved: LoadedOptions
    metrics: MetricsByName
    meter: MemoryMeter
    budget_bytes: int | None
    limit_bytes: int | None
    sharding: SampleSharding


def build_parts(
    loaded: LoadedOptions, ranks: Communicator, *, pretrained: bool, check_samples: Callable[[DynamicDataset], None]
) -> RunParts:
    """Build what needs no directory; everything that can be wrong with options and data is found here."""
    options = loaded.options
    load_plugins(loaded)
    precision = choose_precision(loaded, ranks)
    budget_bytes = options.memory.budget_bytes(precision.device.type)
    seed_everything(options.manual_seed)
    warn_of_short_run(options, ranks.world_size)
    network = build_network(loaded, pretrained=pretrained)
    train_set, scans = build_train_set(loaded, network)
    check_samples(train_set)
    val_sets = build_val_sets(loaded, network, scans)
    check_same_everywhere(ranks, loaded, [train_set, *val_sets], scans)
    axes = build_axes(loaded, network, scans[train_set.name])
    plan = first_plan(options)
    facts = RunFacts(axes, plan, world_size=ranks.world_size)
    automations, resolved = build_automations(loaded, facts, precision.device)
    for automation in automations:
        axes = automation.apply_minima(axes, plan)
    metrics = build_metrics(loaded)
    meter = MemoryMeter(precision.device)
    limit_bytes, sharding = limit_and_sharding(loaded, ranks, budget_bytes or meter.limit_bytes)
    return RunParts(
        loaded=loaded,
        ranks=ranks,
        precision=precision,
        network=network,
        train_set=train_set,
        val_sets=val_sets,
        scans=scans,
        facts=replace(facts, axes=axes),
        automations=automations,
        resolved=resolved,
        metrics=metrics,
        meter=meter,
        budget_bytes=budget_bytes,
        limit_bytes=limit_bytes,
        sharding=sharding,
    )
