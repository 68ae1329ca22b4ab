"""Checkpoints: whole or not there, the newest few and the best kept, loadable without pickled code."""

import errno
import logging
import math
import pickle
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from trainauto.core.errors import CheckpointError, InputError, Problem, TrainautoError, nearest
from trainauto.core.files import (
    directory_written_atomically,
    read_text,
    remove_folder,
    remove_leftovers,
    write_atomically,
    write_json_atomically,
)
from trainauto.core.json_text import from_json
from trainauto.core.system_errors import FULL, reason_of, remedy
from trainauto.core.units import MIB
from trainauto.engine.best import Best
from trainauto.engine.checkpoint_integrity import damage_of, noted_sums, sums_renewed, write_sums

logger = logging.getLogger(__name__)

FORMAT = 3
STATE_FILE = "state.pt"
LATEST_FILE = "latest.json"
_ASIDE = "damaged_"


class Checkpoints:
    """Checkpoints of one run in ``folder``: ``step_00001000/`` with weights and ``state.pt``, and ``latest.json``.

    Args:
        folder: made if missing.
        keep: newest checkpoints to keep, beside the best; 0 is for looking only: nothing is made, nothing swept up, so
            that those of a run in progress can be read.

    Attributes:
        way_back_steps: one checkpoint at least that is so many steps older than the newest is kept besides; 0 keeps
            none. A run that may go back must not have thrown away what it goes back to.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep
        self.way_back_steps = 0
        self.best: Best | None = None
        if keep:
            folder.mkdir(parents=True, exist_ok=True)
            remove_leftovers(folder)

    def save(
        self, step: int, state: Mapping[str, Any], write_weights: Callable[[Path], None], *, again: bool = True
    ) -> Path:
        """Write a checkpoint, point ``latest.json`` at it, and delete those no longer kept.

        Args:
            step: its step.
            state: what to keep beside the weights.
            write_weights: writes them into a folder.
            again: on a full disk, delete older checkpoints one by one and try again; the newest and the best stay.

        Raises:
            CheckpointNotWrittenError: there is no room, or the disk fails; the newest checkpoint is as it was.
        """
        target = self.path(step)

        def write() -> None:
            with directory_written_atomically(target) as folder:
                write_weights(folder)
                _write_state(folder / STATE_FILE, state)
                write_sums(folder)
            self.point_at(step)

        self._with_room(step, write, again=again)
        return target

    def renew(self, step: int, state: Mapping[str, Any]) -> None:
        """Replace the state of a checkpoint whose weights are those of now.

        Raises:
            CheckpointNotWrittenError: there is no room, or the disk fails; the checkpoint is as it was.
        """
        folder = self.path(step)

        def write() -> None:
            with sums_renewed(folder, STATE_FILE):
                write_atomically(folder / STATE_FILE, partial(_write_state, state=state))

        self._with_room(step, write)

    def _with_room(self, step: int, write: Callable[[], None], *, again: bool = True) -> None:
        while True:
            try:
                return write()
            except OSError as error:
                number, file = error.errno, error.filename
            # Outside the handler: its traceback would keep what was being written alive.
            if number not in FULL:
                raise self._not_written(step, number, file)
            if not again or not self._delete_oldest(step):
                raise self._full(step)

    def _delete_oldest(self, step: int) -> bool:
        """Delete a damaged checkpoint, else the oldest that can be spared; say whether there was one."""
        for aside in sorted(self.folder.glob(f"{_ASIDE}step_*")):
            logger.warning(
                "the disk is full: %s is deleted to make room for the checkpoint of step %d", aside.name, step
            )
            shutil.rmtree(aside, ignore_errors=True)
            if not aside.exists():
                return True
        best = self.best.step if self.best else None
        spare = [other for other in self.steps()[:-1] if other not in {step, best}]
        if spare:
            logger.warning(
                "the disk is full: the checkpoint of step %d is deleted to make room for that of step %d",
                spare[0],
                step,
            )
            self._delete(spare[0])
        return bool(spare)

    def _full(self, step: int) -> "DiskFullError":
        free = shutil.disk_usage(self.folder).free / MIB
        steps = self.steps()
        size = f"; one takes {_size_bytes(self.path(steps[-1])) / MIB:.1f} MiB" if steps else ""
        what = (
            f"not enough disk space for the checkpoint of step {step} in {self.folder}: {free:.1f} MiB are free{size}"
        )
        return DiskFullError(f"{what}\n  {self._way_on(remedy(errno.ENOSPC))}")

    def _not_written(self, step: int, number: int | None, file: str | None) -> "CheckpointNotWrittenError":
        what = f"the checkpoint of step {step} cannot be written: {file or self.folder}: {reason_of(number)}"
        return CheckpointNotWrittenError(f"{what}\n  {self._way_on(remedy(number) or 'Fix that')}")

    def _way_on(self, what_to_do: str) -> str:
        steps = self.steps()
        stands = (
            f"The checkpoint of step {steps[-1]} is intact: {what_to_do[0].lower()}{what_to_do[1:]}"
            if steps
            else what_to_do
        )
        return f"{stands}, then resume with --auto_resume."

    def point_at(self, step: int) -> None:
        """Have ``latest.json`` say which checkpoint is the newest and which the best; delete those no longer kept."""
        best = vars(self.best) if self.best else None
        pointer = {"step": step, "folder": self.path(step).name, "best": best}
        write_json_atomically(self.folder / LATEST_FILE, pointer)
        self._delete_old(step)

    def newest_whole(self) -> Path | None:
        """Return the newest checkpoint that is as it was written, or ``None`` where there is none at all.

        Damaged ones after it are set aside as ``damaged_step_N``, and the log names them. Also restores which one is
        the best. One of another format is not damaged: reading it says so.

        Raises:
            InputError: there are some, and all are damaged; or one cannot be read now, which says nothing of it.
        """
        try:
            there = [*self.folder.iterdir()]  # a pattern would find nothing where the folder cannot be read
        except OSError as error:
            advice = "Nothing was moved. Try again once it can be read."
            raise InputError(Problem(f"{self.folder} cannot be read: {error}", advice=advice)) from error
        candidates = sorted((folder for folder in there if _step_of(folder) >= 0), key=_step_of, reverse=True)
        damaged: dict[Path, str] = {}
        for candidate in candidates:
            try:
                damage = _damage(candidate)
            except OSError as error:
                advice = (
                    "Nothing was moved. Try again once it can be read; or move it away to resume from the one before."
                )
                raise InputError(Problem(f"{candidate} cannot be read: {error}", advice=advice)) from error
            if not damage:
                break
            damaged[candidate] = damage
        if len(damaged) == len(candidates):
            if not damaged:
                return None
            advice = "Restore a checkpoint from a copy, or begin a new run without --auto_resume."
            raise InputError([Problem(f"{folder} is damaged: {how}", advice=advice) for folder, how in damaged.items()])
        whole = candidates[len(damaged)]
        for path, how in damaged.items():
            aside = path.with_name(f"{_ASIDE}{path.name}")
            with suppress(OSError):
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
            logger.warning("%s is damaged (%s): resuming from %s instead", path, how, whole.name)
        self._restore_best(_step_of(whole))
        return whole

    def newest_whole_until(self, step: int) -> int | None:
        """Return the newest step, up to one, whose checkpoint is as it was written; ``None`` where there is none.

        Damaged ones that are passed over are named in the log.

        Raises:
            OSError: one cannot be read now.
        """
        for kept in reversed([kept for kept in self.steps() if kept <= step]):
            damage = _damage(self.path(kept))
            if not damage:
                return kept
            logger.warning("%s is damaged (%s) and is skipped", self.path(kept), damage)
        return None

    def drop_after(self, step: int) -> None:
        """Delete the checkpoints after a step that the run goes back to; one of them is the best no more."""
        for later in self.steps():
            if later > step:
                self._delete(later)
        if self.best is not None and self.best.step > step:
            self.best = None
        self.point_at(step)

    def latest(self) -> Path | None:
        """Return the newest checkpoint, or ``None``. Also restores which one is the best.

        ``latest.json`` may be behind: a kill, or a full disk, between writing a checkpoint and pointing at it.
        """
        steps = self.steps()
        if not steps:
            return None
        self._restore_best(steps[-1])
        return self.path(steps[-1])

    def _restore_best(self, newest: int) -> None:
        """Take the best from ``latest.json``, unless it has gone or was set aside: others are to take its place."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            noted = from_json(read_text(self.folder / LATEST_FILE))["best"]
            best = Best(**noted) if noted else None
            is_kept = best is not None and best.step <= newest and best.step in self.steps()
            # Earlier versions took an infinite mean, of a set with a blank page, for the best for good.
            self.best = best if best and is_kept and math.isfinite(best.value) else None

    def note_score(self, score: Best, *, better_is_higher: bool) -> bool:
        """Remember this step as the best if it is; return whether it is. What is infinite or NaN never is.

        The best belongs to its metric, arguments and samples: under others it begins anew, and the log says so.
        """
        if not math.isfinite(score.value):
            return False
        best = self.best
        if best is not None and not best.compares_with(score):
            logger.warning("the best checkpoint was that of step %d: %s", best.step, best.why_anew(score))
            best = None
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
            raise _OtherFormatError(f"{file} has format {state.get('format')}, this version reads {FORMAT}")
        return state

    def path(self, step: int) -> Path:
        """Return the folder of the checkpoint of a step."""
        return self.folder / f"step_{step:08d}"

    def named(self, choice: str) -> tuple[int, Path]:
        """Return step and folder of the checkpoint that a person names.

        Args:
            choice: ``best`` (the latest where no validation has chosen one), ``latest``, or the number of a step.

        Raises:
            InputError: there is none.
        """
        latest, steps = self.latest(), self.steps()
        if latest is None:
            what = f"{self.folder.parent} has no checkpoint yet"
            raise InputError(Problem(what, advice="The first one is written after logger.save_checkpoint_freq steps."))
        newest = _step_of(latest)
        by_word = {"latest": newest, "best": self.best.step if self.best else newest}
        step = by_word.get(choice.lower(), int(choice) if choice.isdecimal() else None)
        if choice.lower() == "best" and step not in steps:
            step = newest
        if step is None:
            what = f"--checkpoint {choice}: neither best nor latest nor the number of a step"
            raise InputError(Problem(what, advice=nearest(choice, by_word)))
        if step not in steps:
            steps_text = ", ".join(map(str, steps))
            what = f"{self.folder.parent} has no checkpoint of step {step}"
            raise InputError(Problem(what, advice=f"It has: {steps_text}; --checkpoint also takes best and latest."))
        return step, self.path(step)

    def steps(self) -> list[int]:
        """Return the steps of all whole checkpoints, in order."""
        steps = (_step_of(path) for path in self.folder.glob("step_*") if (path / STATE_FILE).is_file())
        return sorted(step for step in steps if step >= 0)

    def _delete_old(self, newest: int) -> None:
        kept = set(self.steps()[-self.keep :]) | {newest}
        if self.best:
            kept.add(self.best.step)
        if self.way_back_steps:
            old = [step for step in self.steps() if step <= newest - self.way_back_steps]
            kept |= {*old[-1:], *self.steps()[len(old) :][:1]}  # and the one that is to be as old next
        for step in self.steps():
            if step not in kept:
                self._delete(step)

    def _delete(self, step: int) -> None:
        remove_folder(self.path(step))  # a later run sweeps up what is left, should this one be killed half-way through


class CheckpointNotWrittenError(TrainautoError):
    """The system did not let a checkpoint be written; the one before is as it was."""


class DiskFullError(CheckpointNotWrittenError):
    """There is no room for a checkpoint, and nothing that could be deleted for it."""


class _OtherFormatError(CheckpointError):
    """A state of another version of trainauto: whole, but not for this one."""


def _damage(checkpoint: Path) -> str:
    """Say what is wrong with a checkpoint; empty where nothing is.

    Raises:
        OSError: it cannot be read now.
    """
    try:
        (checkpoint / STATE_FILE).stat()
    except FileNotFoundError:
        return f"{STATE_FILE} is missing"
    if damage := damage_of(checkpoint):
        return damage
    if STATE_FILE not in noted_sums(checkpoint):  # of an earlier version, or about to be renewed
        try:
            Checkpoints.read_state(checkpoint)
        except _OtherFormatError:
            return ""
        except CheckpointError as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from error
            return str(error).splitlines()[0]
    return ""


def _step_of(folder: Path) -> int:
    """Return the step that a checkpoint's folder is named after; -1 for any other name."""
    number = folder.name.removeprefix("step_")
    return int(number) if number.isdecimal() else -1


def _size_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _write_state(file: Path, state: Mapping[str, Any]) -> None:
    with file.open("wb") as opened:  # by its path, torch would not say that a disk is full
        torch.save({"format": FORMAT, **state}, opened)
