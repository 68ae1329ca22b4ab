"""Plan changes at fixed steps: progressive training with growing crops, or a trial of an automatic run."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.automations.registry import AUTOMATIONS
from trainauto.core.automation import Automation
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import BATCH_SIZE, Plan
from trainauto.core.records import StepRecord


@dataclass(frozen=True)
class PlannedChange:
    """A plan from some step on.

    Attributes:
        step: the change is asked for after this optimizer step.
        lq_size: new crop size in pixels of the low-quality image; ``None`` keeps it.
        batch_size: new number of samples an optimizer step; ``None`` keeps it.
    """

    step: int
    lq_size: int | None = None
    batch_size: int | None = None


@AUTOMATIONS.register("PlanSchedule")
class PlanSchedule(Automation):
    """Changes crop and batch at the steps the option file names.

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

    def check(self, facts: RunFacts) -> None:
        """Check every change against the bounds of the run.

        Raises:
            InputError: a value is out of bounds or off the network's multiple.
        """
        for change in self._changes.values():
            for axis in facts.axes:
                value = _values(change).get(axis.name)
                if value is not None and not axis.admits(value):
                    raise InputError(
                        Problem(
                            f"PlanSchedule: {axis.name} {value} at step {change.step} is not admissible",
                            advice=f"Take {axis.minimum} to {axis.maximum} {axis.unit}, a multiple of {axis.multiple}.",
                        )
                    )

    def on_run_start(self, facts: RunFacts) -> None:
        """Take up the plan the run stands at."""
        self._plan = facts.plan

    def on_step_end(self, record: StepRecord) -> PlanChange | None:
        """Ask for the change planned for this step."""
        change = self._changes.get(record.step)
        if change is None or self._plan is None:
            return None
        self._plan = self._plan.changed(**_values(change))
        return PlanChange(self._plan, f"planned for step {record.step}")


def _values(change: PlannedChange) -> dict[str, int]:
    sizes = {LQ_SIZE: change.lq_size, BATCH_SIZE: change.batch_size}
    return {name: value for name, value in sizes.items() if value is not None}
