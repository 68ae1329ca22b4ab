"""Losses of a batch and of its parts, and which way of weighing explains them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from trainauto.integrations.huggingface.loss import Weighing

TOLERANCE = 0.05
"""How far a weighted sum over parts may lie from the loss of the whole: auxiliary losses couple samples a little, and
the wrong weights are off by more where losses differ."""

SIGNIFICANT = 1e-3
"""Differences between two ways of weighting below this say nothing: half precision does not agree to the last bit."""

TELLING = 0.05
"""How far losses of parts lie apart, as a share of the whole's, where they tell what parts weigh to some per cent."""

SHARE = 0.2
"""How far a weighted sum may be off where losses tell, as a share of how far they lie apart: the wrong weights are."""

TINY = 1e-12

DECLARE = "Say how parts of a batch are weighted: loss_weighing= or splittable= of the Trainer (docs/huggingface.md)."


@dataclass(frozen=True)
class Found:
    """How the losses of parts make up that of a batch.

    Attributes:
        weighing: how.
        by_labels: whether the loss of a batch is a mean over its labels rather than over its samples.
        doubt: what is not sure, in words; empty where nothing is.
    """

    weighing: Weighing
    by_labels: bool = False
    doubt: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**vars(self), "weighing": self.weighing.name}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Take back :meth:`to_dict`."""
        return cls(Weighing[state["weighing"]], bool(state["by_labels"]), str(state["doubt"]))


@dataclass(frozen=True)
class Cut:
    """A batch and two parts of it.

    Attributes:
        losses: of the batch and of its parts, as means.
        sums: the same where the loss is divided by the labels of the batch; empty where that cannot be asked for.
        weights: what each part weighs, by the way of weighing; only those ways that can be told.
    """

    losses: tuple[float, float, float]
    sums: tuple[float, ...]
    weights: Mapping[Weighing, tuple[float, float]]

    @property
    def apart(self) -> float:
        """How far the losses of the parts lie apart, as a share of the largest."""
        _, first, second = self.losses
        return abs(first - second) / self._size if math.isfinite(first) and math.isfinite(second) else 0.0

    @property
    def is_usable(self) -> bool:
        """Whether losses are finite numbers; that of a part which weighs nothing need not be."""
        whole, *parts = self.losses
        is_weightless = [any(not weights[part] for weights in self.weights.values()) for part in (0, 1)]
        return math.isfinite(whole) and all(
            math.isfinite(loss) or nothing for loss, nothing in zip(parts, is_weightless, strict=True)
        )

    def errors(self) -> dict[Weighing, float]:
        """Return how far each way of weighing is off, as a share of the loss."""
        whole, *parts = self.losses
        found = {way: abs(_mean(parts, weights) - whole) / self._size for way, weights in self.weights.items()}
        if self.sums:
            total, *sums = self.sums
            found = {Weighing.SUM: abs(sum(sums) - total) / max(*map(abs, self.sums), TINY), **found}
        return {way: error if math.isfinite(error) else math.inf for way, error in found.items()}

    @property
    def _size(self) -> float:
        return max(TINY, *(abs(loss) for loss in self.losses if math.isfinite(loss)))


def is_sum(cuts: Sequence[Cut]) -> bool:
    """Say whether losses that are divided by the labels of the whole batch add up."""
    return bool(cuts) and all(cut.errors().get(Weighing.SUM, 1.0) <= SIGNIFICANT for cut in cuts)


def reads_divisors(cuts: Sequence[Cut]) -> bool:
    """Say whether it was read, in all cuts, what losses are divided by."""
    return all(Weighing.DIVISOR in cut.weights for cut in cuts)


def tells(cuts: Sequence[Cut]) -> bool:
    """Say whether losses of parts differ enough, in some cut, to say what they weigh."""
    return any(cut.apart >= TELLING for cut in cuts)


def judged(cuts: Sequence[Cut]) -> Found:
    """Return the way of weighing that is least off, and what is to be said of it."""
    ways = [way for way in cuts[0].errors() if all(way in cut.errors() for cut in cuts)]
    worst = {way: max(cut.errors()[way] for cut in cuts) for way in ways}
    least = min(worst.values())
    is_off = any(min(cut.errors().values()) > SHARE * cut.apart for cut in cuts if cut.apart >= TELLING)
    if is_off or not least <= TOLERANCE:
        return Found(
            Weighing.COUPLED,
            doubt="no weights that can be found make the losses of parts that of a batch: either samples are compared "
            f"with each other, or they have weights that cannot be seen. {DECLARE}",
        )
    weighing = next(way for way, error in worst.items() if error <= least + SIGNIFICANT)
    by_labels = weighing is Weighing.SUM or worst.get(Weighing.ITEMS, math.inf) <= worst[Weighing.SAMPLES]
    doubt = ""
    if least > SIGNIFICANT:
        doubt = (
            f"the loss of a batch differs by {least:.1%} from what its parts make up: a term of it is no mean over "
            f"them (an auxiliary loss?). {DECLARE}"
        )
    elif weighing is not Weighing.DIVISOR and not tells(cuts):
        doubt = f"nothing tells for sure what parts of a batch weigh, since their losses agree. {DECLARE}"
    return Found(weighing, by_labels, doubt)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return a weighted mean; what weighs nothing may be no number."""
    terms = (value * weight for value, weight in zip(values, weights, strict=True) if weight)
    total = sum(weights)
    return sum(terms) / total if total else math.nan
