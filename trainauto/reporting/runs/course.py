"""The steps of a run, summed up, and how it ended; of a Trainer, each start has a folder of its own."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.json_text import object_of
from trainauto.core.plan import Plan
from trainauto.core.record_json import step_from_dict
from trainauto.core.records import StepRecord
from trainauto.core.step_blocks import StepBlock
from trainauto.reporting.plan_peaks import PlanPeaks
from trainauto.reporting.step_stats import StepWindow
from trainauto.storage.run_directory import CURRENT, TRAINER_RUNS, RunDirectory
from trainauto.storage.run_lock import Owner
from trainauto.storage.run_log import logged_blocks, logged_steps

RUNNING, KILLED, NO_END = "running", "killed", "no end"
"""What has become of runs whose log has no end; the last where it is unknown whether their process is there."""

_LAST_STEPS = 50
"""Steps that the latest loss is a mean over: as many as lie between lines of the log of a loop."""


@dataclass(frozen=True)
class Speed:
    """How fast the last steps were, waits for data included; validations and checkpoints are left out.

    Attributes:
        samples_per_s: samples a second.
        steps_per_s: steps a second.
        steps: over how many steps that is.
    """

    samples_per_s: float
    steps_per_s: float
    steps: int

    @property
    def in_samples(self) -> str:
        """Return ``20 samples/s``."""
        rate = self.samples_per_s
        return f"{rate:,.0f} samples/s" if rate >= 100 else f"{rate:.3g} samples/s"

    @property
    def in_steps(self) -> str:
        """Return ``5 steps/s over the last 50``."""
        return f"{self.steps_per_s:.3g} steps/s over the last {self.steps}"


@dataclass
class Course:
    """The steps of a run, summed up.

    Attributes:
        last: the last of them; ``None`` before there is one.
        samples: samples trained.
        seconds: seconds trained, waits for data included.
        ooms: times memory ran out.
        limit_bytes: memory the run may use, as last read; ``None`` if unknown.
    """

    last: StepRecord | None = None
    samples: int = 0
    seconds: float = 0.0
    ooms: int = 0
    limit_bytes: int | None = None
    _recent: deque[StepRecord | bytes] = field(default_factory=lambda: deque(maxlen=_LAST_STEPS))
    _plan: Plan | None = None
    _peaks: PlanPeaks = field(default_factory=PlanPeaks)

    def add(self, record: StepRecord) -> None:
        """Take one more step in."""
        self.last = record
        self.samples += record.shape.samples
        self.seconds += record.data_seconds + record.step_seconds
        self.ooms += record.ooms
        self._recent.append(record)
        if record.peak is not None:  # a resume may have no budget any more
            self.limit_bytes = record.peak.limit
        if record.plan != self._plan:
            self._plan, self._peaks = record.plan, PlanPeaks()
        self._peaks.add(record)

    def add_block(self, block: StepBlock) -> None:
        """Take steps in that went alike."""
        self._recent.extend(block.lines[-_LAST_STEPS:])  # of a log, most of them are never asked for
        (self.last,), first = block.records(1), block.first
        self.samples += len(block) * first.shape.samples
        self.seconds = summed(self.seconds, block.seconds)
        if first.peak is not None:
            self.limit_bytes = first.peak.limit
        if first.plan != self._plan:
            self._plan, self._peaks = first.plan, PlanPeaks()
        self._peaks.add_block(block)

    @property
    def typical_bytes(self) -> int | None:
        """Median peak of whole steps since the last plan was taken up; ``None`` where nothing was measured."""
        rows, _ = self._peaks.rows()
        return rows[0].typical_bytes if rows else None

    def _recent_records(self) -> list[StepRecord]:
        lines = (one if isinstance(one, StepRecord) else step_from_dict(object_of(one) or {}) for one in self._recent)
        self._recent = deque(lines, maxlen=_LAST_STEPS)
        return [one for one in self._recent if isinstance(one, StepRecord)]

    @property
    def speed(self) -> Speed | None:
        """How fast the last steps were; ``None`` before the first, and where they took no time."""
        recent = self._recent_records()
        seconds = sum(record.data_seconds + record.step_seconds for record in recent)
        if seconds <= 0:
            return None
        samples, steps = sum(record.shape.samples for record in recent), len(recent)
        return Speed(samples / seconds, steps / seconds, steps)

    @property
    def recent_waiting(self) -> float:
        """Share of the time of the last steps spent waiting for data, 0 to 1."""
        recent = self._recent_records()
        waited = sum(record.data_seconds for record in recent)
        seconds = waited + sum(record.step_seconds for record in recent)
        return waited / seconds if seconds > 0 else 0.0

    @property
    def recent_steps(self) -> int:
        """How many steps the latest figures are of."""
        return len(self._recent)

    @property
    def latest_loss(self) -> float | None:
        """Mean loss of the last steps; ``None`` before there is one."""
        window = StepWindow()
        for record in self._recent_records():
            window.add(record)
        return window.figures().loss if self._recent else None


def summed(before: float, values: Sequence[float]) -> float:
    """Return a sum with these values added one after the other, which rounds as steps that come one by one do."""
    return deque(accumulate(values, initial=before), maxlen=1)[0]


@dataclass(frozen=True)
class Start:
    """A folder with records of steps.

    Attributes:
        folder: which.
        end: first step that the next start has trained again, for its checkpoint was older.
    """

    folder: RunDirectory
    end: float = math.inf

    def add_to(self, course: Course) -> None:
        """Have the course take the steps in that were not trained again.

        Raises:
            InputError: a line holds no step that this version can read.
        """
        for part in logged_blocks(self.folder):
            if isinstance(part, StepBlock) and part.last_step < self.end:
                course.add_block(part)
                continue
            for record in part.records() if isinstance(part, StepBlock) else (part,):
                if record.step < self.end:
                    course.add(record)


def starts_of(run: RunDirectory) -> list[Start]:
    """Return the folders that have the steps of a run, the oldest first: one, but of a Trainer that was resumed."""
    starts: list[Start] = []
    end = math.inf
    for folder in reversed(_folders(run)):
        starts.insert(0, Start(folder, end))
        first = next(logged_steps(folder), None)
        end = min(end, first.step) if first is not None else end
    return starts


def _folders(run: RunDirectory) -> list[RunDirectory]:
    within = run.path / TRAINER_RUNS
    if run.records.is_file() or not within.is_dir():
        return [run]
    folders = [RunDirectory(path) for path in sorted(within.iterdir()) if path.name != CURRENT]
    return [folder for folder in folders if folder.records.is_file()]


def end_of(run: RunDirectory, log: Mapping[str, Any], owner: Mapping[str, Any]) -> tuple[str, str]:
    """Return how a run ended, and why.

    Args:
        run: the run.
        log: its training_log.json.
        owner: the file of the process that trains it, or did last; empty where there is none.
    """
    status = str(log.get("status", RUNNING))
    if status != RUNNING:
        return status, str(log.get("reason", ""))
    alive = _is_alive(owner)
    if alive:
        return RUNNING, ""
    last = f"last step {_time_of(run.of_steps.records)}" if run.of_steps.records.is_file() else "no step"
    if alive is None:
        return NO_END, f"it is still running, or was killed; {last}"
    return KILLED, f"its process ended without writing why; {last}"


def end_text(status: str, reason: str) -> str:
    """Return how a run ended, and why if that is known."""
    return f"{status}: {reason}" if reason else status


def no_steps(run: RunDirectory, status: str, reason: str) -> InputError:
    """Return what a run without steps is refused with: one that has ended gets none by waiting."""
    if status in (RUNNING, NO_END):
        return InputError(Problem(f"{run.path} has no steps yet", advice="Try again after it has trained some steps."))
    advice = f"Read {run.log}." if run.log.is_file() else "Begin a new run."
    return InputError(Problem(f"{run.path} has no steps; {end_text(status, reason)}", advice=advice))


def _is_alive(owner: Mapping[str, Any]) -> bool | None:
    try:
        return Owner(**owner).is_alive()
    except TypeError:  # there is none, or it is of another version
        return None


def _time_of(file: Path) -> str:
    return datetime.fromtimestamp(file.stat().st_mtime).astimezone().strftime("%Y-%m-%d %H:%M:%S")
