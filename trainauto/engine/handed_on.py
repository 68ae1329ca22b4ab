"""What a pass has added to its micro-batches, for the passes after it."""

import logging
from collections.abc import Collection, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainauto.core.objectives import MicroBatch
from trainauto.core.workload import Whole, Workload

logger = logging.getLogger(__name__)


def added_to(part: MicroBatch, given: MicroBatch) -> dict[str, Any]:
    """Return what a loss has added to the part of a batch it was given, or put in place of something in it.

    These are detached tensors, or any other values.
    """
    added: dict[str, Any] = {
        name: value for name, value in part.items() if name not in given or value is not given[name]
    }
    return {name: value.detach() if isinstance(value, Tensor) else value for name, value in added.items()}


def joined(
    workload: Workload, parts: Sequence[dict[str, Any]], weights: Sequence[float]
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return what all parts have added, as one batch would have it.

    Tensors with rows are joined as samples are, arrays, lists and tuples behind each other. One value for a part is
    that of the batch where all parts have the same. Numbers that differ become their mean, weighted as losses are;
    anything else that differs is left out.

    Returns:
        What was added, and the names that parts disagreed on: means, which may have been sums, and what is left out.
    """
    if len(parts) == 1:
        return parts[0], frozenset()
    names = [name for name in parts[0] if all(name in part for part in parts)]
    rows = [name for name in names if all(isinstance(part[name], Tensor) and part[name].ndim for part in parts)]
    whole: dict[str, Any] = dict(workload.join([{name: part[name] for name in rows} for part in parts])) if rows else {}
    differing = set(rows) - whole.keys()
    for name in names:
        if name in rows:
            continue
        values = [part[name] for part in parts]
        if all(isinstance(value, np.ndarray) and value.ndim for value in values):
            whole[name] = np.concatenate(values)
        elif any(all(type(value) is kind for value in values) for kind in (list, tuple)):
            whole[name] = type(values[0])(entry for value in values for entry in value)
        elif all(is_same(value, values[0]) for value in values[1:]):
            whole[name] = values[0]
        else:
            differing.add(name)
            if all(_is_number(_value(value)) for value in values):
                whole[name] = _mean(values, weights)
    return whole, frozenset(differing)


def say_differing(objective: str, differing: frozenset[str], whole: Collection[str], said: set[str]) -> None:
    """Say what later passes find of what the parts of a batch disagreed on; of each name once.

    Args:
        objective: whose loss has added it.
        differing: names that parts disagreed on.
        whole: names of what is handed on all the same: means.
        said: names that this was said of before.
    """
    for name in sorted(differing - said):
        found = "find the mean over the parts" if name in whole else "do not find it"
        logger.warning(
            "the loss of '%s' adds '%s' to its batch, which ran in parts that have different values: objectives after "
            "it %s; add a tensor with a row for each sample",
            objective,
            name,
            found,
        )
    said |= differing


def _mean(values: Sequence[Any], weights: Sequence[float]) -> Any:
    total = sum(weights) or 1.0
    mean = sum(_value(value) * (weight / total) for value, weight in zip(values, weights, strict=True))
    return Whole(mean) if isinstance(values[0], Whole) else mean


def _value(value: Any) -> Any:
    return value.value if isinstance(value, Whole) else value


def is_same(value: Any, other: Any) -> bool:
    """Say whether two parts of a batch were given the same thing."""
    one, two = _value(value), _value(other)
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return one.shape == two.shape and bool(torch.equal(one, two))
    return type(one) is type(two) and bool(np.array_equal(one, two) if isinstance(one, np.ndarray) else one == two)


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) or (isinstance(value, Tensor | np.ndarray) and not value.ndim)
