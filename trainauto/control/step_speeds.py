"""How long a step takes by its plan, from the plans that were trained.

Seconds over work (samples times units of a sample) are convex, never fall, and never rise by more than in proportion: a
device that is not busy takes as long for more, a busy one as much longer as there is more. So what was measured bounds
what was not: between two plans the chord from above, and the shorter of both or its share of the longer from below;
beyond the longest, as much longer from above and the last two in a line from below; below the shortest, the shortest
itself and a share of it.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REMEMBERED = 12
"""Plans that are remembered."""

BEYOND = 0.25
"""How far growth beyond the measured plans is taken from the line through the last two towards proportional."""


@dataclass(frozen=True)
class Seconds:
    """Least, expected and most seconds of a step; one figure where it was measured."""

    least: float
    expected: float
    most: float


class StepSpeeds:
    """Seconds of steps by work; a newer measurement replaces an older one by halves."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    @property
    def works(self) -> list[int]:
        """What was measured, in ascending order."""
        return sorted(self._seconds)

    def observe(self, work: int, seconds: float) -> None:
        """Take in the typical seconds of a step."""
        before = self._seconds.pop(work, seconds)
        self._seconds[work] = (before * seconds) ** 0.5
        while len(self._seconds) > REMEMBERED:
            self._seconds.pop(next(iter(self._seconds)))

    def predict(self, work: int) -> Seconds:
        """Return how long a step of so much work takes.

        Raises:
            ValueError: nothing was measured.
        """
        works = self.works
        if not works:
            raise ValueError("no plan was timed yet")
        place = bisect_left(works, work)
        if place < len(works) and works[place] == work:
            seconds = self._seconds[work]
            return Seconds(seconds, seconds, seconds)
        if place == 0:
            shortest = self._seconds[works[0]]
            slope = self._slope(works[:2]) if len(works) > 1 else shortest / works[0]
            share = shortest * work / works[0]
            return Seconds(share, max(share, shortest - slope * (works[0] - work)), shortest)
        low = works[place - 1]
        if place < len(works):
            chord = self._seconds[low] + self._slope(works[place - 1 : place + 1]) * (work - low)
            share = self._seconds[works[place]] * work / works[place]
            return Seconds(min(max(self._seconds[low], share), chord), chord, chord)
        longest = self._seconds[low]
        most = longest * work / low
        least = longest + (self._slope(works[-2:]) * (work - low) if len(works) > 1 else 0.0)
        least = min(least, most)
        expected = least + BEYOND * (most - least) if len(works) > 1 else most
        return Seconds(least, expected, most)

    def _slope(self, works: list[int]) -> float:
        low, high = works
        return max(0.0, (self._seconds[high] - self._seconds[low]) / (high - low))

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume, or the next run of the kind, needs."""
        return {"seconds": [[work, seconds] for work, seconds in self._seconds.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self._seconds = {int(work): float(seconds) for work, seconds in state["seconds"]}
