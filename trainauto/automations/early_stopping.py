"""Ending a run that has stopped becoming better."""

import logging
from collections.abc import Mapping
from math import isfinite
from typing import Any

from trainauto.automations.registry import AUTOMATIONS
from trainauto.automations.watched_metric import Direction, WatchedMetric, is_better
from trainauto.core.automation import Automation
from trainauto.core.decisions import RunFacts, Stop
from trainauto.core.records import ValidationRecord
from trainauto.core.words import counted

NO_IMPROVEMENT = "auto_no_improvement"
"""How a run ends that it stops, in one word."""

UNUSUAL_PATIENCE = 200
"""Validations above which patience was probably meant in steps, as files of the traiNNer family count it."""

logger = logging.getLogger(__name__)


@AUTOMATIONS.register("IntelligentEarlyStopping")
class IntelligentEarlyStopping(Automation):
    """Ends a run once a metric of its validations has not improved for so many of them, and names the best.

    What has been trained is kept: the checkpoint of the best validation stays beside the newest ones, as in every run.
    A resume of a run that was ended so trains nothing, until its options change.

    Args:
        monitor_metric: what must improve, such as ``val/psnr``; ``None`` is the first metric of the first set.
        patience: validations without an improvement after which the run ends.
        min_improvement: less than this is none, in the unit of the metric.
        min_iterations: optimizer steps before which no run ends.
        direction: ``higher`` or ``lower`` is better; ``auto`` is as the metric says of itself.
    """

    watches = True

    def __init__(
        self,
        monitor_metric: str | None = None,
        patience: int = 10,
        min_improvement: float = 0.0,
        min_iterations: int = 0,
        direction: Direction = "auto",
    ) -> None:
        if patience < 1:
            raise ValueError(f"patience must be 1 validation or more, got {patience}")
        if not (isfinite(min_improvement) and min_improvement >= 0):
            raise ValueError(f"min_improvement must be 0 or more, got {min_improvement}")
        self._metric = WatchedMetric(self.name, monitor_metric, direction)
        self._patience, self._min_improvement, self._min_iterations = patience, min_improvement, min_iterations
        self._best: float | None = None
        self._best_step = self._last_step = self._waited = 0

    def check(self, facts: RunFacts) -> None:
        """Refuse a metric that no validation measures; say where patience looks like a number of steps.

        Raises:
            InputError: names what is measured.
        """
        self._metric.check(facts)
        if self._patience > UNUSUAL_PATIENCE:
            words = "%s: patience counts validations, and %d of them are many: traiNNer's files count steps"
            logger.warning(words, self.name, self._patience)

    def on_validation_end(self, record: ValidationRecord) -> Stop | None:
        """Compare with the best so far; one that is made again after a resume counts once."""
        if record.step <= self._last_step or (read := self._metric.read(record)) is None:
            return None
        value, self._last_step = read.value, record.step
        if not read.is_comparable:
            self._best, self._waited = None, 0
        if is_better(value, self._best, higher=read.higher, by=self._min_improvement):
            self._best, self._best_step, self._waited = value, record.step, 0
            return None
        self._waited += 1
        if self._waited < self._patience or record.step < self._min_iterations:
            return None
        return Stop(self._reason(value), termination=NO_IMPROVEMENT)

    def _reason(self, value: float) -> str:
        by = f" by more than {self._min_improvement:g}" if self._min_improvement else ""
        best = f"best {self._best:.6g} after step {self._best_step}" if self._best is not None else "never a number"
        waited = counted(self._waited, "validation")
        return f"{self._metric.shown} has not improved{by} in {waited}: {best}, now {value:.6g}"

    def state_dict(self) -> dict[str, Any]:
        """Return the best so far, and how long ago it was."""
        return {
            "metric": self._metric.name,
            "measured_by": self._metric.measured_by,
            "best": self._best,
            "best_step": self._best_step,
            "last_step": self._last_step,
            "waited": self._waited,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting; where another metric is watched now, begin anew."""
        if not self._metric.take_up(state["metric"], state.get("measured_by", "")):
            return
        self._best = state["best"]
        self._best_step, self._last_step = int(state["best_step"]), int(state["last_step"])
        self._waited = int(state["waited"])
