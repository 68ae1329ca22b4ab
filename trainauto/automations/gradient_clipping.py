"""Clipping gradients at a percentile of their own norms."""

from collections import deque
from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from trainauto.automations.registry import AUTOMATIONS
from trainauto.core.automation import Automation
from trainauto.core.decisions import ClipAt, RunFacts
from trainauto.core.errors import InputError, Problem
from trainauto.core.records import StepRecord

UPDATED_EVERY = 50
"""Steps between looks at the percentile of a pass."""

NOTABLE = 0.1
"""Share by which a percentile must have moved from the norm in force, so that the log stays readable."""


@AUTOMATIONS.register("AdaptiveGradientClipping")
class AdaptiveGradientClipping(Automation):
    """Clips gradients at a percentile of the norms that they have had, so that no step is far larger than the others.

    It follows AutoClip (Seetharaman, Wichern, Pardo and Le Roux 2020, https://arxiv.org/abs/2007.14469), which clips
    each step at a percentile of all norms so far, that step's own among them, and is mostly run at the 10th. Here the
    history is that of the last steps alone, each optimizer has one of its own, a step is never part of its own history,
    and nothing is clipped before there are enough norms. The norm in force is checked every 50 steps and changed where
    the percentile has moved by a tenth, so that each change has its line in the log. The percentile is the 90th by
    default: it leaves usual steps alone, while the 10th rescales nine of ten. What the run clips at by itself
    (``grad_clip``) stays the most that it clips at. (The method called adaptive gradient clipping by Brock et al. 2021
    compares gradients with weights, and is another one.)

    Args:
        percentile: of the norms; AutoClip is mostly run at 10.
        history_size: norms that are looked back at, of each optimizer.
        warmup_steps: norms there must be before anything is clipped.
    """

    watches = True

    def __init__(self, percentile: float = 90.0, history_size: int = 1000, warmup_steps: int = 100) -> None:
        if not 0 < percentile <= 100:
            raise ValueError(f"percentile must be above 0 and at most 100, got {percentile}")
        if percentile < 1:
            raise ValueError(f"percentile goes to 100, and {percentile} is a share of 1: write {100 * percentile:g}")
        if not 1 <= warmup_steps <= history_size:
            raise ValueError(f"warmup_steps must be 1 or more and at most history_size, got {warmup_steps}")
        self._percentile, self._history_size, self._warmup_steps = percentile, history_size, warmup_steps
        self._histories: dict[str, deque[float]] = {}
        self._in_force: dict[str, float] = {}
        self._due: dict[str, int] = {}
        self._most: float | None = None

    def check(self, facts: RunFacts) -> None:
        """Refuse a loop whose gradients cannot be clipped at what is decided.

        Raises:
            InputError: says what it takes.
        """
        if facts.lacks_clipping:
            message = f"{self.name} cannot clip here: that takes {facts.lacks_clipping}"
            raise InputError(Problem(message, advice="Install it; or have the run clip at a norm of its own instead."))

    def on_run_start(self, facts: RunFacts) -> None:
        """Take up what the run clips at by itself."""
        self._most = facts.max_norm

    def on_step_end(self, record: StepRecord) -> ClipAt | None:
        """Note the norms of a step; where the percentile of a pass has moved, clip at it from the next step on."""
        for name, norm in record.grad_norms.items():
            if isfinite(norm) and name not in record.skipped:
                self._histories.setdefault(name, deque(maxlen=self._history_size)).append(norm)
        for name, history in self._histories.items():
            if len(history) >= self._warmup_steps and record.step >= self._due.get(name, 0):
                self._due[name] = record.step + UPDATED_EVERY
                if (decision := self._looked_at(name, history)) is not None:
                    return decision  # another pass has its turn after the next step
        return None

    def _looked_at(self, name: str, history: deque[float]) -> ClipAt | None:
        norms = np.asarray(history, dtype=np.float64)
        at = float(np.percentile(norms, self._percentile))
        is_bounded = self._most is not None and self._most < at
        norm = self._most if is_bounded and self._most is not None else at
        before = self._in_force.get(name)
        if norm <= 0 or (before is not None and abs(norm - before) <= NOTABLE * before):
            return None
        self._in_force[name] = norm
        median, largest = float(np.median(norms)), float(norms.max())
        reason = (
            f"percentile {self._percentile:g} of the last {len(history)} norms is {at:.4g}"
            f"{', and the run clips at less by itself' if is_bounded else ''} (median {median:.4g}, "
            f"largest {largest:.4g})"
        )
        return ClipAt(norm, reason, pass_name=name)

    def state_dict(self) -> dict[str, Any]:
        """Return the histories, and what is in force."""
        return {
            "norms": {name: list(history) for name, history in self._histories.items()},
            "in_force": dict(self._in_force),
            "due": dict(self._due),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`; of a longer history the last norms."""
        self._histories = {name: deque(norms, maxlen=self._history_size) for name, norms in state["norms"].items()}
        self._in_force, self._due = dict(state["in_force"]), dict(state["due"])
