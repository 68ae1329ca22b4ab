"""What a loss of one's own returns, as named terms: what is minimised, and what is reported only."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from trainauto.core.errors import InputError

TOTAL = "loss"
"""Key of what is minimised, where a loss returns parts of it beside it."""


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


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names) + (" are" if len(names) > 1 else " is")


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
