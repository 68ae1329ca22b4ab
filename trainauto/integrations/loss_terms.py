"""What a loss of one's own returns, as named terms: what is minimised, and what is reported only."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from trainauto.core.errors import InputError

TOTAL = "loss"
"""Key of what is minimised, where a loss returns parts of it beside it."""

MOST_SEARCHED = 256
"""Operations of a term among which those of other terms are looked for."""


@dataclass(frozen=True)
class ReturnedLoss:
    """What a loss has returned.

    Attributes:
        terms: scalars by name; those without gradients are reported only.
        unsummed: names of terms with gradients that are reported only, since there is a total beside them.
        unreported: names of what is no single number, and stands beside a total.
    """

    terms: Mapping[str, Tensor]
    unsummed: tuple[str, ...] = ()
    unreported: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: Any, objective: str, name: str) -> "ReturnedLoss":
        """Read what a loss returned: one number, or named ones.

        Of named ones the sum is minimised, or ``loss`` alone where there is one of this name, as in outputs of
        transformers. Numbers that are no tensors are reported only.

        Args:
            result: what the loss returned.
            objective: its name, for errors.
            name: of a number that has none.

        Raises:
            InputError: it is neither.
        """
        if not isinstance(result, Mapping):
            if not (isinstance(result, Tensor) and _is_number(result)):
                raise InputError(_wrong(objective, result))
            return cls({name: result.reshape(())})
        total = result.get(TOTAL)
        if total is None:
            if not result or not all(map(_is_number, result.values())):
                raise InputError(_wrong(objective, result))
            device = next((value.device for value in result.values() if isinstance(value, Tensor)), None)
            return cls({key: _scalar(value, device) for key, value in result.items()})
        if not (isinstance(total, Tensor) and total.numel() == 1):
            raise InputError(_wrong(objective, total))
        others = {key: value for key, value in result.items() if key != TOTAL}
        told = {key: _scalar(value, total.device).detach() for key, value in others.items() if _is_number(value)}
        unsummed = tuple(key for key in told if isinstance(others[key], Tensor) and others[key].requires_grad)
        if unsummed and not total.requires_grad:
            raise InputError(
                f"of what the loss of '{objective}' returns, '{TOTAL}' is minimised and has no gradient, and "
                f"{_quoted(unsummed)} only reported: do not detach '{TOTAL}', or give it another name"
            )
        unreported = tuple(key for key, value in others.items() if key not in told and value is not None)
        return cls({TOTAL: total.reshape(()), **told}, unsummed, unreported)

    def words(self, objective: str) -> str:
        """Return what a person is to know of it; empty where nothing of it may have been meant otherwise."""
        said = []
        if self.unsummed:
            said.append(
                f"of what the loss of '{objective}' returns, '{TOTAL}' alone is minimised, and "
                f"{_quoted(self.unsummed)} only reported. Detach what is a part of it; to minimise the sum, give "
                f"'{TOTAL}' another name"
            )
        if self.unreported:
            said.append(
                f"of what the loss of '{objective}' returns, {_quoted(self.unreported)} no single number and left out"
            )
        return ". ".join(said)


def words_of_repeated(result: Any, objective: str) -> str:
    """Say which terms of a sum are computed from other terms, and so count these twice; empty where none is.

    Args:
        result: what a loss returned.
        objective: its name.
    """
    if not isinstance(result, Mapping) or result.get(TOTAL) is not None:
        return ""
    nodes = {name: value.grad_fn for name, value in result.items() if isinstance(value, Tensor) and value.grad_fn}
    said = []
    for name, node in nodes.items():
        below = _operations_of(node)
        if others := tuple(other for other in nodes if other != name and nodes[other] in below):
            said.append(
                f"the loss of '{objective}' returns '{name}', which is computed from {_listed(others)}: the sum of all "
                f"is minimised, and counts these twice. Call it '{TOTAL}' where it is the total; detach what is only "
                "to be reported"
            )
    return ". ".join(said)


def _operations_of(last: Any) -> set[Any]:
    """Return the operations that a number is computed by, the last ones of many."""
    found, waiting = {last}, deque([last])
    while waiting and len(found) < MOST_SEARCHED:
        new = {node for node, _ in waiting.popleft().next_functions if node is not None} - found
        found |= new
        waiting += new
    return found


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _quoted(names: tuple[str, ...]) -> str:
    return _listed(names) + (" are" if len(names) > 1 else " is")


def _is_number(value: Any) -> bool:
    return value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, Real)


def _scalar(value: Any, device: torch.device | None) -> Tensor:
    """Return a number as a tensor without dimensions."""
    return value.reshape(()).to(device) if isinstance(value, Tensor) else torch.tensor(float(value), device=device)


def _wrong(objective: str, result: Any) -> str:
    what = _kind(result)
    if isinstance(result, Mapping):
        others = [f"{_kind(value)} called '{name}'" for name, value in result.items() if not _is_number(value)]
        what = ", ".join(others) or "an empty mapping"
    return f"the loss of '{objective}' must return one number as a tensor, or named ones, not {what}"


def _kind(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
