"""Automations that watch a run, in loops that are not the engine's."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from trainauto.automations.training_automations import TrainingAutomations
from trainauto.core.automation import Automation
from trainauto.core.decisions import Decision, RunFacts
from trainauto.core.errors import InputError, Problem
from trainauto.core.plain import plain
from trainauto.core.records import ValidationRecord
from trainauto.core.words import visible
from trainauto.engine.removed import undo_removed
from trainauto.engine.training import Training

logger = logging.getLogger(__name__)

GIVEN, OPTIONS = "automations_given", "options_given"
"""Of a checkpoint: the automations of the run with their arguments, and what else the run was given."""

LONGEST_CHANGES = 200
"""Characters of a list of what has changed."""


class Watchers:
    """The automations of a loop, beside the controller of its batches.

    Attributes:
        automations: as they are asked.

    Args:
        section: as under ``training_automations`` of an option file.
        memory_option: what says how batches fill the memory here.
        options: what else the run is given, by name, as JSON has it: a run that was ended continues where any of it
            has changed, as the engine's own runs do.

    Raises:
        InputError: one is not known, does not take its arguments, or chooses plans.
    """

    def __init__(self, section: Any, memory_option: str, options: Mapping[str, Any]) -> None:
        if section is not None and not isinstance(section, Mapping):
            message = f"automations are a mapping of names to arguments, not {section!r}"
            raise InputError(Problem(message, advice='Write {"StopFile": {}}, for one.'))
        self._given, self._options = plain(section or {}), plain(options)
        built = TrainingAutomations(section or {}).automations
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
        return {GIVEN: self._given, OPTIONS: self._options}

    def take_up(self, run: Training, state: Mapping[str, Any]) -> None:
        """Have what those decided that are gone hold no longer; a run that was ended continues where it has changed.

        Args:
            run: as a checkpoint left it.
            state: of the checkpoint.
        """
        undo_removed(run)
        stopped, changed = run.controls.stop_reason, self._changed(state)
        if stopped and changed:
            words = "the run had been stopped (%s); %s: so it continues"
            logger.warning(words, visible(stopped), visible("; ".join(changed), LONGEST_CHANGES))
            run.controls.stop_reason = run.controls.termination = ""

    def _changed(self, state: Mapping[str, Any]) -> list[str]:
        """Return what has, each with the values of then and of now."""
        then, now = state.get(OPTIONS, self._options), self._options
        names = dict.fromkeys([*then, *now])
        changed = [f"{name} {then.get(name)} -> {now.get(name)}" for name in names if then.get(name) != now.get(name)]
        return [*(["automations have changed"] if state.get(GIVEN, {}) != self._given else []), *changed]


def words_of_end(reason: str) -> str:
    """Return what to say of a run that an automation has ended, where it is to go on."""
    return (
        f"nothing to train: the run was stopped: {visible(reason)}. It continues once anything it is given is another "
        "than then: the patience of that automation, say"
    )


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
