"""What a function that weighs batches has returned, as a number; whether it is a sum over samples."""

import logging
from math import isclose
from numbers import Real
from typing import Any

from torch import Tensor

from trainauto.core.errors import InputError, Problem

logger = logging.getLogger(__name__)


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


def say_if_no_sum(one: float, three: float) -> None:
    """Warn where three times the same sample do not weigh three times as much as one.

    A weight of 1 for any batch is taken as meant: losses of parts are then added up, as sums over samples are.

    Args:
        one: weight of a batch of one sample.
        three: weight of a batch that holds it three times.
    """
    if one == three == 1 or isclose(three, 3 * one, rel_tol=1e-4, abs_tol=1e-12):
        return
    logger.warning(
        "weigh returns %g for a sample and %g for three of it: losses of a batch that runs in parts are then not those "
        "of the whole batch. Return a sum over samples (a mean's divisor), or 1 where the loss is itself a sum",
        one,
        three,
    )
