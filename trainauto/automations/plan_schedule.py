"""Plan changes at fixed steps: progressive training with growing crops, or a trial of an automatic run."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.automations.registry import AUTOMATIONS
from trainauto.core.automation import Automation
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import BATCH_SIZE, TOKENS, Axis, Plan
from trainauto.core.records import StepRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannedChange:
    """A plan from some step on.

    Attributes:
        step: the change is asked for after this optimizer step.
        lq_size: new crop size in pixels of the low-quality image; ``None`` keeps it.
        batch_size: new number of samples an optimizer step; ``None`` keeps it.
        tokens: of texts, new tokens of a batch, rounded down to whole rows of the longest; ``None`` keeps them.
    """

    step: int
    lq_size: int | None = None
    batch_size: int | None = None
    tokens: int | None = None


@AUTOMATIONS.register("PlanSchedule")
class PlanSchedule(Automation):
    """Changes crop and batch, or the tokens of a batch, at the steps the option file names.

    Larger plans act after the loader's lookahead, smaller ones with the next batch.

    Args:
        changes: what to change, and when.
    """

    priority = 10

    def __init__(self, changes: Sequence[PlannedChange]) -> None:
        steps = [change.step for change in changes]
        if min(steps, default=1) < 1 or len(set(steps)) < len(steps):
            raise ValueError(f"steps must be different and at least 1, got {steps}")
        self._changes = {change.step: change for change in changes}
        self._plan: Plan | None = None
        self._axes: Mapping[str, Axis] = {}

    def check(self, facts: RunFacts) -> None:
        """Check every change against the bounds of the run; warn of those that no step follows.

        Raises:
            InputError: a value is out of bounds or off the network's multiple, or the run has nothing of that name.
        """
        axes = {axis.name: axis for axis in facts.axes}
        for change in self._changes.values():
            for name, value in _values(change).items():
                if name not in axes:
                    message = f"PlanSchedule: {name} at step {change.step} is nothing that this run's batches have"
                    raise InputError(Problem(message, advice=f"What may change is {' and '.join(axes)}."))
                axis = axes[name]
                if not axis.admits(axis.clamp(value) if name == TOKENS and value >= axis.minimum else value):
                    raise InputError(
                        Problem(
                            f"PlanSchedule: {axis.name} {value} at step {change.step} is not admissible",
                            advice=f"Take {axis.minimum} to {axis.maximum} {axis.unit}, a multiple of {axis.multiple}.",
                        )
                    )

        late = sorted(step for step in self._changes if facts.steps is not None and step >= facts.steps)
        if late:
            steps = ", ".join(map(str, late))
            logger.warning(
                "%s: the run ends after step %d; no step follows a change at %s", self.name, facts.steps, steps
            )

    def on_run_start(self, facts: RunFacts) -> None:
        """Take up the plan the run stands at."""
        self._plan, self._axes = facts.plan, {axis.name: axis for axis in facts.axes}

    def on_step_end(self, record: StepRecord) -> PlanChange | None:
        """Ask for the change planned for this step."""
        change = self._changes.get(record.step)
        if change is None or self._plan is None:
            return None
        values = _values(change)
        if TOKENS in values and TOKENS in self._axes:
            values[TOKENS] = self._axes[TOKENS].clamp(values[TOKENS])
        self._plan = self._plan.changed(**values)
        return PlanChange(self._plan, f"planned for step {record.step}")


def _values(change: PlannedChange) -> dict[str, int]:
    sizes = {LQ_SIZE: change.lq_size, BATCH_SIZE: change.batch_size, TOKENS: change.tokens}
    return {name: value for name, value in sizes.items() if value is not None}
