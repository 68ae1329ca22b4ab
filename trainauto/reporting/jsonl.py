"""JSON lines: what really happened, one line a step, a validation, a decision. Everything else can be made from them.

Validations have a file of their own, so that every line of training_log.jsonl is a step and needs no filter.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainauto.core.decisions import Decision, MissingSteps, Rollback, decision_to_dict
from trainauto.core.files import flush_to_disk
from trainauto.core.json_text import step_of_line, to_json
from trainauto.core.line_file import LineFile, append_lines
from trainauto.core.record_json import step_to_dict, validation_to_dict
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import Picture, RunSummary
from trainauto.core.words import counted
from trainauto.reporting.formatting import missing_text
from trainauto.reporting.sinks import Sink
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import logged_decisions

MOST_WAITING_BYTES = 2**24
"""Of lines for one file that cannot be written now: some twenty thousand steps."""

NOT_WRITTEN = "its lines could not be written, and more were waiting than memory is used for"


class JsonLines(Sink):
    """Appends to training_log.jsonl, validation.jsonl and decisions.jsonl of a run.

    A line is one write to a file opened for appending: a kill loses the line it falls into and no other. The system has
    it at once, so that it survives the process, and at each checkpoint the disk has, so that it survives a power cut.
    What cannot be written waits, and is written before what comes after it. Steps that find no room in memory either
    are missing, which decisions.jsonl says once it can be written.

    Args:
        run: the run's folder.
        clock: returns the time of day in seconds since 1970, for ``time`` in each line.
    """

    def __init__(self, run: RunDirectory, clock: Callable[[], float] = time.time) -> None:
        self._run = run
        self._records, self._validations, self._decisions = run.records, run.validations, run.decisions
        self._clock = clock
        self._steps: LineFile | None = None
        self._waiting: dict[Path, bytearray] = {}
        self._lost_steps: list[int] = []  # the first and the last in a row
        self._lost_others = 0

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:  # noqa: ARG002
        """Write the step, then what was decided upon it."""
        self._add(self._records, step_to_dict(record), record.step, decisions)

    def validation(self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision]) -> None:  # noqa: ARG002
        """Write the scores of a validation, then what was decided upon it."""
        self._add(self._validations, validation_to_dict(record), record.step, decisions)

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:
        """Put the lines of undone steps aside, cut them off, and write the rollback, after those that it undoes."""
        made: list[Decision] = [rollback]
        try:
            self.close()
            earlier = [one for step, one in logged_decisions(self._run) if step > rollback.to_step]
            gaps = (one for one in earlier if isinstance(one, MissingSteps) and one.first <= rollback.to_step)
            before = (one for one in earlier if isinstance(one, Rollback) and one.order < rollback.order)
            made = [*(replace(gap, last=rollback.to_step) for gap in gaps), *before, rollback]
            self._run.set_aside(rollback.to_step, rollback.order)
        finally:  # on a full disk, too: what follows is of earlier steps
            self._forget_after(rollback.to_step)
            self._run.rewind(summary.progress.steps)
            for one in made:
                self._wait(self._decisions, _decision_line(rollback.to_step, one, self._clock()), rollback.to_step)
            self._write()

    def sync(self) -> None:
        """Write what waits, and have the disk hold all of it."""
        self._write()
        written = [path for path in (self._records, self._validations, self._decisions) if path.exists()]
        for path in (*written, self._run.path):
            flush_to_disk(path)

    def lacking(self) -> str:
        """Say what is not written."""
        waiting = sum(text.count(b"\n") for text in self._waiting.values())
        lacks = [f"{missing_text(*self._lost_steps)} missing"] if self._lost_steps else []
        lacks += [f"{counted(self._lost_others, 'other line')} missing"] if self._lost_others else []
        lacks += [f"{counted(waiting, 'line')} not written"] if waiting else []
        return ", ".join(lacks)

    def close(self) -> None:
        """Write what waits, if it can be written now, and close the file of steps."""
        try:
            self._write()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._steps is not None:
            steps, self._steps = self._steps, None
            steps.close()

    def _add(self, path: Path, line: Mapping[str, Any], step: int, decisions: Sequence[Decision]) -> None:
        time_s = {"time": round(self._clock(), 3)}
        decided = "".join(to_json(decision_to_dict(step, decision) | time_s) + "\n" for decision in decisions)
        for file, text in ((path, to_json({**line, **time_s}) + "\n"), (self._decisions, decided)):
            if text:
                self._wait(file, text.encode(), step)
        self._write()

    def _wait(self, file: Path, text: bytes, step: int) -> None:
        waiting = self._waiting.setdefault(file, bytearray())
        if len(waiting) + len(text) > MOST_WAITING_BYTES:
            with suppress(OSError):  # which is said of what follows
                self._write()
            waiting = self._waiting.setdefault(file, bytearray())
        if len(waiting) + len(text) <= MOST_WAITING_BYTES or not waiting:
            waiting += text
        elif file == self._records:
            self._lost_steps = [self._lost_steps[0] if self._lost_steps else step, step]
        else:
            self._lost_others += text.count(b"\n")

    def _write(self) -> None:
        for path in list(self._waiting):
            self._append(path, bytes(self._waiting[path]))
            del self._waiting[path]
        if self._lost_steps:
            first, last = self._lost_steps
            gap = MissingSteps(first, last, NOT_WRITTEN)
            self._append(self._decisions, _decision_line(last, gap, self._clock()))
            self._lost_steps = []

    def _forget_after(self, step: int) -> None:
        """Let go of lines that wait and are of a later step."""
        for path, text in list(self._waiting.items()):
            kept = (line for line in text.splitlines(keepends=True) if (step_of_line(bytes(line)) or 0) <= step)
            self._waiting[path] = bytearray(b"".join(kept))
        first = self._lost_steps[0] if self._lost_steps else step + 1
        self._lost_steps = [first, min(step, self._lost_steps[1])] if first <= step else []

    def _append(self, path: Path, text: bytes) -> None:
        if path != self._records:  # these files grow seldom: no handle is kept open for them
            append_lines(path, text)
            return
        if self._steps is None:
            self._steps = LineFile(path)
        try:
            self._steps.append(text)
        except OSError:
            self._let_go()  # what failed may be the handle, as where a network drive has come back
            raise


def add_decision(run: RunDirectory, step: int, decision: Decision, time_s: float) -> None:
    """Write one more decision to the end of decisions.jsonl.

    Args:
        run: the run's folder.
        step: that it is logged with; no earlier one than the last line's.
        decision: what was decided.
        time_s: seconds since 1970.
    """
    append_lines(run.decisions, _decision_line(step, decision, time_s))


def _decision_line(step: int, decision: Decision, time_s: float) -> bytes:
    line = decision_to_dict(step, decision) | {"time": round(time_s, 3)}
    return (to_json(line) + "\n").encode()
