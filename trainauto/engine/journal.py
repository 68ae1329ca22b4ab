"""The journal of a run: it asks automations, carries out what they decide, and keeps it for the next record."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainauto.core.automation import Automation
from trainauto.core.decisions import ClipAt, Decision, PlanChange, RateFactor
from trainauto.core.plan import Plan
from trainauto.core.process import without_memory_limit
from trainauto.distributed.communicator import SINGLE_PROCESS, Communicator
from trainauto.engine.controls import Controls


class DecisionJournal:
    """Every decision of a run passes through here, and so do failures that no record has counted yet.

    Args:
        controls: carry decisions out.
        automations: of the first rank, in their order.
        ranks: all of them decide alike.
    """

    def __init__(
        self, controls: Controls, automations: Sequence[Automation] = (), ranks: Communicator = SINGLE_PROCESS
    ) -> None:
        self.controls = controls
        self.automations = automations
        self.predictions = PeakPredictions(automations)
        self._ranks = ranks
        self._kept: list[Decision] = []
        self._ooms = 0

    def ask(self, event: Callable[[Automation], Decision | None]) -> list[Decision]:
        """Return what the automations decide upon an event, on all ranks."""
        return self._ranks.broadcast_decisions(
            lambda: [
                _signed(decision, automation.name)
                for automation in self.automations
                if (decision := event(automation)) is not None
            ]
        )

    def apply(self, decisions: Sequence[Decision], left: Plan | None) -> list[Decision]:
        """Carry decisions out; return them with what was predicted of the plan they leave, and of the new one."""
        self.controls.apply(decisions)
        return self.predictions.annotate(decisions, left)

    def decide(self, decisions: Sequence[Decision], left: Plan | None, *, early: bool = False) -> list[Decision]:
        """Carry decisions out and keep them for the next record.

        Args:
            decisions: of automations, or of the engine.
            left: the plan they were made under.
            early: they were made before the step that the record is of.
        """
        annotated = self.apply(decisions, left)
        kept = [replace(decision, early=True) for decision in annotated] if early else annotated
        self._kept += kept
        return kept

    def follow(self, decisions: Sequence[Decision]) -> None:
        """Carry out decisions that are known to the letter, as those of a log, and keep them for the next record."""
        self.controls.apply(decisions)
        self._kept += decisions

    def keep(self, decisions: Sequence[Decision]) -> None:
        """Keep what was carried out already for the next record."""
        self._kept += decisions

    def take(self) -> list[Decision]:
        """Hand over what was kept: it is reported now."""
        kept, self._kept = self._kept, []
        return kept

    def count_oom(self) -> None:
        """Count a failure of a batch that goes back to the loader."""
        self._ooms += 1

    def take_ooms(self) -> int:
        """Hand over how many failures were counted: the record has them now."""
        ooms, self._ooms = self._ooms, 0
        return ooms

    def invalidate_peaks(self) -> None:
        """Drop what was measured and predicted: plans need other memory from now on."""
        for automation in self.automations:
            automation.on_peaks_invalidated()
        self.predictions.reset()


def _signed(decision: Decision, name: str) -> Decision:
    """Return a decision with who made it, where it holds until another one."""
    return replace(decision, by=name) if isinstance(decision, RateFactor | ClipAt) else decision


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
