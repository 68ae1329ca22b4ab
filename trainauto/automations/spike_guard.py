"""Undoing what damages a run: a loss that leaps, gradients that are no numbers."""

from collections import deque
from collections.abc import Mapping
from heapq import nlargest
from math import isfinite, sqrt
from statistics import median
from typing import Any

from trainauto.automations.registry import AUTOMATIONS
from trainauto.core.automation import Automation
from trainauto.core.decisions import GiveUp, GoBack, RunFacts
from trainauto.core.records import StepRecord
from trainauto.core.words import counted

WINDOW_STEPS = 100
"""Steps whose losses say what is usual."""

FEWEST_STEPS = 50
"""Losses before anything is called unusual."""

FAR_DEVIATIONS = 10.0
"""Robust standard deviations that a loss must lie above the median to be far off."""

FAR_SHARE = 0.5
"""And the share of the median that it must lie above it at least: losses of a run that has converged hardly scatter."""

FAR_ABOVE_HIGHEST = 1.5
"""And how many times as far above the median as the third highest of the usual losses: where tasks or lengths differ,
or most losses are 0, a median absolute deviation says nothing of the high ones."""

HIGHEST = 3
"""Which of the highest losses that is: one or two freak batches hide no leap."""

RATE_LEAP = 3.0
"""A learning rate that is more than so many times that of the step before is a schedule that starts again: the loss
may leap with it."""

IN_A_ROW = 3
"""Steps that must be far off, one after the other: a single one is a batch, and the next one shows what it did."""

LOOKED_AT = 10
"""Steps between looks at what is usual: two medians of a hundred losses are dear for every step."""

NORMAL = 1.4826
"""Standard deviations of a normal distribution in a median absolute deviation (1 / its 75 % quantile)."""


@AUTOMATIONS.register("SpikeGuard")
class SpikeGuard(Automation):
    """Goes back to the last good checkpoint where the loss leaps or is no number, with the samples in another order.

    A loss leaps where three steps one after another lie ten robust standard deviations above the median of the last
    100, half of that median as well, and half as far again as the third highest of them. Noise is taken to fall with
    the root of the batch. Where a schedule starts again, losses of before say nothing. A checkpoint is good if the step
    after it was: the update that does the damage comes a step before the loss that shows it. Steps whose gradients are
    no finite numbers leave the weights alone.

    Args:
        max_rollbacks: how often a run goes back; after that, it ends with an error.
        skip_nonfinite: steps one after another whose loss or gradients may be no finite numbers before it goes back.
    """

    watches = True
    goes_back = True

    def __init__(self, max_rollbacks: int = 3, skip_nonfinite: int = 0) -> None:
        if max_rollbacks < 0:
            raise ValueError(f"max_rollbacks must be 0 or more, got {max_rollbacks}")
        if skip_nonfinite < 0:
            raise ValueError(f"skip_nonfinite must be 0 steps or more, got {skip_nonfinite}")
        self._max_rollbacks, self._skip = max_rollbacks, skip_nonfinite
        self._rollbacks = 0
        self._usual: deque[tuple[float, int]] = deque(maxlen=WINDOW_STEPS)
        self._middle, self._scatter = 0.0, 0.0
        self._until_look = FEWEST_STEPS
        self._high = 0.0, 1  # how far above the median the third highest lies, and of how many samples it is
        self._far: list[tuple[float, int]] = []
        self._rates: dict[str, float] = {}
        self._non_finite = 0
        self._kind: tuple[tuple[str, ...], int] | None = None

    def on_run_start(self, facts: RunFacts) -> None:
        """Learn how often the run has gone back."""
        self._rollbacks = facts.rollbacks

    def on_step_end(self, record: StepRecord) -> GoBack | GiveUp | None:
        """Look at the losses and gradients of a step."""
        if not record.losses or not record.shape.samples:
            return None
        loss = sum(record.losses.values())
        if record.non_finite or not isfinite(loss):
            return self._on_non_finite(record)
        self._non_finite = 0
        self._note_kind(record)
        self._note_rates(record)
        return self._on_loss(loss, record)

    def _on_non_finite(self, record: StepRecord) -> GoBack | GiveUp | None:
        self._non_finite += 1
        self._far = []
        if self._non_finite <= self._skip:
            return None
        passes = ", ".join(record.non_finite)
        what = f"the gradients of {passes} are no finite numbers" if passes else "the loss is no finite number"
        times = f" for {counted(self._non_finite, 'step')}, up to step {record.step}" if self._skip else ""
        return self._go_back(f"{what}{times}", record.step - self._non_finite + 1)

    def _on_loss(self, loss: float, record: StepRecord) -> GoBack | GiveUp | None:
        samples = record.shape.samples
        bound = self._bound(samples)
        if bound is None or loss <= bound:
            for usual in (*self._far, (loss, samples)):  # what has not lasted was a batch, and such batches are usual
                self._take_in(*usual)
            self._far = []
            return None
        self._far.append((loss, samples))
        if len(self._far) < IN_A_ROW:
            return None
        losses = ", ".join(f"{far:.4g}" for far, _ in self._far)
        reason = f"the loss leaps: {losses}, where {self._middle:.4g} is usual and {bound:.4g} is far off"
        return self._go_back(reason, record.step - IN_A_ROW + 1)

    def _bound(self, samples: int) -> float | None:
        """Return what a loss over so many samples is far off above; ``None`` while too little is known."""
        if len(self._usual) < FEWEST_STEPS:
            return None
        high, samples_of_high = self._high
        # Smaller batches have more noise. Larger ones are not taken to have less: part of it may not be theirs.
        above_highest = FAR_ABOVE_HIGHEST * high * sqrt(max(1.0, samples_of_high / samples))
        spread = max(FAR_DEVIATIONS * self._scatter / sqrt(samples), above_highest)
        # Losses that are all the same, as those of a hinge that is never touched, do not say what is far from them.
        return self._middle + max(spread, FAR_SHARE * abs(self._middle)) if spread else None

    def _take_in(self, loss: float, samples: int) -> None:
        """Count a loss among the usual ones."""
        self._usual.append((loss, samples))
        self._until_look -= 1
        if self._until_look <= 0:
            self._until_look = LOOKED_AT
            middle = self._middle = median(known for known, _ in self._usual)
            self._scatter = NORMAL * median(abs(known - middle) * sqrt(count) for known, count in self._usual)
            highest, count = nlargest(HIGHEST, self._usual)[-1]
            self._high = highest - middle, count

    def _note_rates(self, record: StepRecord) -> None:
        """Where a schedule starts again at a high rate, losses may leap: nothing is compared with those of before."""
        rates = dict(record.learning_rates)
        if any(rate > RATE_LEAP * self._rates.get(name, rate) for name, rate in rates.items()):
            self._forget()
        self._rates = rates

    def _forget(self) -> None:
        self._usual.clear()
        self._far, self._until_look = [], FEWEST_STEPS

    def _note_kind(self, record: StepRecord) -> None:
        """Where terms of the loss come or go, or crops change their size, nothing is compared with losses of before."""
        kind = tuple(sorted(record.losses)), 0 if record.shape.tokens else record.plan.size
        if self._kind not in (None, kind):
            self._forget()
        self._kind = kind

    def _go_back(self, reason: str, first_step: int) -> GoBack | GiveUp:
        """Undo what went wrong from a step on."""
        good_until = max(0, first_step - 2)
        if self._rollbacks < self._max_rollbacks:
            return GoBack(good_until, reason)
        times = f", after {counted(self._rollbacks, 'rollback')}" if self._rollbacks else ""
        return GiveUp(good_until, f"{reason}{times}")

    def state_dict(self) -> dict[str, Any]:
        """Return what is usual, and what has been unusual of late."""
        return {
            "usual": [list(step) for step in self._usual],
            "middle": self._middle,
            "scatter": self._scatter,
            "until_look": self._until_look,
            "high": list(self._high),
            "far": [list(step) for step in self._far],
            "rates": dict(self._rates),
            "non_finite": self._non_finite,
            "kind": None if self._kind is None else [list(self._kind[0]), self._kind[1]],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self._usual.clear()
        self._usual.extend((float(loss), int(samples)) for loss, samples in state["usual"])
        self._middle, self._scatter = float(state["middle"]), float(state["scatter"])
        self._until_look = int(state["until_look"])
        self._high = float(state["high"][0]), int(state["high"][1])
        self._far = [(float(loss), int(samples)) for loss, samples in state["far"]]
        self._rates = {str(name): float(rate) for name, rate in state["rates"].items()}
        self._non_finite = int(state["non_finite"])
        kind = state["kind"]
        self._kind = None if kind is None else (tuple(map(str, kind[0])), int(kind[1]))
