"""The files of a run's sets, by name and size, as its folder keeps them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainauto.core.files import write_text_atomically
from trainauto.core.json_text import read_object
from trainauto.data.dynamic_dataset import DynamicDataset
from trainauto.data.sample_files import SampleFiles
from trainauto.storage.run_directory import RunDirectory

IDENTITY = "identity"
"""Key of what tells the samples of a set from others; see :meth:`DynamicDataset.identity`."""


def kept_files(file: Path, name: str) -> SampleFiles | None:
    """Return the files of a set; ``None`` where they are not known.

    Args:
        file: of a run's folder, see :attr:`RunDirectory.samples`.
        name: of the set.
    """
    try:
        return SampleFiles.from_dict(read_object(file)[name])
    except (KeyError, TypeError, ValueError):
        return None


def earlier_identities(directory: RunDirectory, name: str) -> frozenset[str]:
    """Return the identities of the samples that a run had of a set, before others were accepted."""
    contents = (read_object(file).get(name) for file in directory.earlier_versions(directory.samples).values())
    return frozenset(str(content.get(IDENTITY, "")) for content in contents if isinstance(content, dict)) - {""}


def keep_sets(directory: RunDirectory, datasets: Iterable[DynamicDataset], step: int) -> None:
    """Keep the files of all sets, where the run does not have them yet; the training set is the first.

    Where the training set is another one, what is replaced stays beside it, named by the step up to which it held.

    Args:
        directory: the run.
        datasets: its sets.
        step: the step it stands at.
    """
    sets = {dataset.name: dataset for dataset in datasets}
    before = read_object(directory.samples)
    train = next(iter(sets.values()))
    if IDENTITY in before.get(train.name, {}) and before[train.name][IDENTITY] != train.identity():
        until = directory.until_step(directory.samples, step)
        if not until.exists():
            write_text_atomically(until, directory.samples.read_text(encoding="utf-8"))
    now = {name: _as_dict(dataset) for name, dataset in sets.items()}
    # Sizes stay those that the run began with, so that a file which was replaced is named at each resume.
    same = {name: before[name] for name in now if before.get(name, {}).get(IDENTITY) == now[name][IDENTITY]}
    if before != (now := {**now, **same}):
        write_text_atomically(directory.samples, json.dumps(now, ensure_ascii=False, separators=(",", ":")) + "\n")


def _as_dict(dataset: DynamicDataset) -> dict[str, Any]:
    files = dataset.sample_files()
    return {IDENTITY: dataset.identity(), **(files.to_dict() if files is not None else {})}
