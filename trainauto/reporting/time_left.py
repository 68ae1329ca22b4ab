"""How long a run still takes."""

import math
from collections.abc import Iterable

from trainauto.core.records import StepRecord
from trainauto.core.run_events import LengthUnit

_MEMORY_S = 60.0
"""Seconds of training that the rate is mostly of: long enough not to jump, short enough to follow a change of plan."""

_LEAST_KEPT = 0.95
"""Share of what was before that a step keeps, however long it took: about twenty steps count."""


class TimeLeft:
    """Tells the seconds that are left, by the rate of the last minute of training and the time that validations take.

    The rate is one of steps, or of samples where these are what the run's length is counted in: batches may grow. What
    a resumed run had done before counts for what is left, and not for the rate. The first step is left out of it: it
    loads libraries and chooses algorithms.

    Args:
        total: length of the run, in ``unit``.
        unit: what the length is counted in.
    """

    def __init__(self, total: int, unit: LengthUnit) -> None:
        self._total, self._unit = total, unit
        self._steps = 0
        self._recent = 0.0
        self._recent_s = 0.0
        self._trained_s = 0.0
        self._validated_s = 0.0
        self._trained_at_validation_s = 0.0

    def step(self, record: StepRecord) -> None:
        """Take in a step."""
        self.steps((record.data_seconds + record.step_seconds,), record.shape.samples)

    def steps(self, seconds_of_each: Iterable[float], samples: int) -> None:
        """Take in steps of so many samples each."""
        done = 1 if self._unit == "steps" else samples
        for seconds in seconds_of_each:
            kept = max(_LEAST_KEPT, math.exp(-seconds / _MEMORY_S)) if self._steps > 1 else 0.0
            self._recent, self._recent_s = self._recent * kept + done, self._recent_s * kept + seconds
            self._trained_s += seconds
            self._steps += 1

    def validation(self, seconds: float) -> None:
        """Take in what a validation took; one before the first step says nothing of how often there will be one."""
        if self._trained_s > 0:
            self._validated_s += seconds
            self._trained_at_validation_s = self._trained_s

    def seconds(self, done: int) -> float | None:
        """Return the seconds that are left when ``done`` of the run's length lies behind; ``None`` if unknown."""
        if self._recent_s <= 0:
            return None
        left_s = max(0, self._total - done) * self._recent_s / self._recent
        return left_s * (1 + self._validated_s / self._trained_at_validation_s if self._validated_s else 1.0)
