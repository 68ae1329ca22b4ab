"""Learning rates that other code sets."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer

from trainauto.core.records import Progress


class OwnRates:
    """Leaves learning rates to the loop and its schedules; what is decided multiplies them for the length of a step.

    Schedules often make a rate of the one before, so that each group has its own back before they move on.
    """

    def __init__(self) -> None:
        self._own: list[_Rate] = []

    def set_rates(self, optimizers: Iterable[Optimizer], progress: Progress, extra_factor: float = 1.0) -> None:
        """Multiply the rates for the step that begins; those of one that was not trained are put back before."""
        del progress
        self.put_back()
        self.multiply(optimizers, extra_factor)

    def multiply(self, optimizers: Iterable[Optimizer], factor: float) -> None:
        """Multiply the rates of the step on its way once more."""
        if factor == 1.0:
            return
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        if not self._own:
            self._own = [_Rate(group, group["lr"]) for group in groups]
        for rate in self._own:
            rate.group["lr"] = rate.given = rate.group["lr"] * factor

    def put_back(self) -> None:
        """Give each group its own rate back."""
        for rate in self._own:
            if rate.group["lr"] == rate.given:
                rate.group["lr"] = rate.own
            elif rate.given:  # a schedule has moved it on within the step: most make a rate of the one before
                rate.group["lr"] = rate.group["lr"] * (rate.own / rate.given)
        self._own = []


@dataclass
class _Rate:
    """The rate of a group within a step: its own, and what it was made of that."""

    group: dict[str, Any]
    own: Any
    given: Any = None
