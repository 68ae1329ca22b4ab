"""What ends a run of fine-tuning before its length: a file, a loss that is low enough, a number that is none."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from trainauto.core.errors import NonFiniteError
from trainauto.core.records import Progress
from trainauto.core.run_events import EndStatus, RunEnd

STOP_FILE = "STOP_TRAINING"
"""A file of this name in a run's folder ends the run after its step; it is removed then."""


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

    def as_run_end(self) -> RunEnd:
        """Return it as reports take it."""
        return RunEnd(self.status, self.reason, Progress(), termination_status=self.termination)


class StopAtFile(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Ends a run once a file asks for it.

    Args:
        folder: of the run.
        ending: is told.
    """

    def __init__(self, folder: Path, ending: Ending) -> None:
        self._file, self._ending = folder / STOP_FILE, ending

    def on_step_end(self, _args: Any, state: Any, control: Any, **_others: Any) -> Any:
        """Look for the file."""
        if self._file.exists():
            self._file.unlink(missing_ok=True)
            reason = f"{STOP_FILE} asked for it after step {state.global_step}"
            self._ending.termination, self._ending.status, self._ending.reason = "user_stop", "stopped", reason
            control.should_save = control.should_training_stop = True
        return control


class StopAtLowLoss(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Ends a run whose loss has been low enough for so many steps one after another.

    How many there have been is kept with the Trainer's state, so that a resume goes on counting.

    Args:
        trainer: whose steps.
        loss: at or below it a step counts.
        patience: steps.
        ending: is told.
    """

    def __init__(self, trainer: Any, loss: float, patience: int, ending: Ending) -> None:
        self._trainer, self._loss, self._patience, self._ending = trainer, loss, patience, ending
        self.low_steps = 0

    @property
    def is_over(self) -> bool:
        """Whether there have been enough."""
        return self.low_steps >= self._patience

    def on_step_end(self, _args: Any, state: Any, control: Any, **_others: Any) -> Any:
        """Count the step."""
        record = self._trainer.memory.record
        self.low_steps = self.low_steps + 1 if sum(record.losses.values()) <= self._loss else 0
        if self.is_over:
            reason = f"the loss was at most {self._loss:g} for {self.low_steps} steps, up to step {state.global_step}"
            ending = self._ending
            ending.termination, ending.status, ending.reason = "auto_low_loss", "stopped", reason
            control.should_save = control.should_training_stop = True
        return control


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
        NonFiniteError: says what helps (D44).
    """
    if not math.isfinite(value):
        raise NonFiniteError(
            f"{what} of step {step} is {value}: the run ends, its weights and checkpoints are those before\n"
            f"  Try training: {{learning_rate: {learning_rate / 10:g}, warmup_ratio: 0.2}}, or use_amp: false; resume "
            "with --auto_resume, or begin anew."
        )
