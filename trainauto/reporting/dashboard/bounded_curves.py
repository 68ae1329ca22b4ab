"""Curves of bounded size: what a step was worth, summed up by ranges of steps, however many there are."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

MOST_RANGES = 1000
"""Ranges of steps of a curve; with the least and the greatest value of each, 2,000 points."""

MOST_WAITING = 256
"""Steps whose values are kept before they are summed up: few beside the ranges of a curve."""

MOST_CHANGES = 1000
"""Changes of a value that is drawn in steps."""

_SUM, _COUNT, _LEAST, _GREATEST = range(4)


class Curves:
    """Values of steps by name. Of ranges of steps it keeps the mean, the least and the greatest value.

    A range is as many steps as it takes for all to fit into 1,000 of them: once there are more, neighbours are joined.
    A spike of one step among a million is still seen, for it is the greatest value of its range.

    Args:
        most: ranges to keep.
    """

    def __init__(self, most: int = MOST_RANGES) -> None:
        self._most = most
        self._width = 1
        self._number = -1
        self._steps: list[int] = []
        self._ranges: list[dict[str, list[float]]] = []
        self._names: tuple[str, ...] = ()
        self._waiting: list[tuple[float, ...]] = []

    @property
    def steps(self) -> Sequence[int]:
        """Last step of each range."""
        return self._steps

    @property
    def width(self) -> int:
        """How many steps a range is."""
        return self._width

    @property
    def are_summed_up(self) -> bool:
        """Whether a range is more than one step."""
        return self._width > 1

    @property
    def names(self) -> list[str]:
        """The curves, in the order in which they first had a value."""
        self._sum_up()
        return list(dict.fromkeys(name for entries in self._ranges for name in entries))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Take the values of a step in; steps ascend. What is no finite number is left out."""
        number = step // self._width
        if number != self._number:
            self._begin(step)
        self._steps[-1] = step
        names = tuple(values)
        if names != self._names:
            self._sum_up()
            self._names = names
        self._waiting.append(tuple(values.values()))
        if len(self._waiting) >= MOST_WAITING:
            self._sum_up()

    def add_rows(self, step: int, names: tuple[str, ...], rows: Sequence[tuple[float, ...]]) -> None:
        """Take the values of steps in that follow each other from ``step`` on; each has all of the names."""
        place = 0
        while place < len(rows):
            if (step + place) // self._width != self._number:
                self._begin(step + place)
            if names != self._names:
                self._sum_up()
                self._names = names
            left_of_range = (self._number + 1) * self._width - (step + place)
            end = min(len(rows), place + left_of_range, place + MOST_WAITING - len(self._waiting))
            self._waiting += rows[place:end]
            self._steps[-1] = step + end - 1
            place = end
            if len(self._waiting) >= MOST_WAITING:
                self._sum_up()

    def means(self, name: str) -> list[float | None]:
        """Return the mean of each range; ``None`` where it has no value."""
        return [rounded(entry[_SUM] / entry[_COUNT]) if entry else None for entry in self._of(name)]

    def least(self, name: str) -> list[float | None]:
        """Return the least value of each range."""
        return [rounded(entry[_LEAST]) if entry else None for entry in self._of(name)]

    def greatest(self, name: str) -> list[float | None]:
        """Return the greatest value of each range."""
        return [rounded(entry[_GREATEST]) if entry else None for entry in self._of(name)]

    def ratio(self, above: str, below: str) -> list[float | None]:
        """Return the sum of one curve over that of another in each range, e.g. samples over seconds."""
        pairs = zip(self._of(above), self._of(below), strict=True)
        return [rounded(one[_SUM] / other[_SUM]) if one and other and other[_SUM] else None for one, other in pairs]

    def sums(self, name: str) -> list[float]:
        """Return the sum of each range."""
        return [entry[_SUM] if entry else 0.0 for entry in self._of(name)]

    def _of(self, name: str) -> list[list[float] | None]:
        self._sum_up()
        return [entries.get(name) for entries in self._ranges]

    def _sum_up(self) -> None:
        """Take what waits into the last range: of a thousand values at once that is a fraction of the work."""
        for name, values in zip(self._names, zip(*self._waiting, strict=True), strict=False):
            finite = values if math.isfinite(sum(values)) else [value for value in values if math.isfinite(value)]
            if finite:
                entry = [sum(finite), len(finite), min(finite), max(finite)]
                _join(self._ranges[-1], {name: entry})
        self._waiting = []

    def _begin(self, step: int) -> None:
        self._sum_up()
        if len(self._ranges) >= self._most:
            self._join_neighbours()
        self._number = step // self._width
        if self._steps and self._steps[-1] // self._width == self._number:
            return  # the last range has become one that the step is in
        self._steps.append(step)
        self._ranges.append({})

    def _join_neighbours(self) -> None:
        while len(self._ranges) >= self._most:
            self._width *= 2
            steps, ranges = self._steps, self._ranges
            self._steps, self._ranges = [], []
            for step, entries in zip(steps, ranges, strict=True):
                if self._steps and self._steps[-1] // self._width == step // self._width:
                    self._steps[-1] = step
                    _join(self._ranges[-1], entries)
                else:
                    self._steps.append(step)
                    self._ranges.append(entries)


class Changes:
    """A value that seldom changes: each change with its step. Of too many, every second is dropped.

    Args:
        most: changes to keep.
    """

    def __init__(self, most: int = MOST_CHANGES) -> None:
        self._most = most
        self._points: list[tuple[int, float]] = []
        self._last: tuple[int, float] | None = None

    def add(self, step: int, value: float) -> None:
        """Take the value of a step in; steps ascend."""
        if self._last is None or value != self._last[1]:
            self._points.append((step, value))
        self._last = step, value
        if len(self._points) > self._most:
            self._points = self._points[::2]

    def stays(self, step: int) -> None:
        """Take in that a step has the value of the one before."""
        if self._last is not None:
            self._last = step, self._last[1]

    def points(self) -> tuple[list[int], list[float]]:
        """Return the steps of the changes with the values from there on, and at the end the last step."""
        points = (
            [*self._points, self._last] if self._last is not None and self._last != self._points[-1] else self._points
        )
        return [step for step, _ in points], [value for _, value in points]


def rounded(value: float) -> float:
    """Return a number with six significant digits: more than anybody sees, and half the size of the page."""
    if math.isinf(value):  # a sum of numbers that are nearly so
        return math.copysign(sys.float_info.max, value)
    if isinstance(value, int) or (value == (whole := int(value)) and abs(whole) < 10**15):
        return int(value)
    return float(f"{value:.6g}")


def _join(entries: dict[str, list[float]], later: Mapping[str, list[Any]]) -> None:
    for name, entry in later.items():
        mine = entries.get(name)
        if mine is None:
            entries[name] = entry
            continue
        mine[_SUM] += entry[_SUM]
        mine[_COUNT] += entry[_COUNT]
        mine[_LEAST] = min(mine[_LEAST], entry[_LEAST])
        mine[_GREATEST] = max(mine[_GREATEST], entry[_GREATEST])
