"""What a Trainer's run says on the console while it goes: a line every so many steps."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from trainauto.core.words import visible
from trainauto.engine.signals import StopSignals
from trainauto.integrations.huggingface.session import MemorySession
from trainauto.storage.resumes import CHANGED

logger = logging.getLogger(__name__)

ACCURACY_OF_LOSS = 4
"""Digits of a loss."""


class ConsoleLines(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Writes a line for what a Trainer logs of its steps, in place of its own bar and of its dictionaries.

    Args:
        tasks: whose losses stand behind the loss, as far as they are logged.
        write: takes a line.
    """

    def __init__(self, tasks: Sequence[str], write: Callable[[str], None] = print) -> None:
        self._tasks, self._write = tasks, write

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Write the line."""
        if logs is not None and "eval_loss" in logs:
            self._write(f"{state.global_step}/{state.max_steps}  measured: loss {float(logs['eval_loss']):.4g}")
        if logs is not None and "loss" in logs:
            losses = {task: logs[f"loss_{task}"] for task in self._tasks if f"loss_{task}" in logs}
            self._write(line_of(state.global_step, state.max_steps, logs, losses))


def already_over(session: MemorySession | None) -> str:
    """Return what the end of a run says that had ended before it was resumed."""
    reason = session.stop_reason if session is not None else ""
    return f"already: nothing was left to train{f' ({visible(reason)})' if reason else ''}"


class SayChanges(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Says which options a resume has changed, once the run's log is open: a report reads it there.

    Args:
        changes: a line each.
    """

    def __init__(self, changes: Sequence[str]) -> None:
        self._changes = changes

    def on_train_begin(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Say them."""
        for line in self._changes:
            logger.warning("%s%s", CHANGED, line)
        return control


class StopOnSignal(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Ends a Trainer's run after the step in which a signal came, with a checkpoint of it.

    Args:
        signals: notes them.
        on_stop: is called before the Trainer stops.
    """

    def __init__(self, signals: StopSignals, on_stop: Callable[[], None] = lambda: None) -> None:
        self._signals, self._on_stop = signals, on_stop

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Have the Trainer save and stop."""
        if self._signals.received:
            self._on_stop()
            control.should_save = control.should_training_stop = True
        return control

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Have nothing measured before it leaves: a resume does that at the end of its epoch."""
        if self._signals.received:
            control.should_evaluate = False
        return control


def in_place_of_bars(trainer: Any) -> None:
    """Have a Trainer write lines, and nothing else."""
    for kind in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(kind)
    trainer.add_callback(ConsoleLines(getattr(trainer, "tasks", ())))


def line_of(step: int, steps: int, logs: Mapping[str, Any], task_losses: Mapping[str, float]) -> str:
    """Return the line of a step.

    Args:
        step: its number.
        steps: of the run, about.
        logs: what the Trainer logs, with the figures of its memory.
        task_losses: since the last line.
    """
    by_task = ", ".join(f"{name} {loss:.{ACCURACY_OF_LOSS}g}" for name, loss in task_losses.items())
    parts = [f"{step}/{steps}", f"loss {float(logs['loss']):.{ACCURACY_OF_LOSS}g}{f' ({by_task})' if by_task else ''}"]
    if "learning_rate" in logs:
        parts.append(f"lr {float(logs['learning_rate']):.3g}")
    if "step_samples" in logs:
        samples = logs["step_samples"]
        forward = logs.get("forward_batch_size", samples)
        parts.append(f"{samples} samples{f' in passes of {forward}' if forward < samples else ''}")
    if "peak_memory_mib" in logs:
        parts.append(f"mem {logs['peak_memory_mib']:.0f} MiB")
    return "  ".join(parts)
