"""Tensors of a batch as plain values, for a process that traces: shapes, and the numbers that may say sizes."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def plain_leaves(leaves: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return tensors as plain values: shapes, and of whole numbers their values, which may say sizes."""
    return {name: _plain(leaf) for name, leaf in leaves.items()}


def leaves_from_plain(known: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of :func:`plain_leaves`; the values of fractions are left open."""
    return {name: _tensor(entry) for name, entry in known.items()}


def _plain(leaf: Tensor) -> dict[str, Any]:
    kind = str(leaf.dtype).removeprefix("torch.")
    values = {} if leaf.is_floating_point() else {"values": leaf.flatten().tolist()}
    return {"dtype": kind, "shape": list(leaf.shape), **values}


def _tensor(entry: Mapping[str, Any]) -> Tensor:
    dtype: torch.dtype = getattr(torch, entry["dtype"])
    if "values" not in entry:
        return torch.empty(entry["shape"], dtype=dtype)
    return torch.tensor(entry["values"], dtype=dtype).reshape(entry["shape"])
