"""The files of a run's sets, by name and size, as its folder keeps them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainauto.core.files import read_text, write_text_atomically
from trainauto.core.json_text import read_object
from trainauto.data.dynamic_dataset import DynamicDataset
from trainauto.data.sample_files import SampleFiles
from trainauto.storage.run_directory import RunDirectory

TRAIN, VALIDATION = "train", "validation"
"""Keys of the training set, whatever it is called, and of the validation sets by name."""

IDENTITY = "identity"
"""Key of what tells the samples of a set from others; see :meth:`DynamicDataset.identity`."""


def kept_files(file: Path, validation_set: str | None = None) -> SampleFiles | None:
    """Return the files of a set; ``None`` where they are not known.

    Args:
        file: of a run's folder, see :attr:`RunDirectory.samples`.
        validation_set: its name; ``None`` means the training set.
    """
    content = read_object(file)
    try:
        return SampleFiles.from_dict(content[TRAIN] if validation_set is None else content[VALIDATION][validation_set])
    except (KeyError, TypeError, ValueError):
        return None


def earlier_identities(directory: RunDirectory) -> frozenset[str]:
    """Return the identities of the training samples that a run had, before others were accepted."""
    contents = (read_object(file).get(TRAIN) for file in directory.earlier_versions(directory.samples).values())
    return frozenset(str(content.get(IDENTITY, "")) for content in contents if isinstance(content, dict)) - {""}


def keep_sets(directory: RunDirectory, datasets: Iterable[DynamicDataset], step: int) -> None:
    """Keep the files of all sets, where the run does not have them yet; the training set is the first.

    Where the training set is another one, what is replaced stays beside it, named by the step up to which it held.

    Args:
        directory: the run.
        datasets: its sets.
        step: the step it stands at.
    """
    train, *others = datasets
    before = read_object(directory.samples)
    known, validated = _section(before, TRAIN), _section(before, VALIDATION)
    if IDENTITY in known and known[IDENTITY] != train.identity():
        until = directory.until_step(directory.samples, step)
        if not until.exists():
            write_text_atomically(until, read_text(directory.samples))
    validation = {dataset.name: _entry(dataset, _section(validated, dataset.name)) for dataset in others}
    now = {TRAIN: _entry(train, known), VALIDATION: validation}
    if before != now:
        write_text_atomically(directory.samples, json.dumps(now, ensure_ascii=False, separators=(",", ":")) + "\n")


def _section(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = content.get(key)
    return found if isinstance(found, dict) else {}  # a person may have edited it


def _entry(dataset: DynamicDataset, before: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is kept of a set: of the same samples what was, so that a file that was replaced stays named."""
    identity, files = dataset.identity(), dataset.sample_files()
    if before.get(IDENTITY) == identity:
        return before
    return {IDENTITY: identity, **(files.to_dict() if files is not None else {})}
