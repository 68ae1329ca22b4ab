"""What each plan was predicted to peak at, and what was measured."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from trainauto.core.plan import Plan
from trainauto.core.records import StepRecord
from trainauto.core.step_blocks import StepBlock

REMEMBERED_STEPS = 1000
"""The typical peak of a plan is the median of so many of its last steps, so that a run of any length takes no room."""


@dataclass(frozen=True)
class PlanPeak:
    """One plan over a run.

    Attributes:
        plan: which.
        steps: optimizer steps trained under it, cut ones included.
        predicted_bytes: what it was expected to peak at before its first step; ``None`` if unknown.
        typical_bytes: median of the peaks of its whole steps; ``None`` where there was none.
        highest_bytes: the largest of them.
        ooms: times memory ran out under it.
    """

    plan: Plan
    steps: int
    predicted_bytes: int | None
    typical_bytes: int | None
    highest_bytes: int | None
    ooms: int = 0


@dataclass
class _PlanTotals:
    predicted_bytes: int | None
    steps: int = 0
    ooms: int = 0
    highest_bytes: int | None = None
    last_bytes: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED_STEPS))


class PlanPeaks:
    """Sums up steps by plan."""

    def __init__(self) -> None:
        self._plans: dict[Plan, _PlanTotals] = {}

    def add(self, record: StepRecord) -> None:
        """Take one more step in."""
        totals = self._plans.get(record.plan)
        if totals is None:
            totals = self._plans[record.plan] = _PlanTotals(record.predicted)
        totals.steps += 1
        totals.ooms += record.ooms
        # A cut batch or one in pieces says nothing of what the plan takes.
        if record.peak is not None and record.is_whole:
            totals.last_bytes.append(record.peak.allocated)
            totals.highest_bytes = max(totals.highest_bytes or 0, record.peak.allocated)

    def add_block(self, block: StepBlock) -> None:
        """Take steps in that went alike."""
        plan, peaks = block.first.plan, block.whole_bytes
        totals = self._plans.get(plan)
        if totals is None:
            totals = self._plans[plan] = _PlanTotals(block.first.predicted)
        totals.steps += len(block)
        if peaks:
            totals.last_bytes.extend(peaks)
            totals.highest_bytes = max(totals.highest_bytes or 0, *peaks)

    def rows(self, most: int | None = None) -> tuple[list[PlanPeak], int]:
        """Return the plans in the order of their first steps, and how many were left out.

        Args:
            most: rows to return; those trained longest are kept.
        """
        rows = [
            PlanPeak(
                plan,
                totals.steps,
                totals.predicted_bytes,
                int(median(totals.last_bytes)) if totals.last_bytes else None,
                totals.highest_bytes,
                totals.ooms,
            )
            for plan, totals in self._plans.items()
        ]
        longest = sorted(rows, key=lambda row: row.steps, reverse=True)[:most]
        return [row for row in rows if row in longest], len(rows) - len(longest)
