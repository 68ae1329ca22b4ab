"""What an automation may ask for, and the two protocols through which engine and automations meet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from trainauto.core.plan import Axis, Plan
from trainauto.core.records import OutOfMemory, StepRecord, ValidationRecord


@dataclass(frozen=True)
class PlanChange:
    """Draw under another plan from now on.

    Attributes:
        plan: the plan asked for.
        reason: why, in words and with figures.
        predicted: bytes the new plan is expected to peak at; ``None`` where nothing was predicted.
        measured: bytes the old plan was measured to peak at.
        predicted_before: bytes the old plan was expected to peak at when it was taken up.
        early: made before the step it is reported with: a batch did not fit, or the option file had changed.
    """

    plan: Plan
    reason: str
    predicted: int | None = None
    measured: int | None = None
    predicted_before: int | None = None
    early: bool = False


@dataclass(frozen=True)
class RateFactor:
    """Multiply every scheduled learning rate by ``factor`` from now on (absolute, not cumulative)."""

    factor: float
    reason: str
    early: bool = False


@dataclass(frozen=True)
class ClipAt:
    """Clip gradients at this norm from now on; ``None`` stops clipping."""

    max_norm: float | None
    reason: str
    early: bool = False


@dataclass(frozen=True)
class Stop:
    """End the run after this step, as a success."""

    reason: str
    early: bool = False


Decision = PlanChange | RateFactor | ClipAt | Stop


class EngineControls(Protocol):
    """Where decisions reach an engine: ours, or somebody else's."""

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Carry out the decisions, in order."""


@dataclass(frozen=True)
class RunFacts:
    """What an automation is told before the first step.

    Attributes:
        axes: the knobs of this run with their bounds.
        plan: the plan the run starts (or goes on) with.
        scale: enlargement factor; 1 where there is none.
    """

    axes: tuple[Axis, ...]
    plan: Plan
    scale: int = 1


@runtime_checkable
class AutomationLike(Protocol):
    """An automation as the engine sees it; ``automations.base`` documents each event."""

    name: str
    priority: int

    def expected_bytes(self, plan: Plan) -> int | None:
        """Peak that it expects of a step under this plan, counted as a reading's ``allocated``; or it does not know."""

    def on_run_start(self, facts: RunFacts) -> None:
        """Before the first step, and after a resume has loaded the state."""

    def on_step_end(self, record: StepRecord) -> Decision | None:
        """After every optimizer step."""

    def on_out_of_memory(self, event: OutOfMemory) -> Decision | None:
        """After a step has run out of memory, before its record."""

    def forget(self) -> None:
        """What plans need has changed for good: nothing measured before holds any more."""

    def on_validation_end(self, record: ValidationRecord) -> Decision | None:
        """After a validation set has been run."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold to go on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
