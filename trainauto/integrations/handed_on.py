"""What losses write into their batches, for the objectives after them."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor

from trainauto.core.workload import Whole, Workload
from trainauto.integrations.samples import NestedSamples, length_of
from trainauto.integrations.structure import Structure, leaves_of


class HandedOn:
    """Puts batches together for each objective: as the dataset makes them, with what the objectives before have added.

    What has a part for each sample is divided and joined as the batch is. Anything else (a number, a text, a tensor of
    other dimensions) goes with every part; :mod:`trainauto.engine.handed_on` says what becomes of it where the parts of
    one step have written different values. A list may be as long as a part by chance: what had another length than its
    part once, has no part for each sample.

    Args:
        structure: of batches as the dataset makes them.
        objectives: names, in the order of a step.
    """

    def __init__(self, structure: Structure, objectives: Sequence[str]) -> None:
        self._structure = structure
        self._after = dict(pairwise(objectives))
        self._structures: dict[str, Structure] = {}
        self._workload: Workload | None = None
        self._wholes: set[tuple[str, str]] = set()  # (objective, name) of what had another length than its part once

    def begin(self, workload: Workload) -> None:
        """Note what divides the batch of this step."""
        self._workload = workload

    def rebuild(self, objective: str, part: Mapping[str, Any]) -> Any:
        """Return a part of a batch as the loss of an objective gets it."""
        if objective not in self._structures:
            return self._structure.rebuild(part)
        leaves = {name: _value(leaf) for name, leaf in part.items()}
        return self._structures[objective].without_missing(leaves).rebuild(leaves)

    def added(self, objective: str, batch: Any, part: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the loss of an objective has added to a part, or replaced; nothing where it is the last one."""
        after = self._after.get(objective)
        if after is None:
            return {}
        self._structures[after] = Structure.of(batch)
        rows = self._workload.template.samples_of(part) if isinstance(self._workload, NestedSamples) else None
        leaves = leaves_of(batch)
        new = {name: leaf for name, leaf in leaves.items() if name not in part or leaf is not _value(part[name])}
        if rows is None:  # a workload of one's own divides tensors
            return {name: leaf for name, leaf in new.items() if isinstance(leaf, Tensor)}
        self._wholes |= {(objective, name) for name, leaf in new.items() if length_of(leaf) not in (rows, -1)}
        return {
            name: Whole(_detached(leaf)) if length_of(leaf) >= 0 and (objective, name) in self._wholes else leaf
            for name, leaf in new.items()
        }


def _value(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Whole) else leaf


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, Tensor) else leaf
