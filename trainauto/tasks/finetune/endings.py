"""How a run of fine-tuning ends, and what is done then; automations and signals end it before its length."""

import math
from dataclasses import dataclass
from typing import Any

from transformers import TrainerCallback

from trainauto.core.errors import NonFiniteError
from trainauto.core.records import Progress
from trainauto.core.run_events import EndStatus, RunEnd


@dataclass
class Ending:
    """How a run has ended, or will have if nothing else happens.

    Attributes:
        termination: in one word, for programs.
        status: as of every run.
        reason: in words.
    """

    termination: str = "auto_complete"
    status: EndStatus = "completed"
    reason: str = "the run has come to its length"

    def interrupt(self, reason: str) -> None:
        """Note that a signal ends the run."""
        self.termination, self.status, self.reason = "interrupted", "interrupted", reason

    def stop(self, reason: str, termination: str) -> None:
        """Note that an automation has ended the run, where no signal has."""
        if self.status == "completed":
            self.termination, self.status, self.reason = termination, "stopped", reason

    def as_run_end(self) -> RunEnd:
        """Return it as reports take it."""
        return RunEnd(self.status, self.reason, Progress(), termination_status=self.termination)


class MeasureAtTheEnd(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Has a run measure once more where it ends, in the middle of an epoch, too, so that its logs hold what it came to.

    Args:
        trainer: whose run.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Look whether this is the end, and whether anything was trained for it."""
        session = self._trainer.memory
        if control.should_training_stop or session.is_complete:
            control.should_evaluate = session.trained_samples > 0
        return control


def check_finite(value: float, what: str, step: int, learning_rate: float) -> None:
    """Refuse to go on with a number that is none.

    Args:
        value: a loss, or the norm of gradients.
        what: it is, in words.
        step: on its way; its optimizer has not stepped.
        learning_rate: of the option file.

    Raises:
        NonFiniteError: says what helps: a smaller rate, warm-up.
    """
    if not math.isfinite(value):
        raise NonFiniteError(
            f"{what} of step {step} is {value}: the run ends, its weights and checkpoints are those before\n"
            f"  Try training: {{learning_rate: {learning_rate / 10:g}, warmup_ratio: 0.2}}, or use_amp: false; resume "
            "with --auto_resume, or begin anew."
        )
