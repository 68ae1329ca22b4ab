"""What plans of a run are predicted to peak at."""

from collections.abc import Sequence
from dataclasses import replace

from trainauto.core.automation import Automation
from trainauto.core.decisions import Decision, PlanChange
from trainauto.core.plan import Plan
from trainauto.core.process import without_memory_limit


class PeakPredictions:
    """Asks automations what a plan will peak at; the first that knows is believed.

    They are asked when another plan is trained and after decisions, not in every step: an answer may take milliseconds.

    Args:
        automations: of the run, in their order.
    """

    def __init__(self, automations: Sequence[Automation]) -> None:
        self._automations = automations
        self._now: tuple[Plan, int | None] | None = None
        self._first: dict[Plan, int | None] = {}

    def predict(self, plan: Plan) -> int | None:
        """Return the peak of a plan that is about to be trained, in bytes."""
        if self._now is None or self._now[0] != plan:
            self._now = plan, self._first_answer(plan)
            self._first.setdefault(*self._now)
        return self._now[1]

    def reset(self) -> None:
        """Ask anew: what plans need has changed."""
        self._now = None
        self._first.clear()

    def annotate(self, decisions: Sequence[Decision], left: Plan | None) -> list[Decision]:
        """Return decisions with what was expected of the plan they leave and, where they lack it, of the new one.

        What was measured on the way to a decision is known from then on: expectations are asked for anew.
        """
        before = self._first.get(left) if left is not None else None
        annotated = [
            self._with_peaks(decision, before) if isinstance(decision, PlanChange) else decision
            for decision in decisions
        ]
        if decisions:
            self._now = None
        return annotated

    def _with_peaks(self, change: PlanChange, before: int | None) -> PlanChange:
        predicted = self._first_answer(change.plan) if change.predicted is None else change.predicted
        return replace(change, predicted=predicted, predicted_before=before)

    def _first_answer(self, plan: Plan) -> int | None:
        with without_memory_limit():
            answers = (automation.expected_bytes(plan) for automation in self._automations)
            return next((answer for answer in answers if answer is not None), None)
