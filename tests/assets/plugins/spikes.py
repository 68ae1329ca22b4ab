"""A plugin that takes memory during one step in so many, as another part of a program would."""

import torch
from torch import Tensor

from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import Decision
from trainauto.core.process import parse_size_bytes
from trainauto.core.records import StepRecord


@AUTOMATIONS.register("Spikes")
class Spikes(Automation):
    """Holds a tensor during every so many steps.

    Args:
        every: steps from one to the next.
        size: what it takes.
    """

    def __init__(self, every: int, size: str) -> None:
        self.every, self.size_bytes = every, parse_size_bytes(size)
        self._held: Tensor | None = None

    def on_step_end(self, record: StepRecord) -> Decision | None:
        self._held = None
        if (record.step + 1) % self.every == 0:
            self._held = torch.ones(self.size_bytes, dtype=torch.uint8)
        return None
