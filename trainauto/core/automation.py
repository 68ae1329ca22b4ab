"""Base of all automations: one event, one method, each doing nothing until it is overridden."""

from collections.abc import Mapping
from typing import Any

from trainauto.core.decisions import Decision, PlanChange, RunFacts
from trainauto.core.plan import Axis, Plan
from trainauto.core.records import OutOfMemory, PeakReading, Probe, StepRecord, ValidationRecord


class Automation:
    """Watches records, asks for decisions. It never touches the model, the loader or the optimizer itself.

    Attributes:
        name: key of its state in checkpoints, and of its switch in option files.
        priority: automations are asked in rising order; of two decisions of a kind in one step the later wins.
        steers_memory: whether it chooses plans by memory; its ``controller`` is then one of :mod:`trainauto.control`.
        watches: whether it leaves plans alone and goes by what a run comes to; runs of transformers' Trainer and loops
            of one's own have it, too.
        goes_back: whether it may ask to go back to a checkpoint. There is one of the beginning then, and a step whose
            gradients are not finite leaves the weights alone, instead of ending the run.
        outlasts_rollbacks: keys of its state that a rollback leaves as they are, for they say nothing of the weights.
    """

    name = ""
    priority = 100
    steers_memory = False
    watches = False
    goes_back = False
    outlasts_rollbacks: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__dict__.get("name", cls.__name__)

    def check(self, facts: RunFacts) -> None:
        """While the run is being built, before anything is written.

        Raises:
            InputError: the arguments cannot work with this run's axes.
        """

    def apply_minima(self, axes: tuple[Axis, ...], plan: Plan) -> tuple[Axis, ...]:
        """Return the axes with the minima this automation sets; the engine shrinks no plan below them.

        A run that starts below a minimum (``plan``) may stay there.
        """
        del plan
        return axes

    def expected_bytes(self, plan: Plan) -> int | None:
        """Return the peak that it expects of a step under ``plan``; ``None`` where it does not know.

        Counted as :attr:`~trainauto.core.records.PeakReading.allocated` is. It may be asked at any time after
        :meth:`on_run_start`, also of plans that never run.
        """

    def on_run_start(self, facts: RunFacts) -> None:
        """Before the first step, and after a resume or a rollback has loaded the state."""

    def begin(self, now: PeakReading, probes: int) -> PlanChange | None:
        """Before the first step of a new run, once its limit is in force: say which plan to begin with.

        The engine measures that plan without training it (forward, backward and an optimizer step that changes
        nothing) and tells :meth:`on_probe`. ``None`` leaves the plan as it is, unmeasured.

        Args:
            now: the limit, and what others leave of the device.
            probes: plans that may be measured; 0 where that cannot be done, and the first plan has to fit.
        """

    def on_probe(self, probe: Probe) -> PlanChange | None:
        """After a plan was measured without being trained: ask for another one, which is measured in its turn."""

    def measures_noise(self, step: int) -> bool:
        """Before a step: whether the engine is to measure how the gradients of its parts differ.

        A batch that runs in one part is divided in two for that, where parts may run apart. The record then has
        ``noise``.

        Args:
            step: its 1-based number.
        """
        del step
        return False

    def on_step_end(self, record: StepRecord) -> Decision | None:
        """After every optimizer step."""

    def on_out_of_memory(self, event: OutOfMemory) -> Decision | None:
        """After a step has run out of memory, before its record. To recover is the engine's; this is what follows."""

    def on_peaks_invalidated(self) -> None:
        """What plans need has changed for good (gradient checkpointing): nothing measured before holds any more."""

    def on_validation_end(self, record: ValidationRecord) -> Decision | None:
        """After a validation set has been run."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold to resume; plain values and tensors only."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
