"""What a run says of itself before its first step."""

import os

import torch

from trainauto.builders.memory import preset_for, with_memory
from trainauto.builders.run_parts import RunParts
from trainauto.builders.trackers import tracker_words
from trainauto.core.plan import Plan
from trainauto.core.run_events import RunSummary
from trainauto.core.units import GIB
from trainauto.core.words import counted
from trainauto.models.base_model import BaseModel
from trainauto.storage.run_directory import RunDirectory


def run_summary(parts: RunParts, directory: RunDirectory, model: BaseModel, plan: Plan) -> RunSummary:
    """Return what is known of a run before its first step."""
    options, device, task = parts.loaded.options, parts.precision.device, parts.task
    total, unit = task.length
    summary = RunSummary(
        name=options.name,
        run_directory=str(directory.path),
        page=str(directory.dashboard),
        device=device_name(device),
        network=task.network_words,
        parameters=sum(
            p.numel() for network in model.networks.values() for p in network.parameters() if p.requires_grad
        ),
        plan=plan,
        total=total,
        unit=unit,
        samples={name: scan.samples for name, scan in task.scans.items()},
        train_set=task.train_set.name,
        smallest_px=task.smallest_px,
        precision=str(parts.precision),
        facts=_facts(parts, directory),
    )
    preset = preset_for(device, parts.budget_bytes)
    return with_memory(summary, parts.limit_bytes, parts.automations, parts.facts.axes, preset)


def _facts(parts: RunParts, directory: RunDirectory) -> tuple[tuple[str, str], ...]:
    """Return the further lines of the start."""
    options, settings = parts.loaded.options, parts.settings
    threads, (workers, lookahead) = torch.get_num_threads(), options.loading
    processes = counted(threads, "thread"), counted(workers, "worker"), f"{counted(lookahead, 'batch')} ahead"
    return (
        *_rank_words(parts),
        *parts.task.facts(),
        ("seed", f"{options.manual_seed}, torch {torch.__version__}, {', '.join(processes)}"),
        ("curves", str(directory.tensorboard) if settings.has_curves else ""),
        ("trackers", tracker_words(settings.trackers, settings.root)),
    )


def _rank_words(parts: RunParts) -> tuple[tuple[str, str], ...]:
    """Say how ranks train together; on one, that what is for several has no effect."""
    chosen, count = parts.loaded.options.distributed, parts.ranks.world_size
    meeting = "fully_shard" if chosen.fully_shard else "ddp_overlap" if chosen.ddp_overlap else ""
    if count == 1:
        return (("ranks", f"1: {meeting} has no effect without torchrun"),) if meeting else ()
    ways = {"fully_shard": "weights are sharded (fully_shard)", "ddp_overlap": "gradients overlap (ddp_overlap)"}
    shares = ", ".join(f"{weight:.3g}" for weight in parts.sharding.weights)
    batches = "equal batches" if parts.sharding.is_equal else f"batches by memory, in shares of {shares}"
    return (("ranks", ", ".join(filter(None, [str(count), batches, ways.get(meeting, "")]))),)


def device_name(device: torch.device) -> str:
    """Return what a person calls the device."""
    if device.type == "cuda":  # pragma: no cuda
        properties = torch.cuda.get_device_properties(device)
        return f"{device} {properties.name} ({properties.total_memory / GIB:.1f} GiB)"
    return f"cpu ({counted(os.cpu_count() or 1, 'core')})"
