"""The history of a run from its files, while it trains and after; what is new is read, and nothing twice."""

import math
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from trainauto.core.decisions import decision_from_dict
from trainauto.core.errors import InputError, Problem
from trainauto.core.json_text import CHUNK_BYTES, count_of, is_log, object_of
from trainauto.core.record_json import step_from_dict
from trainauto.core.step_blocks import StepBlock, blocks_in
from trainauto.reporting.dashboard.about_run import about
from trainauto.reporting.dashboard.run_history import RunHistory
from trainauto.reporting.runs.course import Start, starts_of
from trainauto.reporting.runs.figures import how_it_ended
from trainauto.storage.resumes import ResumeLines
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import whole_files

_DECIDED_BEFORE, _STEP, _DECIDED_UPON, _VALIDATED, _RESUMED = range(5)
"""Kinds of entries, in the order in which they come about within a step."""


class _Entry(NamedTuple):
    step: int
    kind: int
    line: dict[str, Any]

    def comes_before(self, step: int) -> bool:
        """Say whether it is told before a step."""
        return self.step < step or (self.step == step and self.kind < _STEP)


class RunReader:
    """Reads the files of a run again and again.

    A run that is started again goes back to its checkpoint: files get shorter or are replaced, a Trainer's start gets a
    neighbour. Then everything is read anew.

    Args:
        run: the run; of a Trainer that was resumed, its starts are read as one.
        until: the last step to read; a run that is being resumed has not dropped later ones everywhere yet.

    Attributes:
        history: what was read so far.
        about: what is known of the run beside it.
    """

    def __init__(self, run: RunDirectory, until: float = math.inf) -> None:
        self._run, self._until = run, until
        with whole_files(run):
            self._begin()

    def update(self) -> bool:
        """Read what has come since, and say whether there is anything new.

        Raises:
            InputError: a line holds nothing that this version can read.
        """
        with whole_files(self._run):
            return self._updated()

    def _updated(self) -> bool:
        is_new = self._has_gone_back()
        if is_new:
            self._begin()
        for tails in self._tails:
            others, steps = tails.read()
            for part in steps:
                if isinstance(part, StepBlock):
                    _take_block(self.history, part, others, tails.folder)
                else:
                    _take_before(part["step"], self.history, others, tails.folder)
                    _take(self.history, _Entry(part["step"], _STEP, part), tails.folder)
                is_new = True
            is_new = is_new or bool(others)
            while others:
                _take(self.history, others.pop(), tails.folder)
        status = how_it_ended(self._run)
        is_new = is_new or status != (self.history.status, self.history.reason)
        self.history.status, self.history.reason = status
        return is_new

    def _begin(self) -> None:
        self._starts = starts_of(self._run)
        self.about = about(self._run)
        self.history = RunHistory(self.about.total, self.about.unit)
        self._tails = [_Tails(start, min(start.end, self._until + 1)) for start in self._starts]

    def _has_gone_back(self) -> bool:
        return any(tails.have_gone_back() for tails in self._tails) or starts_of(self._run) != self._starts


def read_run(run: RunDirectory, until: float = math.inf) -> RunHistory:
    """Return the history of a run as its files have it now, up to a step.

    Raises:
        InputError: a line holds nothing that this version can read.
    """
    reader = RunReader(run, until)
    reader.update()
    return reader.history


class _Tails:
    """The files of one start, each read from where it was left."""

    def __init__(self, start: Start, end: float) -> None:
        self.folder, self._end = start.folder, end
        self._steps = _Tail(start.folder.records)
        self._validations = _Tail(start.folder.validations)
        self._decisions = _Tail(start.folder.decisions)
        self._log, self._resumes = _Tail(start.folder.log), ResumeLines()

    def have_gone_back(self) -> bool:
        """Say whether one of the files is no longer what was read of it."""
        tails = (self._steps, self._validations, self._decisions, self._log)
        return any(tail.has_gone_back() for tail in tails)

    def read(self) -> tuple[list[_Entry], Iterator[StepBlock | dict[str, Any]]]:
        """Return what is new beside steps, the last first, and the steps: blocks, or lines of single ones."""
        resumed = [
            _Entry(resume.after_step, _RESUMED, {"changes": resume.changes, "time": _seconds(resume.time)})
            for text in self._log.texts()
            if (resume := self._resumes.read(text.decode(errors="replace"))) is not None
        ]
        decided = [_Entry(line["step"], _when(line), line) for line in self._decisions.lines()]
        validated = [_Entry(line["step"], _VALIDATED, line) for line in self._validations.lines()]
        others = sorted((*decided, *validated, *resumed), key=lambda entry: entry[:2])
        return [entry for entry in reversed(others) if entry.step < self._end], self._new_steps()

    def _new_steps(self) -> Iterator[StepBlock | dict[str, Any]]:
        for part in blocks_in(self._steps.chunks()):
            if isinstance(part, StepBlock) and part.last_step < self._end:
                yield part
                continue
            lines = map(object_of, part.lines) if isinstance(part, StepBlock) else (part,)
            yield from (line for line in with_steps(lines) if line["step"] < self._end)


class _Tail:
    """A file of lines that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._number: int | None = None

    def has_gone_back(self) -> bool:
        """Say whether another file has taken its place, or it is shorter than what was read of it."""
        if self._number is None:
            return False
        try:
            found = self.path.stat()
        except OSError:
            return True
        return found.st_ino != self._number or found.st_size < self._offset

    def texts(self) -> Iterator[bytes]:
        """Yield the whole lines that were not yielded before; raises as :meth:`chunks`."""
        return chain.from_iterable(self.chunks())

    def chunks(self) -> Iterator[list[bytes]]:
        """Yield the same, some at a time.

        Raises:
            InputError: it is no file.
        """
        if not is_log(self.path):
            return
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            self._number = os.fstat(file.fileno()).st_ino
            file.seek(self._offset)
            while lines := file.readlines(CHUNK_BYTES):
                is_whole = lines[-1].endswith(b"\n")
                if not is_whole:
                    lines.pop()  # it is being written
                self._offset += sum(map(len, lines))
                yield lines
                if not is_whole:  # its rest may have come meanwhile, and is no line of its own
                    return

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the whole lines of JSON that were not yielded before; what cannot be read is passed over."""
        return with_steps(map(object_of, self.texts()))


def with_steps(lines: Iterable[dict[str, Any] | None]) -> Iterator[dict[str, Any]]:
    """Yield the lines that are of a step, with its number as one."""
    for line in lines:
        if line is None:
            continue
        try:
            line["step"] = count_of(line.get("step"))
        except ValueError:
            continue
        yield line


def _take_before(step: int, history: RunHistory, others: list[_Entry], folder: RunDirectory) -> None:
    """Take the entries that are told before a step."""
    while others and others[-1].comes_before(step):
        _take(history, others.pop(), folder)


def _take_block(history: RunHistory, block: StepBlock, others: list[_Entry], folder: RunDirectory) -> None:
    """Take steps that went alike, divided where another entry is told between them."""
    while True:
        _take_before(block.first.step, history, others, folder)
        between = others[-1].step + (others[-1].kind > _STEP) if others else math.inf
        if between > block.last_step:
            return history.block(block)
        before, block = block.divided(int(between))
        history.block(before)


def _take(history: RunHistory, entry: _Entry, folder: RunDirectory) -> None:
    line, time = entry.line, entry.line.get("time")
    time = time if isinstance(time, float | int) else None
    try:
        if entry.kind == _STEP:
            history.step(step_from_dict(line), time)
        elif entry.kind == _VALIDATED:
            history.validation(line)
        elif entry.kind == _RESUMED:
            history.resumed(entry.step, line["changes"], time)
        else:
            history.decision(entry.step, decision_from_dict(line), time)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        message = f"{folder.path}: what is logged of step {entry.step} cannot be read: {error}"
        raise InputError(Problem(message, advice="Was it written by another version, or edited?")) from error


def _when(line: dict[str, Any]) -> int:
    return _DECIDED_BEFORE if line.get("early") else _DECIDED_UPON


def _seconds(local_time: str) -> float | None:
    try:
        return datetime.strptime(local_time, "%Y-%m-%d %H:%M:%S").astimezone().timestamp()
    except ValueError:
        return None
