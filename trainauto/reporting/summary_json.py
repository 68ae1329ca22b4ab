"""training_log.json: the course of the losses as one JSON object, for readers that want a single small file."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainauto.core.decisions import Decision, Rollback
from trainauto.core.errors import InputError
from trainauto.core.files import write_text_atomically
from trainauto.core.json_text import read_object, to_json
from trainauto.core.record_json import validation_to_dict
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import Picture, RunEnd, RunSummary
from trainauto.reporting.environment import environment
from trainauto.reporting.runs.totals import KEY, Totals
from trainauto.reporting.runs.validation_totals import KEY as VALIDATIONS
from trainauto.reporting.runs.validation_totals import ValidationTotals, add_logged
from trainauto.reporting.sinks import Sink
from trainauto.reporting.step_stats import StepWindow
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import steps_after

MOST_ENTRIES = 1000
_SHORTEST_PAUSE_S = 1.0


class SummaryJson(Sink):
    """Rewrites training_log.json at each logging step, whole or not at all, at most once a second, and at the end.

    ``losses`` holds one entry a logging step, and one of the last steps of a run, however few. It has ``epoch`` (passes
    through the training set so far), ``step``, ``loss`` (mean of the sum of the terms since the entry before), ``lr``
    (of the first optimizer) and ``time`` (seconds since 1970). At 1000 entries every second one is dropped and from
    then on only every second logging step is kept, and so on: the file stays small, however long the run.
    training_log.jsonl has every step. ``about`` holds what is known before the first one: network, device, memory,
    environment.

    ``totals`` is what the steps up to ``step`` add up to, see :class:`~trainauto.reporting.runs.totals.Totals`, and
    what the validations so far have found, see
    :class:`~trainauto.reporting.runs.validation_totals.ValidationTotals`.

    Args:
        path: the file.
        print_freq: steps between logging steps.
        clock: returns the time of day in seconds since 1970.
    """

    def __init__(self, path: Path, print_freq: int, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._print_freq = print_freq
        self._clock = clock
        self._window = StepWindow()
        self._last: tuple[StepRecord, Progress] | None = None
        self._head: dict[str, Any] = {}
        self._stride = print_freq
        self._losses: list[dict[str, Any]] = []
        self._train_samples = 0
        self._totals = Totals()
        self._validations = ValidationTotals()
        self._written_s = float("-inf")

    def start(self, summary: RunSummary) -> None:
        """Begin the object, or continue that of the run that is resumed."""
        # Written whole or not at all; a person may have edited or deleted it.
        before = read_object(self._path) if summary.resumed else {}
        self._stride = max(int(before.get("stride", 0)), self._print_freq)
        self._losses = [entry for entry in before.get("losses", []) if entry["step"] <= summary.progress.steps]
        run = RunDirectory(self._path.parent)
        self._totals = _totals_in(before, summary.progress, run)
        self._validations = ValidationTotals()
        if summary.resumed:  # its log has been taken back to the checkpoint
            add_logged(self._validations, run)
        self._train_samples = summary.samples.get(summary.train_set, 0)
        started = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")
        self._head = {
            "name": summary.name,
            "started": before.get("started", started),
            "status": "running",
            "step": summary.progress.steps,
            "total": summary.total,
            "unit": summary.unit,
            "about": about_run(summary),
        }
        self._write()

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:  # noqa: ARG002
        """Keep an entry every so many steps."""
        self._window.add(record)
        self._totals.add(record)
        self._last = record, progress
        self._head["step"] = record.step
        if record.step % self._stride == 0:
            self._keep(record, progress)
        if record.step % self._print_freq == 0 and self._clock() - self._written_s >= _SHORTEST_PAUSE_S:
            self._write()

    def validation(self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision]) -> None:  # noqa: ARG002
        """Keep what it found; it is written with the next logging step."""
        self._validations.add(validation_to_dict(record))

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:  # noqa: ARG002
        """Forget what was undone."""
        self._window.clear()
        self.start(summary)

    def end(self, summary: RunEnd) -> None:
        """Write how it ended, and the steps since the last entry."""
        if len(self._window) and self._last is not None:
            self._keep(*self._last)
        self._head |= {"status": summary.status, "reason": summary.reason, "step": summary.progress.steps}
        if summary.termination_status:
            self._head["termination_status"] = summary.termination_status
        self._write()

    def _keep(self, record: StepRecord, progress: Progress) -> None:
        entry = {
            "epoch": round(progress.samples / self._train_samples, 3) if self._train_samples else None,
            "step": record.step,
            "loss": self._window.figures().loss,
            "lr": next(iter(record.learning_rates.values()), None),
            "time": round(self._clock(), 3),
        }
        self._window.clear()
        self._losses.append(entry)
        if len(self._losses) >= MOST_ENTRIES:
            self._stride *= 2
            self._losses = self._losses[1::2]

    def _write(self) -> None:
        totals = {**self._totals.to_dict(), VALIDATIONS: self._validations.to_dict()}
        entry = {**self._head, KEY: totals, "stride": self._stride, "losses": self._losses}
        write_text_atomically(self._path, to_json(entry) + "\n")
        self._written_s = self._clock()


def _totals_in(before: Mapping[str, Any], progress: Progress, run: RunDirectory) -> Totals:
    """Return the totals that a run begins with: none, or where it is resumed, those of its checkpoint."""
    try:
        totals = Totals.from_dict(before[KEY], int(before["step"]))
        for record in steps_after(run, totals.step):  # a killed run had trained more than was written here
            totals.add(record)
    except (InputError, KeyError, TypeError, ValueError, AttributeError):
        totals = Totals(since=progress.steps)
    totals.resume(progress)
    return totals


def about_run(summary: RunSummary) -> dict[str, Any]:
    """Return what is known of a run before its first step, for those who read of it later; sizes in bytes."""
    return {
        "device": summary.device,
        "network": summary.network,
        "parameters": summary.parameters,
        "precision": summary.precision,
        "samples": dict(summary.samples),
        "memory_target_bytes": summary.memory_target_bytes,
        "memory_limit_bytes": summary.memory_limit_bytes,
        "facts": [list(fact) for fact in summary.facts],
        "environment": environment(),
    }
