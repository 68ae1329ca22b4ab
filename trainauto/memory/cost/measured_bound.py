"""How large batches may be while they run: predicted costs are bounded, and measured peaks correct the bound."""

import sys

from trainauto.core.units import MIB

NOISE_BYTES = 16 * MIB
"""Use below this says nothing: a CPU's heap keeps that much free, which is filled without being seen."""

TOLERANCE = 1.02
"""Peaks so little above the target are equal to it."""

LARGEST_GROWTH = 2.0
"""A bound grows past a cost that ran by no more than this factor: beyond, it would be extrapolated."""

AFTER_FAILURE = 0.75
"""Of the cost of a batch that ran out of memory so much is tried again later. Its own texts come again in halves."""


class MeasuredBound:
    """Greatest predicted cost of the next batch.

    A batch that took more than the target lowers the bound to what would have met it. One that took less raises it
    again, no further than it was predicted to be, unless batches are to fill a target of their own. Memory is taken to
    be proportional to cost: where a part of it is constant, corrections fall short, and come nearer batch by batch.

    Args:
        bound: greatest cost by prediction, in the cost's unit.
        fills: batches may grow past that, up to the target that is set.
    """

    def __init__(self, bound: int, *, fills: bool = False) -> None:
        self._bound = bound
        self._most = sys.maxsize if fills else bound
        self._fills = fills
        self._target_bytes: int | None = None

    @property
    def value(self) -> int:
        """Greatest cost of the next batch."""
        return self._bound

    def set_target(self, target_bytes: int) -> None:
        """Say how much batches may take beside what is held; without it, what the first is seen to take."""
        self._target_bytes = max(target_bytes, 1)

    def observe(self, cost: int, used_bytes: int) -> None:
        """Learn from a batch that ran.

        Args:
            cost: its predicted cost.
            used_bytes: its peak, without what was held before it.
        """
        if self._target_bytes is None:
            self._target_bytes = max(used_bytes, NOISE_BYTES)
        if used_bytes < NOISE_BYTES and not self._fills:
            return
        meets = int(min(cost * self._target_bytes / max(used_bytes, NOISE_BYTES), LARGEST_GROWTH * cost))
        if used_bytes > TOLERANCE * self._target_bytes:
            self._bound = min(self._bound, meets)
        else:
            self._bound = max(self._bound, min(meets, self._most))

    def fail(self, cost: int) -> None:
        """Learn from a batch of this predicted cost that ran out of memory: no later one costs as much."""
        self._bound = self._most = min(self._bound, int(AFTER_FAILURE * cost))
