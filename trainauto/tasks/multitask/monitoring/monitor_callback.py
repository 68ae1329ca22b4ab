"""Where a monitor learns of the steps of a Trainer whose batches follow memory."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from transformers import TrainerCallback

from trainauto.integrations.huggingface.session import MemorySession
from trainauto.tasks.multitask.monitoring.metrics_sink import metrics_of
from trainauto.tasks.multitask.monitoring.monitor import DynamicBatchingMonitor

ROUNDING = 1e-6
"""Epochs are counted in shares: what lacks so little is whole."""


class MonitoredTrainer(Protocol):
    """What of a Trainer the callback reads.

    Attributes:
        memory: the session of the call of ``train`` on its way.
        task_losses: mean loss of each task over its samples in the last step, without weights.
        task_samples: samples of each task in the last step, of all ranks.
    """

    memory: MemorySession | None
    task_losses: Mapping[str, float]
    task_samples: Mapping[str, int]


class MonitorCallback(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Has a monitor note each step and epoch of a Trainer, and bring its files up to date at the end.

    Of several processes the first does. A run that ends by an error does not come to :meth:`on_train_end`: who runs it
    calls ``monitor.close()``.

    Args:
        trainer: whose steps.
        monitor: what notes them; it loads now what it draws with, before a memory budget is measured.
        clock: returns seconds since 1970.
    """

    def __init__(
        self, trainer: MonitoredTrainer, monitor: DynamicBatchingMonitor, clock: Callable[[], float] = time.time
    ) -> None:
        self._trainer, self._monitor, self._clock = trainer, monitor, clock
        self._last_step = 0
        monitor.prepare()

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_others: Any) -> None:
        """Begin a run, or go on where a resume does.

        Raises:
            InputError: the monitor's folder cannot be written to.
        """
        if not state.is_world_process_zero:
            return
        session = self._trainer.memory
        self._last_step = session.progress.steps if session is not None else 0
        if self._last_step:
            self._monitor.resume(self._last_step, _epoch_of(state))
        else:
            self._monitor.begin_run()
        if session is not None and session.curves is not None:
            self._monitor.share_curves(session.curves.add_points)

    def on_epoch_begin(self, _args: Any, state: Any, _control: Any, **_others: Any) -> None:
        """Begin an epoch."""
        if state.is_world_process_zero:
            self._monitor.start_epoch(_epoch_of(state))

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_others: Any) -> None:
        """Note a step."""
        session = self._trainer.memory
        record = session.record if session is not None else None
        if record is None or record.step == self._last_step or not state.is_world_process_zero:
            return
        self._last_step = record.step
        trainer = self._trainer
        self._monitor.record_batch(metrics_of(record, trainer.task_losses, trainer.task_samples, self._clock()))

    def on_epoch_end(self, _args: Any, state: Any, _control: Any, **_others: Any) -> None:
        """End an epoch, unless it held no step."""
        if state.is_world_process_zero and self._monitor.has_open_batches:
            self._monitor.end_epoch()

    def on_train_end(self, _args: Any, state: Any, _control: Any, **_others: Any) -> None:
        """Bring all files and pictures up to date."""
        if state.is_world_process_zero:
            self._monitor.close()


def _epoch_of(state: Any) -> int:
    return int((state.epoch or 0.0) + ROUNDING)
