"""A plugin that holds memory beside training for a few steps, as another part of a program would.

It takes what is left of the budget up to a share of it, so that the peak of the next steps is that share, whatever the
network takes on this machine.
"""

import torch
from torch import Tensor

from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import Decision
from trainauto.core.records import StepRecord


@AUTOMATIONS.register("Neighbour")
class Neighbour(Automation):
    """Holds a tensor during some steps.

    Args:
        first_step: the first step beside it.
        steps: how many steps it stays.
        up_to: share of the budget that it and the peak of the step before make together.
    """

    def __init__(self, first_step: int, steps: int, up_to: float) -> None:
        self.first_step, self.steps, self.up_to = first_step, steps, up_to
        self._held: Tensor | None = None

    def on_step_end(self, record: StepRecord) -> Decision | None:
        upcoming = record.step + 1
        if upcoming == self.first_step and record.peak is not None and record.peak.limit is not None:
            size_bytes = int(self.up_to * record.peak.limit) - record.peak.allocated
            self._held = torch.ones(size_bytes, dtype=torch.uint8)
        elif upcoming == self.first_step + self.steps:
            self._held = None
        return None
