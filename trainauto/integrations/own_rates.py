"""Learning rates that are somebody else's business."""

from collections.abc import Iterable
from typing import Any

from torch.optim import Optimizer

from trainauto.core.records import Progress


class OwnRates:
    """Leaves learning rates to the loop and its schedules; what is decided multiplies them for the length of a step.

    Schedules often make a rate of the one before, so that each group has its own back before they move on.
    """

    def __init__(self) -> None:
        self._own: list[tuple[dict[str, Any], Any]] = []

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
            self._own = [(group, group["lr"]) for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * factor

    def put_back(self) -> None:
        """Give each group its own rate back."""
        for group, rate in self._own:
            group["lr"] = rate
        self._own = []
