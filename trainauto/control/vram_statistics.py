"""What the controller shows of memory: the documented figures, the status line, the warning above 95 %."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from trainauto.core.plan import Plan
from trainauto.core.records import PeakReading
from trainauto.core.units import GIB, MIB

logger = logging.getLogger(__name__)

NEARLY_FULL, WORTH_SAYING = 0.95, 0.01
"""Use above this is worth a warning: a little more, and a step fails. The next one is for so much more."""


class VramStatistics:
    """Figures over a whole run; every step counts in the highest peak, cut or failed ones too.

    Args:
        name: of the automation, for log lines.
        history_size: whole periods kept.

    Attributes:
        reading: of the last step.
        changes: every change of plan, with its reason.
        oom_count: times a step ran out of memory.
    """

    def __init__(self, name: str, history_size: int) -> None:
        self._name = name
        self.reading: PeakReading | None = None
        self.history: deque[float] = deque(maxlen=history_size)
        self.changes: list[dict[str, Any]] = []
        self.oom_count = 0
        self._highest = 0.0
        self._warned = NEARLY_FULL - WORTH_SAYING

    def see(self, reading: PeakReading) -> None:
        """Take in a step's reading; warn where memory is nearly full, and again where more of it is."""
        self.reading = reading
        if not reading.limit:
            return
        use = reading.allocated / reading.limit
        self._highest = max(self._highest, use)
        if use > self._warned + WORTH_SAYING:
            logger.warning("%s: a step used %.1f%% of the memory there is", self._name, 100 * use)
            self._warned = use

    def note_change(self, iteration: int, old: Plan | None, new: Plan, reason: str) -> None:
        """Keep a change of plan in the history."""
        before = old.to_dict() if old else {}
        self.changes.append({"iteration": iteration, "old": before, "new": new.to_dict(), "reason": reason})

    def log_status(self, peaks: Sequence[int], target: float) -> None:
        """Log use now, the peak of the period so far, and the target."""
        reading = self.reading
        if reading is None or not reading.limit:
            return
        now, peak = _current(reading), max(peaks, default=reading.allocated)
        unit, name = (GIB, "GiB") if reading.limit >= GIB else (MIB, "MiB")
        logger.info(
            "%s: in use %.1f%% (%.2f %s), period's peak %.1f%% (%.2f of %.2f %s), target %.0f%%",
            self._name,
            100 * now / reading.limit,
            now / unit,
            name,
            100 * peak / reading.limit,
            peak / unit,
            reading.limit / unit,
            name,
            100 * target,
        )

    def figures(self) -> dict[str, Any]:
        """Return the documented figures of use; shares of the memory the process may use."""
        reading = self.reading
        current = _current(reading) / reading.limit if reading and reading.limit else 0.0
        return {
            "peak_usage": self._highest,
            "avg_usage": sum(self.history) / len(self.history) if self.history else self._highest,
            "current_usage": current,
            "oom_recovery_count": self.oom_count,
            "adjustments": len(self.changes),
            "adjustment_history": list(self.changes),
            "vram_history": list(self.history),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return {
            "history": list(self.history),
            "changes": list(self.changes),
            "oom_count": self.oom_count,
            "highest": self._highest,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self.history.clear()
        self.history.extend(state["history"])
        self.changes = list(state["changes"])
        self.oom_count, self._highest = int(state["oom_count"]), float(state["highest"])


def _current(reading: PeakReading) -> int:
    """Return what is in use now; if unknown, the peak is the nearest there is."""
    return reading.allocated if reading.current is None else reading.current
