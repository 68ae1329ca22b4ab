"""Whether a dataset is the one that a checkpoint's position belongs to."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted
from trainauto.data.dynamic_dataset import DynamicDataset

logger = logging.getLogger(__name__)

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


def check_as_many(samples: int, dataset: DynamicDataset) -> None:
    """Refuse a dataset that grows or shrinks while it is trained: the order is drawn of so many samples.

    Args:
        samples: that it had when the order was drawn.
        dataset: of now.

    Raises:
        InputError: it has another number of samples now.
    """
    if len(dataset) != samples:
        fate = "what was added is never drawn" if len(dataset) > samples else "what is gone is still to be drawn"
        message = f"dataset '{dataset.name}' has {counted(len(dataset), 'sample')} now, and had {samples}: {fate}"
        advice = (
            "Leave its length as it is while it is trained (samples may be replaced). To train on another number, make "
            "the loop or the Trainer anew, with the same model and optimizer."
        )
        raise InputError(Problem(message, advice=advice))


@dataclass(frozen=True)
class Accepted:
    """Which states of other samples a loader takes: the samples of now begin an epoch there.

    Attributes:
        identities: of the samples that the states were written with; see :meth:`DynamicDataset.identity`.
        everything: takes any state.
    """

    identities: frozenset[str] = frozenset()
    everything: bool = False

    def takes_anew(self, state: Mapping[str, Any], dataset: DynamicDataset) -> bool:
        """Say whether a loader's state is of other samples than a dataset has, and accepted; the log says so, too."""
        before = state.get("identity", "")
        if self.everything:
            is_taken = _is_of_others(state, dataset)
        else:
            is_taken = before in self.identities and before != dataset.identity()
        if is_taken:
            logger.warning(
                "dataset '%s' has other samples than the checkpoint was written with: an epoch begins with them",
                dataset.name,
            )
        return is_taken


def _is_of_others(state: Mapping[str, Any], dataset: DynamicDataset) -> bool:
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
