"""Whether a dataset is the one that a checkpoint's position belongs to."""

from collections.abc import Mapping
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted
from trainauto.data.dynamic_dataset import DynamicDataset

MOST_NAMED = 3


def check_samples_are_those_of(state: Mapping[str, Any], dataset: DynamicDataset) -> None:
    """Refuse a dataset of other samples than the loader's state was written with.

    Args:
        state: of the loader; one of an earlier version has no checksums.
        dataset: of now.

    Raises:
        InputError: it differs, so that the position means nothing; says in which files, as far as that is known.
    """
    if state["samples"] != len(dataset):
        message = (
            f"dataset '{dataset.name}' has {counted(len(dataset), 'sample')}, the checkpoint was written with "
            f"{state['samples']}"
        )
        changed = _changed(state.get("checksums") or {}, dataset.checksums())
        raise InputError(Problem(f"{message}{_listed(changed)}", advice=dataset.if_changed))
    names = state.get("identity") if dataset.sample_files() is not None else None
    before, now = state.get("checksums") or {}, dataset.checksums()
    if names and names != dataset.identity():
        message = (
            f"the checkpoint was written with other files than those of dataset '{dataset.name}', or in another order"
        )
        raise InputError(Problem(message, advice=dataset.if_changed))
    if before and now and list(before.values()) != list(now.values()):
        message = f"dataset '{dataset.name}' is not what the checkpoint was written with"
        raise InputError(Problem(f"{message}{_listed(_changed(before, now))}", advice=dataset.if_changed))


def is_of_other_samples(state: Mapping[str, Any], dataset: DynamicDataset) -> bool:
    """Say whether a loader's state was written with other samples than a dataset has, as far as that is known."""
    try:
        check_samples_are_those_of(state, dataset)
    except InputError:
        return True
    return False


def _changed(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Return the files that differ; those of a folder that was moved are told by their contents."""
    if not before or not now:
        return []
    old, new = set(before.values()), set(now.values())
    gone = [name for name, checksum in before.items() if checksum not in new]
    added = [name for name, checksum in now.items() if checksum not in old]
    return sorted({*gone, *added})


def _listed(changed: list[str]) -> str:
    if not changed:
        return ""
    more = f" and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
    return f": what is read of {', '.join(changed[:MOST_NAMED])}{more} differs"
