"""Automations that watch a run, in loops that are not the engine's."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from trainauto.automations.training_automations import TrainingAutomations
from trainauto.core.automation import Automation
from trainauto.core.decisions import Decision, RunFacts
from trainauto.core.errors import InputError, Problem
from trainauto.core.records import ValidationRecord
from trainauto.engine.training import Training

logger = logging.getLogger(__name__)

GIVEN = "automations_given"
"""Of a checkpoint: the automations of the run with their arguments."""


class Watchers:
    """The automations of a loop, beside the controller of its batches.

    Attributes:
        automations: as they are asked.

    Args:
        section: as under ``training_automations`` of an option file.
        memory_option: what says how batches fill the memory here.

    Raises:
        InputError: one is not known, does not take its arguments, or chooses plans.
    """

    def __init__(self, section: Any, memory_option: str) -> None:
        if section is not None and not isinstance(section, Mapping):
            message = f"automations are a mapping of names to arguments, not {section!r}"
            raise InputError(Problem(message, advice='Write {"StopFile": {}}, for one.'))
        self._given = dict(section or {})
        built = TrainingAutomations(self._given).automations
        for name, automation in built.items():
            if not automation.watches:
                message = f"{name} chooses batches, which follow memory here in any case"
                raise InputError(Problem(message, advice=f"Remove it; {memory_option} says how far they fill it."))
        self.automations: Sequence[Automation] = sorted(built.values(), key=lambda automation: automation.priority)

    @property
    def go_back(self) -> bool:
        """Whether one of them may ask to go back to a checkpoint."""
        return any(automation.goes_back for automation in self.automations)

    def check(self, facts: RunFacts) -> None:
        """Have them look at the run before anything is written.

        Raises:
            InputError: one cannot work with it.
        """
        for automation in self.automations:
            automation.check(facts)

    def begin(self, facts: RunFacts) -> None:
        """Have them take up the run, after what a checkpoint holds; on the first rank, which alone asks them."""
        for automation in self.automations:
            automation.on_run_start(facts)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume compares with; what they have learned is the engine's to keep."""
        return {GIVEN: self._given}

    def take_up(self, run: Training, state: Mapping[str, Any]) -> None:
        """Have a run that one of them had stopped go on where they have changed since.

        Args:
            run: as a checkpoint left it.
            state: of the checkpoint.
        """
        stopped = run.controls.stop_reason
        if stopped and state.get(GIVEN, {}) != self._given:
            logger.warning("the run had been stopped (%s); its automations have changed, so it continues", stopped)
            run.controls.stop_reason = run.controls.termination = ""


def decide_on_validation(run: Training, record: ValidationRecord) -> list[Decision]:
    """Have automations decide upon a validation, and carry that out; every rank must ask."""
    decisions = run.journal.ask(lambda automation: automation.on_validation_end(record))
    return run.journal.apply(decisions, run.trained_plan)


def validation_of(
    step: int, name: str, metrics: Mapping[str, float], better_is_higher: Mapping[str, bool]
) -> ValidationRecord:
    """Return the validation of a loop that validates by itself.

    Args:
        step: after which it was.
        name: of the set.
        metrics: what it came to.
        better_is_higher: for each metric; lower is better where nothing is said.
    """
    higher = {metric: bool(better_is_higher.get(metric, False)) for metric in metrics}
    values = {metric: float(value) for metric, value in metrics.items()}
    return ValidationRecord(step, name, values, {}, (), 0.0, 0, higher, seen="the loop's own set")
