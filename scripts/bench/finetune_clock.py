"""Notes when each step of a Trainer ended, and its loss: the same clock in everybody's process.

Imported where ``FINETUNE_CLOCK`` names a file, it is one of the callbacks that every Trainer of transformers begins
with, ours and TRL's too. An option file names it among its ``plugins``; others import it.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer import DEFAULT_CALLBACKS

VARIABLE = "FINETUNE_CLOCK"


class StepClock(TrainerCallback):  # type: ignore[misc]
    """Wall and CPU seconds of the process at the beginning and after each step; losses as the Trainer logs them."""

    def __init__(self) -> None:
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []
        self.losses: list[float] = []

    def on_train_begin(self, *_others: Any, **_options: Any) -> None:
        """Begin."""
        self._note()

    def on_step_end(self, *_others: Any, **_options: Any) -> None:
        """Note a step."""
        self._note()

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_options: Any) -> None:
        """Note a loss."""
        if logs and "loss" in logs:
            self.losses.append(float(logs["loss"]))

    def on_train_end(self, *_others: Any, **_options: Any) -> None:
        """Write all of it."""
        Path(os.environ[VARIABLE]).write_text(json.dumps(vars(self)))

    def _note(self) -> None:
        self.wall_s.append(time.perf_counter())
        self.cpu_s.append(time.process_time())


if os.environ.get(VARIABLE) and StepClock not in DEFAULT_CALLBACKS:
    DEFAULT_CALLBACKS.append(StepClock)
