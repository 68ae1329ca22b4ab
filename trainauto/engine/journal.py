"""The journal of a run: it asks automations, carries out what they decide, and keeps it for the next record."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainauto.core.automation import Automation
from trainauto.core.decisions import ClipAt, Decision, RateFactor
from trainauto.core.plan import Plan
from trainauto.distributed.communicator import SINGLE_PROCESS, Communicator
from trainauto.engine.controls import Controls
from trainauto.engine.peak_predictions import PeakPredictions


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
