"""What a function that weighs batches has returned, as a number."""

from numbers import Real
from typing import Any

from torch import Tensor

from trainauto.core.errors import InputError, Problem


def number_of(weight: Any) -> float:
    """Return a weight, a number or a tensor that holds one, as a float.

    Raises:
        InputError: it is something else.
    """
    if isinstance(weight, Tensor) and weight.numel() == 1:
        return float(weight.detach())
    if not isinstance(weight, Real):
        kind = f"a tensor of shape {tuple(weight.shape)}" if isinstance(weight, Tensor) else type(weight).__name__
        advice = "It returns what the loss of a batch is a mean over, as one number: its labels, their class weights."
        raise InputError(Problem(f"weigh returns {kind}", advice=advice))
    return float(weight)
