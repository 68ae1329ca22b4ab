"""How large batches may be while they run: predicted costs are bounded, and corrected by measured peaks."""

from collections import deque

RECENT = 8
"""Batches whose measurements count: those before are of longer texts, and other in what a unit of cost takes."""

LARGEST_GROWTH = 2.0
"""A bound lies no further than this factor above the largest cost that ran: beyond, it would be extrapolated."""

AFTER_FAILURE = 0.75
"""Of the cost of a batch that ran out of memory so much is tried again later. Its own texts come again in halves."""


class MeasuredBound:
    """Greatest predicted cost of the next batch.

    Memory follows the predicted cost. How many bytes one unit of cost takes is measured with each batch: where that
    rises, the bound falls, and the other way round.

    Args:
        bound: greatest cost until something is measured, in the cost's unit. Batches may then take as many bytes as
            one of this cost takes by the first measurement.
    """

    def __init__(self, bound: int) -> None:
        self._bound = float(bound)
        self._target_bytes: float | None = None
        self._failed_bytes = float("inf")
        self._bytes_per_unit: deque[float] = deque(maxlen=RECENT)
        self._largest_cost = 0

    @property
    def value(self) -> int:
        """Greatest cost of the next batch."""
        if self._target_bytes is None:
            return int(self._bound)
        allowed = min(self._target_bytes, self._failed_bytes) / max(self._bytes_per_unit)
        return int(min(allowed, LARGEST_GROWTH * self._largest_cost))

    def observe(self, cost: int, used_bytes: int) -> None:
        """Learn from a batch that ran.

        Args:
            cost: its predicted cost.
            used_bytes: its peak, without what was held before it; of 0 and less nothing is learned.
        """
        if cost < 1 or used_bytes < 1:
            return
        self._bytes_per_unit.append(used_bytes / cost)
        self._largest_cost = max(self._largest_cost, cost)
        if self._target_bytes is None:
            self._target_bytes = self._bound * used_bytes / cost

    def set_target(self, target_bytes: int) -> None:
        """Let batches take so many bytes beside what is held; for as long as nothing was measured, it is no help."""
        if self._target_bytes is not None:
            self._target_bytes = float(max(0, target_bytes))

    def fail(self, cost: int) -> None:
        """Learn from a batch of this predicted cost that ran out of memory."""
        self._bound = min(self._bound, AFTER_FAILURE * cost)
        if self._bytes_per_unit:
            self._failed_bytes = min(self._failed_bytes, AFTER_FAILURE * cost * max(self._bytes_per_unit))
