"""JSON lines: what really happened, one line a step, a validation, a decision. Everything else can be made from them.

Validations have a file of their own, so that every line of training_log.jsonl is a step and needs no filter.
"""

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainauto.core.decisions import Decision, Rollback, decision_to_dict
from trainauto.core.json_text import to_json
from trainauto.core.record_json import step_to_dict, validation_to_dict
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import Picture, RunSummary
from trainauto.reporting.sinks import Sink
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import logged_decisions


class JsonLines(Sink):
    """Appends to training_log.jsonl, validation.jsonl and decisions.jsonl of a run.

    A line is one write to a file opened for appending: a kill loses the line it falls into and no other. The system has
    it at once, so that it survives the process; only a power cut loses more. What finds no room waits, and is written
    before what comes after it: a log may end early, and lacks no line in its middle.

    Args:
        run: the run's folder.
        clock: returns the time of day in seconds since 1970, for ``time`` in each line.
    """

    def __init__(self, run: RunDirectory, clock: Callable[[], float] = time.time) -> None:
        self._run = run
        self._records, self._validations, self._decisions = run.records, run.validations, run.decisions
        self._clock = clock
        self._steps: _Appender | None = None
        self._waiting: dict[Path, bytes] = {}

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:  # noqa: ARG002
        """Write the step, then what was decided upon it."""
        if self._steps is None:
            self._steps = _Appender(self._records)
        self._add(self._records, step_to_dict(record), record.step, decisions)

    def validation(self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision]) -> None:  # noqa: ARG002
        """Write the scores of a validation, then what was decided upon it."""
        self._add(self._validations, validation_to_dict(record), record.step, decisions)

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:
        """Put the lines of undone steps aside, cut them off, and write the rollback, after those that it undoes."""
        made = [rollback]
        try:
            self.close()
            earlier = [one for step, one in logged_decisions(self._run) if step > rollback.to_step]
            made = [*(one for one in earlier if isinstance(one, Rollback) and one.order < rollback.order), rollback]
            self._run.set_aside(rollback.to_step, rollback.order)
        finally:  # on a full disk, too: what follows is of earlier steps
            self._waiting.clear()
            self._run.rewind(summary.progress.steps)
            lines = (_decision_line(rollback.to_step, one, self._clock()) for one in made)
            self._waiting[self._decisions] = b"".join(lines)
            self._write()

    def close(self) -> None:
        """Write what waits for room, if there is any now, and close the file of steps."""
        try:
            self._write()
        finally:
            if self._steps is not None:
                self._steps.close()
                self._steps = None

    def _add(self, path: Path, line: Mapping[str, Any], step: int, decisions: Sequence[Decision]) -> None:
        time_s = {"time": round(self._clock(), 3)}
        decided = "".join(to_json(decision_to_dict(step, decision) | time_s) + "\n" for decision in decisions)
        for file, text in ((path, to_json({**line, **time_s}) + "\n"), (self._decisions, decided)):
            if text:
                self._waiting[file] = self._waiting.get(file, b"") + text.encode()
        self._write()

    def _write(self) -> None:
        for path in list(self._waiting):
            if self._steps is not None and path == self._records:
                self._steps.append(self._waiting[path])
            else:
                _append_once(path, self._waiting[path])
            del self._waiting[path]


def add_decision(run: RunDirectory, step: int, decision: Decision, time_s: float) -> None:
    """Write one more decision to the end of decisions.jsonl.

    Args:
        run: the run's folder.
        step: that it is logged with; no earlier one than the last line's.
        decision: what was decided.
        time_s: seconds since 1970.
    """
    _append_once(run.decisions, _decision_line(step, decision, time_s))


def _decision_line(step: int, decision: Decision, time_s: float) -> bytes:
    line = decision_to_dict(step, decision) | {"time": round(time_s, 3)}
    return (to_json(line) + "\n").encode()


class _Appender:
    """A file that whole lines are added to, each in one write."""

    def __init__(self, path: Path) -> None:
        # O_BINARY exists on Windows only, where text mode would change the newlines.
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)

    def append(self, text: bytes) -> None:
        """Add whole lines.

        Raises:
            OSError: the disk is full; nothing was added.
        """
        written_bytes = os.write(self._handle, text)
        if written_bytes != len(text):
            # Half a line would spoil the next one.
            os.ftruncate(self._handle, os.fstat(self._handle).st_size - written_bytes)
            raise OSError(errno.ENOSPC, f"only {written_bytes} of {len(text)} bytes could be written")

    def close(self) -> None:
        os.close(self._handle)


def _append_once(path: Path, text: bytes) -> None:
    # These files grow seldom: no handle is kept open for them.
    appender = _Appender(path)
    try:
        appender.append(text)
    finally:
        appender.close()
