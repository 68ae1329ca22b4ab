"""A plugin that makes steps slow, so that a test has time to strike between two of them."""

import time

from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import Decision
from trainauto.core.records import StepRecord


@AUTOMATIONS.register("Slow")
class Slow(Automation):
    """Waits after every step.

    Args:
        seconds: how long.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_step_end(self, record: StepRecord) -> Decision | None:
        time.sleep(self.seconds)
        return None
