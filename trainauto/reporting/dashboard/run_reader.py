"""The history of a run from its files, while it trains and after; what is new is read, and nothing twice."""

import heapq
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from trainauto.core.decisions import decision_from_dict
from trainauto.core.errors import InputError, Problem
from trainauto.core.record_json import step_from_dict
from trainauto.reporting.dashboard.run_history import RunHistory
from trainauto.reporting.run_course import Start, starts_of
from trainauto.reporting.run_figures import how_it_ended
from trainauto.storage.resumes import resumes_of
from trainauto.storage.run_directory import RunDirectory

_DECIDED_BEFORE, _STEP, _DECIDED_UPON, _VALIDATED, _RESUMED = range(5)
"""Kinds of entries, in the order in which they come about within a step."""


class _Entry(NamedTuple):
    step: int
    kind: int
    line: dict[str, Any]


class RunReader:
    """Reads the files of a run again and again.

    Args:
        run: the run; of a Trainer that was resumed, its starts are read as one.

    Attributes:
        history: what was read so far.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._begin()

    def update(self) -> bool:
        """Read what has come since, and say whether there is anything new.

        Raises:
            InputError: a line holds nothing that this version can read.
        """
        if self._starts_now() != self._seen:
            self._begin()  # it was started again: what it trained since its checkpoint has been dropped
        is_new = False
        for tails in self._tails:
            for entry in heapq.merge(*tails.read(), key=lambda entry: entry[:2]):
                _take(self.history, entry, tails.folder)
                is_new = True
        status = how_it_ended(self._run)
        is_new = is_new or status != (self.history.status, self.history.reason)
        self.history.status, self.history.reason = status
        return is_new

    def _begin(self) -> None:
        self.history = RunHistory()
        self._seen = self._starts_now()
        self._tails = [_Tails(start) for start in starts_of(self._run)]

    def _starts_now(self) -> list[Path]:
        of_steps = self._run.of_steps.path
        return [of_steps, *sorted(self._run.path.glob("owner_*.json")), *sorted(of_steps.glob("owner_*.json"))]


def read_run(run: RunDirectory) -> RunHistory:
    """Return the history of a run as its files have it now.

    Raises:
        InputError: a line holds nothing that this version can read.
    """
    reader = RunReader(run)
    reader.update()
    return reader.history


class _Tails:
    """The files of one start, each read from where it was left."""

    def __init__(self, start: Start) -> None:
        self.folder = start.folder
        self._end = start.end
        self._steps = _Tail(start.folder.records)
        self._validations = _Tail(start.folder.validations)
        self._decisions = _Tail(start.folder.decisions)
        self._resumes = [
            _Entry(resume.after_step, _RESUMED, {"changes": resume.changes, "time": _seconds(resume.time)})
            for resume in resumes_of(start.folder)
        ]

    def read(self) -> list[Iterator[_Entry]]:
        """Return what is new of each kind, by steps."""
        # Steps last: what was decided upon one that is not there yet waits for nothing.
        resumes, self._resumes = self._resumes, []
        decided = [_Entry(int(line["step"]), _when(line), line) for line in self._decisions.lines()]
        validated = [_Entry(int(line["step"]), _VALIDATED, line) for line in self._validations.lines()]
        steps = (_Entry(int(line["step"]), _STEP, line) for line in self._steps.lines())
        kinds = (iter(decided), steps, iter(validated), iter(resumes))
        return [(entry for entry in kind if entry.step < self._end) for kind in kinds]


class _Tail:
    """A file of JSON lines that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the whole lines that were not yielded before; what cannot be read is passed over."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._offset)
            for text in file:
                if not text.endswith(b"\n"):
                    return  # it is being written
                self._offset += len(text)
                try:
                    line = json.loads(text)
                except ValueError:
                    continue
                if isinstance(line, dict) and isinstance(line.get("step"), int):
                    yield line


def _take(history: RunHistory, entry: _Entry, folder: RunDirectory) -> None:
    line, time = entry.line, entry.line.get("time")
    try:
        if entry.kind == _STEP:
            history.step(step_from_dict(line), time)
        elif entry.kind == _VALIDATED:
            history.validation(line)
        elif entry.kind == _RESUMED:
            history.resumed(entry.step, line["changes"], time)
        else:
            history.decision(entry.step, decision_from_dict(line), time)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"{folder.path}: what is logged of step {entry.step} cannot be read: {error}"
        raise InputError(Problem(message, advice="Was it written by another version, or edited?")) from error


def _when(line: dict[str, Any]) -> int:
    return _DECIDED_BEFORE if line.get("early") else _DECIDED_UPON


def _seconds(local_time: str) -> float | None:
    try:
        return datetime.strptime(local_time, "%Y-%m-%d %H:%M:%S").astimezone().timestamp()
    except ValueError:
        return None
