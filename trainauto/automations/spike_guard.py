"""Undoing what damages a run: a loss that leaps, gradients that are no numbers."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from trainauto.automations.registry import AUTOMATIONS
from trainauto.automations.usual_losses import UsualLosses
from trainauto.core.automation import Automation
from trainauto.core.decisions import GiveUp, GoBack, RunFacts
from trainauto.core.objectives import WEIGHT
from trainauto.core.records import StepRecord
from trainauto.core.words import counted

RATE_LEAP = 3.0
"""A learning rate, or the weight of a loss, that is more than so many times that of the step before: the loss may leap
with it."""

IN_A_ROW = 3
"""Steps that must be far off, one after the other: a single one is a batch, and the next one shows what it did."""

EXPLODED = 10_000.0
"""How many times the largest loss so far, and 1, one must be that explodes, where too little is known of what is usual:
losses that begin at next to nothing may grow a lot."""

REMEMBERED_STEPS = 10_000
"""Steps that are kept since a rollback, after which it counts no more: a long run may have several bad moments."""

MOST_KINDS = 8
"""Kinds of steps (terms of the loss, size of the crop) whose losses are told apart."""


Kind = tuple[tuple[str, ...], int]
"""Terms of the loss of a step, and the size of its crop; 0 of texts."""


@AUTOMATIONS.register("SpikeGuard")
class SpikeGuard(Automation):
    """Goes back to the last good checkpoint where the loss leaps or is no number, with the samples in another order.

    A loss leaps where three steps one after another lie ten robust standard deviations above the median of the last
    100, half of that median as well, and half as far again as the third highest of them. Noise is taken to fall with
    the root of the batch. In the first 50 steps, and after a schedule has started again, only ten thousand times the
    largest loss so far is a leap. A checkpoint is good if the step after it was: the update that does the damage comes
    a step before the loss that shows it. Steps whose gradients are no finite numbers leave the weights alone.

    Args:
        max_rollbacks: how often a run goes back within 10,000 steps; after that, it ends with an error.
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
        self._rollbacks: tuple[int, ...] = ()
        self._usual: dict[Kind, UsualLosses] = {}
        self._far: list[tuple[float, int]] = []
        self._rates: dict[str, float] = {}
        self._non_finite = 0
        self._largest, self._seen = 0.0, 0

    def on_run_start(self, facts: RunFacts) -> None:
        """Learn where the run has gone back to."""
        self._rollbacks = facts.rollbacks

    def on_step_end(self, record: StepRecord) -> GoBack | GiveUp | None:
        """Look at the losses and gradients of a step."""
        if not record.losses or not record.shape.samples:
            return None
        loss = record.loss
        if record.non_finite or not isfinite(loss):
            return self._on_non_finite(record)
        self._non_finite = 0
        if record.left_out:  # the loss of other steps has terms that this one lacks
            return None
        self._note_rates(record)
        return self._on_loss(loss, record)

    def _on_non_finite(self, record: StepRecord) -> GoBack | GiveUp | None:
        self._non_finite += 1
        self._far = []
        if self._non_finite <= self._skip:
            return None
        terms = ", ".join(
            name for name, value in record.losses.items() if not isfinite(value) and name not in record.told
        )
        passes = ", ".join(record.non_finite)
        what = f"loss {terms} is not finite" if terms else f"the gradients of {passes} are not finite"
        times = f" for {counted(self._non_finite, 'step')}, up to step {record.step}" if self._skip else ""
        return self._go_back(f"{what}{times}", record.step - self._non_finite + 1)

    def _on_loss(self, loss: float, record: StepRecord) -> GoBack | GiveUp | None:
        samples, usual = record.shape.samples, self._usual_of(record)
        bound = usual.bound(samples)
        if bound is None and self._seen >= IN_A_ROW:  # too little is known: only what can be nothing else is a leap
            bound = EXPLODED * max(self._largest, 1.0)
        if bound is None or loss <= bound:
            if usual.is_known or self._seen < IN_A_ROW:  # a loss that explodes step by step is not its own measure
                self._largest, self._seen = max(self._largest, abs(loss)), self._seen + 1
            for one in (*self._far, (loss, samples)):  # what has not lasted was a batch, and such batches are usual
                usual.add(*one)
            self._far = []
            return None
        self._far.append((loss, samples))
        if len(self._far) < IN_A_ROW:
            return None
        losses = ", ".join(f"{far:.4g}" for far, _ in self._far)
        usually = f"{usual.middle:.4g} is usual" if usual.is_known else f"{self._largest:.4g} was the largest"
        reason = f"the loss spikes: {losses}, where {usually} and more than {bound:.4g} is far off"
        return self._go_back(reason, record.step - IN_A_ROW + 1)

    def _usual_of(self, record: StepRecord) -> UsualLosses:
        """Return what is usual for steps of a kind: the same terms of the loss, the same size of the crop."""
        kind = tuple(sorted(record.losses)), 0 if record.shape.tokens else record.plan.size
        usual = self._usual.pop(kind, None) or UsualLosses()
        self._usual[kind] = usual  # the last one, as the newest
        while len(self._usual) > MOST_KINDS:
            del self._usual[next(iter(self._usual))]
        return usual

    def _note_rates(self, record: StepRecord) -> None:
        """Where a schedule starts again at a high rate, losses may leap: nothing is compared with those of before."""
        rates = {
            **record.learning_rates,
            **{name: record.losses[name] for name in record.told if name.endswith(WEIGHT)},
        }
        if any(rate > RATE_LEAP * self._rates.get(name, rate) for name, rate in rates.items()):
            self._usual, self._far = {}, []
        self._rates = rates

    def _go_back(self, reason: str, first_step: int) -> GoBack | GiveUp:
        """Undo what went wrong from a step on."""
        good_until = max(0, first_step - 2)
        lately = sum(first_step - to_step <= REMEMBERED_STEPS for to_step in self._rollbacks)
        if lately < self._max_rollbacks:
            return GoBack(good_until, reason)
        times = f", after {counted(lately, 'rollback')} within {REMEMBERED_STEPS} steps" if lately else ""
        return GiveUp(good_until, f"{reason}{times}")

    def state_dict(self) -> dict[str, Any]:
        """Return what is usual, and what has been unusual of late."""
        return {
            "usual": [[list(terms), size, usual.state_dict()] for (terms, size), usual in self._usual.items()],
            "far": [list(step) for step in self._far],
            "rates": dict(self._rates),
            "non_finite": self._non_finite,
            "largest": self._largest,
            "seen": min(self._seen, IN_A_ROW),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self._usual = {
            (tuple(map(str, terms)), int(size)): UsualLosses.from_state(usual) for terms, size, usual in state["usual"]
        }
        self._far = [(float(loss), int(samples)) for loss, samples in state["far"]]
        self._rates = {str(name): float(rate) for name, rate in state["rates"].items()}
        self._non_finite, self._largest = int(state["non_finite"]), float(state["largest"])
        self._seen = int(state["seen"])
