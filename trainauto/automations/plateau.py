"""Telling a figure that stands still from one that moves slowly under noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import Any

from trainauto.automations.span import NOTHING, Span

FEWEST = 4
"""Values of which two are compared with two."""

SIGNIFICANT = 2.0
"""Standard errors by which the mean of later values must be better to be so."""

SLOWEST = 0.01
"""Improvement within patience, as a share of the figure, that must not be taken for none."""

VISIBLE = 4.0
"""Standard errors that such an improvement would come to before standing still is believed: seen by less than
:data:`SIGNIFICANT` it is then missed in one of 40 cases."""

MOST = 1000
"""Values kept; of more, the oldest are forgotten, where patience is not longer than that."""


@dataclass(frozen=True)
class Halves:
    """The earlier and the later half of a stretch of values.

    Attributes:
        earlier: mean of the earlier half.
        later: of the later one.
        error: standard error of their difference. Noise is taken from differences of neighbours, which a slow change
            hardly touches (von Neumann 1941, "Distribution of the ratio of the mean square successive difference to
            the variance").
    """

    earlier: float
    later: float
    error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Halves":
        """Compare; of an odd number of values, the one in the middle belongs to neither half."""
        half = len(values) // 2
        steps = [(after - before) ** 2 for before, after in pairwise(values)]
        return cls(fmean(values[:half]), fmean(values[-half:]), sqrt(fmean(steps) / half))


@dataclass
class Plateau:
    """Compares the later half of a stretch of values with the earlier one; lower is better.

    Where the later half is better, the earlier one is forgotten. Where it is not, the stretch grows until noise would
    no longer hide an improvement of a hundredth within patience: the noisier a figure, the longer it is looked at.

    Attributes:
        values: of the stretch.
        spans: how long it was trained for each of them.
        earlier: mean of the earlier half, when it was last compared.
        later: of the later one.
        compared: length of the stretch then.
    """

    values: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    earlier: float = 0.0
    later: float = 0.0
    compared: Span = NOTHING

    def add(self, value: float, span: Span, patience: Span, threshold: float) -> bool | None:
        """Take in a value; say whether it has improved, or stands still (False); ``None`` is not known yet.

        Args:
            value: of the figure.
            span: that was trained for it.
            patience: that a stretch must have, in steps and in samples.
            threshold: share of the figure below which a change is none.
        """
        self.values.append(value)
        self.spans.append(span)
        self._forget_oldest(patience)
        count, total = len(self.values), sum(self.spans, NOTHING)
        if count < FEWEST or not total.reaches(patience):
            return None
        halves = Halves.of(self.values)
        self.earlier, self.later, self.compared = halves.earlier, halves.later, total
        change, level = halves.earlier - halves.later, abs(halves.later)
        if change > SIGNIFICANT * halves.error and change > threshold * level:
            half = count // 2
            del self.values[:half], self.spans[:half]
            return True
        # Halves lie half a stretch apart, so that this is what a slow improvement would have come to between them.
        slow = SLOWEST * level * total.share_of(patience) / 2
        return False if slow >= VISIBLE * halves.error else None

    def _forget_oldest(self, patience: Span) -> None:
        if len(self.values) > MOST and sum(self.spans[1:], NOTHING).reaches(patience):
            del self.values[0], self.spans[0]

    def forget(self) -> None:
        """Begin a new stretch."""
        self.values, self.spans = [], []

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"values": list(self.values), "spans": [[span.steps, span.samples] for span in self.spans]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Plateau":
        """Return one that goes on where another left off; of an earlier version, which kept no steps, a new one."""
        if "spans" not in state:
            return cls()
        return cls(list(state["values"]), [Span(int(steps), int(samples)) for steps, samples in state["spans"]])
