"""What steps of training need, whatever drives them: a run of an option file, or a loop of one's own."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch.optim import Optimizer

from trainauto.core.decisions import Rollback, RunFacts, decision_from_dict, decision_to_dict
from trainauto.core.plan import Axis, Plan
from trainauto.core.records import Progress, StepRecord
from trainauto.data.dynamic_loader import DynamicDataLoader
from trainauto.distributed.communicator import SINGLE_PROCESS, Communicator
from trainauto.engine.checkpointing_fallback import CheckpointingFallback
from trainauto.engine.controls import Controls
from trainauto.engine.journal import DecisionJournal
from trainauto.engine.replay_script import FreeScript
from trainauto.engine.signals import StopSignals
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.validation_set import ValidationSet
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.models.base_model import BaseModel
from trainauto.optim.batch_scaling import BatchScaling

logger = logging.getLogger(__name__)

WATCHED_STEPS = 50
LONG_WAIT = 0.2
"""Share of the time; below it, a faster loader would hardly be noticed."""

FIRST_STEPS = 10
"""Left out: workers may start in them."""


@dataclass
class DataWait:
    """Watches how long steps wait for their batches, and says once that it is long.

    Attributes:
        has_said: whether it was said.
    """

    has_said: bool = False
    _steps: int = 0
    _waited_s: float = 0.0
    _taken_s: float = 0.0

    def see(self, record: StepRecord, advice: str) -> None:
        """Take a step in.

        Args:
            record: the step.
            advice: what to do about waiting; empty where nothing can be said.
        """
        if self.has_said or not advice:
            return
        self._steps += 1
        if self._steps <= FIRST_STEPS:
            return
        self._waited_s += record.data_seconds
        self._taken_s += record.data_seconds + record.step_seconds
        if (self._steps - FIRST_STEPS) % WATCHED_STEPS == 0:
            if self._waited_s > LONG_WAIT * self._taken_s:
                self.has_said = True
                share = self._waited_s / self._taken_s
                logger.warning(
                    "the last %d steps spent %.0f %% of their time waiting for data: %s",
                    WATCHED_STEPS,
                    100 * share,
                    advice,
                )
            self._waited_s = self._taken_s = 0.0


class LearningRates(Protocol):
    """Sets the learning rates of each step."""

    def set_rates(self, optimizers: Iterable[Optimizer], progress: Progress, extra_factor: float = 1.0) -> None:
        """Set the rate of every parameter group for the next step."""

    def put_back(self) -> None:
        """Undo what was set for the step that has ended, where rates are set elsewhere."""


class LastResort(Protocol):
    """What is left where not even the smallest plan fits."""

    def take(self, run: "Training", why: str) -> str | None:
        """Do it, or return what a person is to know; ``None`` where the step of the run may be tried again."""

    def see(self, record: StepRecord) -> None:
        """Note what a step took."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold to resume."""

    def load_state_dict(self, state: Mapping[str, Any], model: BaseModel) -> None:
        """Continue as the run left off."""


@dataclass(kw_only=True)
class Training:
    """The parts of training that a step reads and changes.

    Attributes:
        model: networks, and what they minimise.
        loader: gives batches under plans.
        axes: bounds of plans.
        schedule: sets the learning rates.
        journal: asks automations, and carries out what they decide.
        meter: reads memory.
        validators: what it is validated on: their first tile is part of what has to fit.
        script: what lays its steps down, where it repeats a logged run.
        budget_bytes: memory that steps may take; ``None`` without a budget.
        limit_bytes: memory that a rank may use: the least of all, or where batches follow memory, the most.
        memory_target_bytes: peak that a controller steers to; ``None`` where none does.
        ranks: who trains it together; only the first has automations, reports, and writes.
        leaves_out_non_finite: whether a step whose gradients are no finite numbers leaves the weights alone, since an
            automation watches for that; else it ends the run.
        rollbacks: how the run has gone back to checkpoints so far, in order.
        has_said_nothing_learned: whether a step that trains nothing was reported.
        data_wait: says where steps wait for their data.
        noise_every: among several ranks, the steps from one in which gradients' noise is measured to the next; 0 for
            never.
    """

    model: BaseModel
    loader: DynamicDataLoader
    axes: tuple[Axis, ...]
    schedule: LearningRates
    journal: DecisionJournal
    meter: MemoryMeter
    validators: Sequence[ValidationSet] = ()
    progress: Progress = field(default_factory=Progress)
    signals: StopSignals = field(default_factory=StopSignals)
    trained_plan: Plan | None = None
    budget_bytes: int | None = None
    batch_scaling: BatchScaling = field(default_factory=BatchScaling)
    last_resort: LastResort = field(default_factory=CheckpointingFallback)
    script: FreeScript = field(default_factory=FreeScript)
    limit_bytes: int | None = None
    memory_target_bytes: int | None = None
    ranks: Communicator = SINGLE_PROCESS
    leaves_out_non_finite: bool = False
    rollbacks: tuple[Rollback, ...] = ()
    has_said_nothing_learned: bool = False
    data_wait: DataWait = field(default_factory=DataWait)
    noise_every: int = 0
    snapshot: StepSnapshot = field(init=False)

    def __post_init__(self) -> None:
        self.snapshot = StepSnapshot.of(self.model)

    @property
    def controls(self) -> Controls:
        """What decisions have set."""
        return self.journal.controls

    def facts(self, folder: str = "") -> RunFacts:
        """Return what automations get to know when the run begins, or is resumed.

        Args:
            folder: the run's own; empty where it writes nothing.
        """
        controls = self.controls
        return RunFacts(
            self.axes,
            self.loader.plan,
            world_size=self.ranks.world_size,
            folder=folder,
            max_norm=controls.given_norm,
            rate_factor=controls.rate_factor,
            rollbacks=tuple(made.to_step for made in self.rollbacks),
        )

    def decided_parts(self) -> dict[str, Any]:
        """Return what decisions change, for a checkpoint."""
        return {
            "last_resort": self.last_resort.state_dict(),
            "loader": self.loader.state_dict(),
            "controls": self.controls.state_dict(),
            "automations": {automation.name: automation.state_dict() for automation in self.journal.automations},
            "rollbacks": [decision_to_dict(made.to_step, made) for made in self.rollbacks],
        }

    def load_decided_parts(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`decided_parts`."""
        self.last_resort.load_state_dict(state.get("last_resort", {}), self.model)
        self.loader.load_state_dict(state["loader"])
        self.controls.load_state_dict(state["controls"])
        made = map(decision_from_dict, state.get("rollbacks", ()))
        self.rollbacks = tuple(rollback for rollback in made if isinstance(rollback, Rollback))
        for automation in self.journal.automations:
            if automation.name in state["automations"]:
                automation.load_state_dict(state["automations"][automation.name])

    @property
    def finished(self) -> bool:
        """Whether it has come to its length; a loop of one's own knows that itself."""
        return False
