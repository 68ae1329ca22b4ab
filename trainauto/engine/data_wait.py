"""A word where steps wait for their data: the machine is not filled then, whatever the batch is."""

import logging
from dataclasses import dataclass

from trainauto.core.records import StepRecord

logger = logging.getLogger(__name__)

WATCHED_STEPS = 50
LONG_WAIT = 0.2
"""Share of the time; below it, a faster loader would hardly be noticed."""

FIRST_STEPS = 10
"""Left out: workers may start in them."""


@dataclass
class DataWait:
    """Watches how long steps wait for their batches, and says once that it is long.

    Attributes:
        has_said: whether it was said.
    """

    has_said: bool = False
    _steps: int = 0
    _waited_s: float = 0.0
    _taken_s: float = 0.0

    def see(self, record: StepRecord, advice: str) -> None:
        """Take a step in.

        Args:
            record: the step.
            advice: what to do about waiting; empty where nothing can be said.
        """
        if self.has_said or not advice:
            return
        self._steps += 1
        if self._steps <= FIRST_STEPS:
            return
        self._waited_s += record.data_seconds
        self._taken_s += record.data_seconds + record.step_seconds
        if (self._steps - FIRST_STEPS) % WATCHED_STEPS == 0:
            if self._waited_s > LONG_WAIT * self._taken_s:
                self.has_said = True
                share = self._waited_s / self._taken_s
                logger.warning(
                    "the last %d steps waited for data %.0f %% of the time: %s", WATCHED_STEPS, 100 * share, advice
                )
            self._waited_s = self._taken_s = 0.0
