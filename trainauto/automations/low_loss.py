"""Ending a run whose loss is low enough."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from trainauto.automations.registry import AUTOMATIONS
from trainauto.core.automation import Automation
from trainauto.core.decisions import Stop
from trainauto.core.records import StepRecord

LOW_LOSS = "auto_low_loss"
"""How a run ends that it stops, in one word."""

LOW_STEPS = "low_steps"
"""Of a checkpoint: how many steps there have been, one after another."""


@AUTOMATIONS.register("StopAtLowLoss")
class StopAtLowLoss(Automation):
    """Ends a run whose training loss has been low enough for so many steps one after another.

    Args:
        loss: at or below it a step counts; all terms of the loss together.
        patience: optimizer steps, one after another.
    """

    watches = True

    def __init__(self, loss: float, patience: int = 20) -> None:
        if not isfinite(loss):
            raise ValueError(f"loss must be a number, got {loss}")
        if patience < 1:
            raise ValueError(f"patience must be 1 step or more, got {patience}")
        self._loss, self._patience = loss, patience
        self._low_steps = 0

    def on_step_end(self, record: StepRecord) -> Stop | None:
        """Count the step."""
        if not record.losses or record.left_out:
            return None
        self._low_steps = self._low_steps + 1 if record.loss <= self._loss else 0
        if self._low_steps < self._patience:
            return None
        reason = f"the loss was at most {self._loss:g} for {self._low_steps} steps, up to step {record.step}"
        return Stop(reason, termination=LOW_LOSS)

    def state_dict(self) -> dict[str, Any]:
        """Return how many steps there have been."""
        return {LOW_STEPS: self._low_steps, "loss": self._loss}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting, where the goal is still the one that was counted for."""
        is_same = state.get("loss", self._loss) == self._loss
        self._low_steps = int(state[LOW_STEPS]) if is_same else 0
