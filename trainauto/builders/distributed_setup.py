"""What ranks settle before a run: that they have the same one, who may use how much memory, and where it is kept."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import remove_leftovers
from trainauto.core.sharding import SampleSharding
from trainauto.data import DatasetScan, DynamicDataset
from trainauto.distributed.communicator import Communicator
from trainauto.distributed.rendezvous import launch_of_now
from trainauto.engine.checkpoint import Checkpoints
from trainauto.models.parallel import Parallel, overlapped, sharded
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions, RunSettings
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_lock import RunLock
from trainauto.storage.run_metadata import names_sha256, was_launched_as

OF_ONE_MACHINE: Any = {"memory": {"budget", "cpu_budget"}, "num_threads": True}
"""Options in which ranks may differ."""


def check_same_everywhere(
    ranks: Communicator,
    loaded: LoadedOptions[FileOptions],
    datasets: Sequence[DynamicDataset],
    scans: Mapping[str, DatasetScan],
) -> None:
    """Refuse ranks that would train different things: other options, or other images under the same folder's name.

    Raises:
        InputError: names the first rank that differs from rank 0, and in what.
    """
    if ranks.world_size == 1:
        return
    options = loaded.options.model_dump_json(exclude=OF_ONE_MACHINE)
    facts = ranks.all_gather_object(
        {
            "options": hashlib.sha256(options.encode()).hexdigest(),
            **{
                f"samples ({dataset.name})": f"{names_sha256(dataset)} {scans[dataset.name].smallest_size} "
                + (dataset.identity() if dataset.checksums() else "")
                for dataset in datasets
            },
        }
    )
    for rank, rank_facts in enumerate(facts):
        for name, value in rank_facts.items():
            if value != facts[0][name]:
                advice = "All ranks need the same option file, arguments and data; only memory budgets may differ."
                raise InputError(Problem(f"rank {rank} has other {name} than rank 0", advice=advice))


def limit_and_sharding(
    loaded: LoadedOptions[FileOptions], ranks: Communicator, limit_bytes: int | None
) -> tuple[int | None, SampleSharding]:
    """Return the memory that plans are made for, and how samples are divided among ranks.

    With equal batches the smallest limit holds for all; where batches follow memory, plans speak of the largest rank.

    Raises:
        InputError: batches are to follow memory, and a rank does not know how much it may use.
    """
    if ranks.world_size == 1:
        return limit_bytes, SampleSharding()
    limits = [facts["limit"] for facts in ranks.all_gather_object({"limit": limit_bytes})]
    known_limits = [limit for limit in limits if limit is not None]
    if loaded.options.distributed.batches == "equal":
        return min(known_limits) if len(known_limits) == len(limits) else None, SampleSharding.equal(ranks.world_size)
    with locate_errors(loaded, ("distributed", "batches")):
        if any(
            "target_batch_size" in automation.arguments
            for automation in loaded.options.training_automations.active.values()
        ):
            message = "target_batch_size fixes the samples of a step, which `batches: memory` changes"
            raise InputError(Problem(message, advice="Set `batches: equal`, or remove target_batch_size."))
        if len(known_limits) < len(limits):
            advice = "Set a budget under `memory`, or set `batches: equal`."
            raise InputError(
                Problem("`batches: memory` needs a memory limit on every rank; one has none", advice=advice)
            )
    return max(known_limits), SampleSharding.by_memory(known_limits)


def parallel_of(options: FileOptions, ranks: Communicator) -> Parallel | None:
    """Return how the network becomes one of several ranks where they meet in its backward pass; ``None`` elsewhere."""
    chosen = options.distributed
    ranks.reduces_in_backward = ranks.world_size > 1 and (chosen.ddp_overlap or chosen.fully_shard)
    if not ranks.reduces_in_backward:
        return None
    return Parallel(sharded if chosen.fully_shard else overlapped)


def new_run(
    loaded: LoadedOptions[FileOptions], settings: RunSettings, ranks: Communicator, lock: RunLock
) -> RunDirectory:
    """Have the first rank make the run's folder and take it; return it."""

    def make() -> str:
        with locate_errors(loaded, settings.root_key):
            return str(new_folder(settings.root, settings.name, lock).path)

    return RunDirectory(Path(ranks.broadcast_object(make)))


def new_folder(root: Path, name: str, lock: RunLock) -> RunDirectory:
    """Make the folder of a new run and take it.

    Raises:
        InputError: it cannot be made.
    """
    try:
        made = RunDirectory.create(root, name)
        lock.take(made.path)
    except OSError as error:
        raise InputError(f"the run directory cannot be made: {error}") from error
    return made


def earlier_run(
    settings: RunSettings, ranks: Communicator, lock: RunLock, *, auto_resume: bool, restarted: bool
) -> tuple[RunDirectory | None, Checkpoints | None, Path | None]:
    """Return the run to resume, its checkpoints, and the newest of them, where there are such.

    Args:
        settings: of the run.
        ranks: all of them must ask.
        lock: the first rank takes the run's folder with it, before anything there is touched.
        auto_resume: it is the latest one of its name.
        restarted: it is that only if this launch has begun it, or resumed it.

    Raises:
        InputError: another process has the run, all its checkpoints are damaged, or this rank does not see them.
    """
    if not (auto_resume or restarted):
        return None, None, None
    refused: list[InputError] = []
    looked: list[Checkpoints] = []

    def look() -> list[str] | None:
        try:
            directory = RunDirectory.current(settings.root, settings.name)
            if directory is None or not (auto_resume or was_launched_as(directory, launch_of_now())):
                return []
            lock.take(directory.path)
            remove_leftovers(directory.path, below=True)
            looked.append(checkpoints_of(directory, settings, ranks))
            newest = looked[0].newest_whole()
        except InputError as error:
            refused.append(error)
            return None
        except OSError as error:
            what = f"the run to resume in {settings.root / settings.name} cannot be looked at: {error}"
            refused.append(InputError(Problem(what, advice="Nothing was moved. Try again once it can be read.")))
            return None
        return [str(directory.path), *([str(newest)] if newest else [])]

    names = ranks.broadcast_object(look)
    if names is None:
        raise refused[0] if refused else InputError("the run cannot be resumed; rank 0 says why")
    paths = [Path(name) for name in names]
    _seen_by_all(paths, settings, ranks)
    if not paths:
        return None, None, None
    directory = RunDirectory(paths[0])
    # The first rank's know which one is the best; the others only look at theirs.
    checkpoints = looked[0] if looked else checkpoints_of(directory, settings, ranks)
    return directory, checkpoints, paths[1] if len(paths) > 1 else None


def _seen_by_all(paths: Sequence[Path], settings: RunSettings, ranks: Communicator) -> None:
    """Refuse, on all ranks, folders that one of them does not see.

    Raises:
        InputError: names the first such rank.
    """
    missing = next((str(path) for path in paths if not os.path.isdir(path)), None)  # noqa: PTH112  # raises nothing
    for rank, message in enumerate(ranks.all_gather_object({"missing": missing})):
        if message["missing"] is not None:
            advice = f"Ranks on several machines need a folder that all of them share: {'.'.join(settings.root_key)}."
            raise InputError(Problem(f"rank {rank} does not see {message['missing']}", advice=advice))


def checkpoints_of(directory: RunDirectory, settings: RunSettings, ranks: Communicator) -> Checkpoints:
    """Return the checkpoints of a run; ranks other than the first look at them only."""
    return Checkpoints(directory.checkpoints, settings.keeps if ranks.is_first else 0)
