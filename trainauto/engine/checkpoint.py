"""Checkpoints: whole or not there, the newest few and the best kept, loadable without pickled code."""

import json
import math
import pickle
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from trainauto.core.errors import CheckpointError
from trainauto.core.files import directory_written_atomically, remove_leftovers, write_atomically, write_json_atomically

FORMAT = 3
STATE_FILE = "state.pt"
LATEST_FILE = "latest.json"


@dataclass(frozen=True)
class Best:
    """The best checkpoint so far.

    Attributes:
        step: its step.
        value: value of the deciding metric there.
        metric: that metric and its set, e.g. ``photographs/psnr``; values of different metrics are not compared.
    """

    step: int
    value: float
    metric: str = ""


class Checkpoints:
    """Checkpoints of one run in ``folder``: ``step_00001000/`` with weights and ``state.pt``, and ``latest.json``.

    Args:
        folder: made if missing.
        keep: newest checkpoints to keep, beside the best; 0 is for looking only: nothing is made, nothing swept up, so
            that those of a run that is going on can be read.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep
        self.best: Best | None = None
        if keep:
            folder.mkdir(parents=True, exist_ok=True)
            remove_leftovers(folder)

    def save(self, step: int, state: Mapping[str, Any], write_weights: Callable[[Path], None]) -> Path:
        """Write a checkpoint, point ``latest.json`` at it, and delete those no longer kept."""
        target = self.path(step)
        with directory_written_atomically(target) as folder:
            write_weights(folder)
            _write_state(folder / STATE_FILE, state)
        self.point_at(step)
        return target

    def renew(self, step: int, state: Mapping[str, Any]) -> None:
        """Replace the state of a checkpoint whose weights are those of now."""
        write_atomically(self.path(step) / STATE_FILE, partial(_write_state, state=state))

    def point_at(self, step: int) -> None:
        """Have ``latest.json`` say which checkpoint is the newest and which the best; delete those no longer kept."""
        best = vars(self.best) if self.best else None
        pointer = {"step": step, "folder": self.path(step).name, "best": best}
        write_json_atomically(self.folder / LATEST_FILE, pointer)
        self._delete_old(step)

    def latest(self) -> Path | None:
        """Return the newest checkpoint, or ``None``. Also restores which one is the best."""
        pointer = self.folder / LATEST_FILE
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(pointer.read_text(encoding="utf-8"))
            self.best = Best(**found["best"]) if found["best"] else None
            if (self.folder / found["folder"] / STATE_FILE).is_file():
                return self.folder / str(found["folder"])
        # A kill between writing a checkpoint and pointing at it, or a pointer lost in copying.
        steps = self.steps()
        return self.path(steps[-1]) if steps else None

    def note_score(self, score: Best, *, better_is_higher: bool) -> bool:
        """Remember this step as the best if it is; return whether it is. NaN is never the best."""
        if math.isnan(score.value):
            return False
        best = self.best if self.best is not None and self.best.metric == score.metric else None
        if best is not None and not (score.value > best.value if better_is_higher else score.value < best.value):
            return False
        self.best = score
        return True

    @staticmethod
    def read_state(checkpoint: Path) -> dict[str, Any]:
        """Read the state beside the weights.

        Raises:
            CheckpointError: missing, damaged, or of another format.
        """
        file = checkpoint / STATE_FILE
        try:
            state: dict[str, Any] = torch.load(file, "cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise CheckpointError(f"cannot read {file}: {error}") from error
        if state.get("format") != FORMAT:
            raise CheckpointError(f"{file} has format {state.get('format')}, this version reads {FORMAT}")
        return state

    def path(self, step: int) -> Path:
        """Return the folder of the checkpoint of a step."""
        return self.folder / f"step_{step:08d}"

    def steps(self) -> list[int]:
        """Return the steps of all whole checkpoints, in order."""
        found = (
            path.name.removeprefix("step_") for path in self.folder.glob("step_*") if (path / STATE_FILE).is_file()
        )
        return sorted(int(number) for number in found if number.isdigit())

    def _delete_old(self, newest: int) -> None:
        kept = set(self.steps()[-self.keep :]) | {newest}
        if self.best:
            kept.add(self.best.step)
        for step in self.steps():
            if step not in kept:
                # Under a name that a later run sweeps up, should this one be killed half-way through.
                doomed = self.path(step).rename(self.folder / f".{self.path(step).name}.tmp")
                shutil.rmtree(doomed, ignore_errors=True)


def _write_state(file: Path, state: Mapping[str, Any]) -> None:
    torch.save({"format": FORMAT, **state}, file)
