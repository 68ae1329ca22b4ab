"""What the logs of a run hold, read back."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from trainauto.core.decisions import Decision, decision_from_dict
from trainauto.core.errors import InputError, Problem
from trainauto.core.json_text import count_of, is_log, read_chunks, read_lines
from trainauto.core.record_json import step_from_dict
from trainauto.core.records import StepRecord
from trainauto.core.step_blocks import StepBlock, blocks_in
from trainauto.storage.run_directory import RunDirectory, length_until

Entry = TypeVar("Entry")

DAMAGE = (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors of reading files that were edited, truncated or made unreadable."""


@contextmanager
def whole_files(run: RunDirectory) -> Iterator[None]:
    """Refuse in words the files of a run that were edited, whatever trips over them.

    Raises:
        InputError: one of them cannot be read.
    """
    try:
        yield
    except DAMAGE as error:
        message = f"a file of {run.path} cannot be read: {type(error).__name__}: {error}"
        raise InputError(Problem(message, advice="Was it written by another version, or edited?")) from error


def logged_steps(run: RunDirectory) -> Iterator[StepRecord]:
    """Yield the steps of a run, which may still be running.

    Raises:
        InputError: a line holds no step that this version can read.
    """
    yield from read_entries(run.records, step_from_dict)


def logged_blocks(run: RunDirectory) -> Iterator[StepBlock | StepRecord]:
    """Yield the steps of a run as :func:`logged_steps` does, those that went alike in blocks: several times as fast.

    Raises:
        InputError: a line holds no step that this version can read.
    """
    number = 0
    for part in blocks_in(read_chunks(run.records)):
        if isinstance(part, StepBlock):
            yield part
            number += len(part)
        else:
            number += 1
            yield _parsed(run.records, part, step_from_dict, f"entry {number}")


def steps_after(run: RunDirectory, step: int) -> Iterator[StepRecord]:
    """Yield the steps after ``step``; only the end of the log is read.

    Raises:
        InputError: a line holds no step that this version can read.
    """
    if is_log(run.records):
        yield from read_entries(run.records, step_from_dict, length_until(run.records, step))


def logged_decisions(run: RunDirectory) -> Iterator[tuple[int, Decision]]:
    """Yield each decision with the step it was reported with.

    Raises:
        InputError: a line holds no decision that this version can read.
    """
    yield from read_entries(run.decisions, lambda line: (count_of(line["step"]), decision_from_dict(line)))


def validated_sets(run: RunDirectory, step: int) -> dict[str, Mapping[str, Any]]:
    """Return the sets that were validated after a step, each with its line."""
    return {str(line.get("dataset")): line for line in read_lines(run.validations) if line.get("step") == step}


def read_entries(path: Path, parse: Callable[[Mapping[str, Any]], Entry], start: int = 0) -> Iterator[Entry]:
    """Yield what ``parse`` makes of each line of a log, from the byte ``start`` on.

    Raises:
        InputError: it cannot read one.
    """
    for number, line in enumerate(read_lines(path, start), 1):
        yield _parsed(path, line, parse, f"entry {number}" + (f" after byte {start}" if start else ""))


def _parsed(path: Path, line: Mapping[str, Any], parse: Callable[[Mapping[str, Any]], Entry], where: str) -> Entry:
    try:
        return parse(line)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        lacks = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        message = f"{path}: {where} cannot be read: {lacks}"
        raise InputError(Problem(message, advice="Was it written by another version, or edited?")) from error
