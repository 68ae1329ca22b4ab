"""A figure of validations that an automation goes by: which it is, and which way is better."""

import logging
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.records import ValidationRecord
from trainauto.core.words import visible

Direction = Literal["auto", "higher", "lower"]

LONGEST_NAMES = 200
"""Characters of a list of metrics in a warning."""

SAY_DIRECTION = "Say direction: higher, or direction: lower."

HOW_TO_VALIDATE = (
    "Have it validate (val_freq under val; eval_strategy and eval_dataset of a Trainer; eval_every_epoch of fine-"
    "tuning), or remove it."
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MetricReading:
    """A metric as a validation has measured it.

    Attributes:
        value: it.
        higher: whether higher is better.
        is_comparable: whether the values before were measured with the same arguments, on the same samples.
    """

    value: float
    higher: bool
    is_comparable: bool


class WatchedMetric:
    """A metric by its name: ``val/psnr``, or ``psnr`` of whichever set has it first.

    Args:
        owner: the automation that goes by it.
        name: as the option file has it; ``None`` is the first metric of the first validation.
        direction: whether higher is better, or lower; ``auto`` is as each metric says of itself.
    """

    def __init__(self, owner: str, name: str | None, direction: Direction) -> None:
        self._owner, self._direction = owner, direction
        self.name = self._asked = name
        self._seen: dict[str, int] = {}
        self._has_warned = False
        self.measured_by = ""

    def check(self, facts: RunFacts) -> None:
        """Refuse a name of nothing that will be measured, and one whose better direction is unknown.

        Args:
            facts: what validations will give, and what is known of names.

        Raises:
            InputError: names the nearest that there is, says that nothing is measured, or asks for a direction.
        """
        measured, knows = facts.metrics, facts.direction_of
        if measured is None:
            if self.name and self._direction == "auto" and knows is not None and knows(self.name) is None:
                raise InputError(Problem(self._unknown(self.name), advice=SAY_DIRECTION, argument="direction"))
            return
        if not measured:
            message = f"{self._owner} needs validations, and this run makes none while it trains"
            raise InputError(Problem(message, advice=HOW_TO_VALIDATE))
        if self.name is not None and not any(self.name in names_of(known) for known in measured):
            message = f"{self._owner}: no validation measures '{self.name}'"
            raise InputError(Problem(message, advice=nearest(self.name, measured), argument="monitor_metric"))

    def read(self, record: ValidationRecord) -> MetricReading | None:
        """Return its value in a validation; ``None`` where that is not measured in it, or says nothing."""
        if self.name is None:
            some = (metric for metric in record.metrics if self._knows(record, metric))
            self.name = next((f"{record.dataset}/{metric}" for metric in some), None)
        if self.name is None and record.metrics:
            self._note_unknown(f"{record.dataset}/{next(iter(record.metrics))}")
        for metric, value in record.metrics.items():
            full = f"{record.dataset}/{metric}"
            if self.name in names_of(full):
                self.name, self._seen = full, {}
                if not self._knows(record, metric):
                    self._note_unknown(full)
                    return None
                if record.says_nothing_of(metric):
                    return None
                higher = record.better_is_higher.get(metric, False)
                higher = higher if self._direction == "auto" else self._direction == "higher"
                return MetricReading(float(value), higher, self._is_comparable(record.measured_by.get(metric, "")))
            self._note_other(full, record.step)
        return None

    @property
    def shown(self) -> str:
        """Its name as people may see it: it may be anybody's."""
        return visible(self.name or "")

    def take_up(self, before: str | None, measured_by: str = "") -> bool:
        """Go on with the metric that was watched before; say whether it is the one that is asked for now."""
        if before is not None and self.name is not None and self.name not in names_of(before):
            return False
        self.name, self.measured_by = before or self._asked, measured_by
        return True

    def _is_comparable(self, measured_by: str) -> bool:
        """Say whether values of now compare with those before; note, once, where they do not."""
        before, self.measured_by = self.measured_by, measured_by or self.measured_by
        if not before or before == self.measured_by:
            return True
        logger.warning(
            "%s: %s is measured by %s now, and was by %s: it begins anew", self._owner, self.shown, measured_by, before
        )
        return False

    def _knows(self, record: ValidationRecord, metric: str) -> bool:
        return self._direction != "auto" or metric in record.better_is_higher

    def _unknown(self, name: str) -> str:
        return f"{self._owner} cannot tell whether a higher {visible(name)} is better, or a lower one"

    def _note_unknown(self, name: str) -> None:
        """Say once that nothing is decided upon a metric whose better direction is unknown."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s, and decides nothing upon it. %s", self._unknown(name), SAY_DIRECTION)

    def _note_other(self, full: str, step: int) -> None:
        """Say once, where the same figure has come twice, that what is watched never comes."""
        if self.name in self._seen:
            return
        if self._seen.setdefault(full, step) < step and self.name is not None:
            there = visible(", ".join(self._seen), LONGEST_NAMES)
            logger.warning("%s waits for '%s'; what is measured is %s", self._owner, visible(self.name), there)
            self._seen[self.name] = step


def is_better(value: float, best: float | None, *, higher: bool, by: float) -> bool:
    """Say whether a value is better than the best so far by more than ``by``; what is no number never is."""
    if not isfinite(value):
        return False
    return best is None or (value - best > by if higher else best - value > by)


def names_of(full: str) -> tuple[str, str, str]:
    """Return the names a metric goes by: ``val/psnr``, ``psnr``, and as transformers writes it, ``val_psnr``."""
    return full, full.partition("/")[2], full.replace("/", "_", 1)
