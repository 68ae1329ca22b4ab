"""What a pass has added to its micro-batches, for the passes after it."""

import logging
from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
from torch import Tensor

from trainauto.core.objectives import MicroBatch
from trainauto.core.workload import Workload

logger = logging.getLogger(__name__)


def added_to(part: MicroBatch, tensors: MicroBatch) -> dict[str, Any]:
    """Return what a loss has added to its part of a batch: detached tensors, or any other values."""
    added: dict[str, Any] = {name: value for name, value in part.items() if name not in tensors}
    return {name: value.detach() if isinstance(value, Tensor) else value for name, value in added.items()}


def joined(
    workload: Workload, parts: Sequence[dict[str, Any]], weights: Sequence[float]
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return what all parts have added, as one batch would have it.

    Tensors with rows are joined as samples are, arrays and lists behind each other. One number for a part is that of
    the batch where all parts have the same, else their mean, weighted as their losses are.

    Returns:
        What was added, and the names of numbers that are such means: they may have been sums.
    """
    if len(parts) == 1:
        return parts[0], frozenset()
    names = [name for name in parts[0] if all(name in part for part in parts)]
    rows = [name for name in names if all(isinstance(part[name], Tensor) and part[name].ndim for part in parts)]
    whole: dict[str, Any] = dict(workload.join([{name: part[name] for name in rows} for part in parts])) if rows else {}
    means = set()
    for name in names:
        if name in rows:
            continue
        values = [part[name] for part in parts]
        if all(isinstance(value, np.ndarray) and value.ndim for value in values):
            whole[name] = np.concatenate(values)
        elif all(isinstance(value, list) for value in values):
            whole[name] = [entry for value in values for entry in value]
        elif _is_number(values[0]) and any(bool(value != values[0]) for value in values[1:]):
            total = sum(weights) or 1.0
            whole[name] = sum(value * (weight / total) for value, weight in zip(values, weights, strict=True))
            means.add(name)
        else:
            whole[name] = values[0]
    return whole, frozenset(means)


def say_means(objective: str, names: frozenset[str], said: set[str]) -> None:
    """Say of which numbers later passes find a mean over the parts of a batch; of each name once."""
    for name in sorted(names - said):
        logger.warning(
            "the loss of '%s' adds the number '%s' to its batch, which ran in parts: objectives after it find the mean "
            "over the parts; add a tensor with a row for each sample where the number is a sum",
            objective,
            name,
        )
    said |= names


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) or (isinstance(value, Tensor | np.ndarray) and not value.ndim)
