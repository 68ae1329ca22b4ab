"""Calls of the file system that fail, while a run writes checkpoints, pictures, metadata and logs."""

import errno
import json
import os
import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from faults_injection import kept_as, watched_files
from faults_memory import noting
from faults_tasks import trained
from faults_verdicts import Bench, Fault, Verdict, judged_training

CENSUS = "files.json"
TOLD = (
    r"(?i)cannot|could not|no room|read-only file|input/output error|too many open files|permission denied|no space"
    r"|failed and is left out|missing in"
)
ERRORS = ("EIO", "EROFS", "EMFILE", "EACCES", "ENOSPC")
OPERATIONS: dict[str, tuple[str, ...]] = {
    "EIO": ("open", "write", "fsync", "rename", "unlink", "mkdir"),
    "EROFS": ("open", "rename", "unlink", "mkdir"),
    "EMFILE": ("open",),
    "EACCES": ("open", "rename", "unlink", "mkdir"),
    "ENOSPC": ("open", "write", "fsync", "mkdir"),
}
"""What systems answer to which call."""

KINDS = ("checkpoints", "pictures", "logs", "metadata")
SHARES = {"sr": 60, "text": 16, "multitask": 12, "finetune": 16}
TASKS_MOVED = ("sr", "gan", "text", "multitask", "finetune")


def failing(task: str, number: int, call: int, *, stays: bool) -> int:
    """Train a task, for which the system refuses a call of the file system, and from there on all of its kind."""
    seen, of_kind = 0, ("", "")
    fails = noting(lambda: None)

    def called(operation: str, path: str) -> None:
        nonlocal seen, of_kind
        if MET_NAME in path:
            return
        seen += 1
        if seen == call:
            of_kind = operation, kept_as(path)
        if seen == call or (stays and of_kind == (operation, kept_as(path))):
            if seen == call:
                fails()
            raise OSError(number, os.strerror(number), path)

    with watched_files(Path.cwd(), called):
        return trained(task)


MET_NAME = ".met"


def at_calls(base: Path, seed: int) -> Iterator[Fault]:
    """Yield errors at calls of all kinds, as many of each."""
    for task, count in SHARES.items():
        numbers = random.Random(f"{seed} disk {task}")
        calls: Sequence[Sequence[str]] = json.loads((base / f"{task}.trained" / CENSUS).read_text())
        places: dict[tuple[str, str, str], list[int]] = {}
        for place, (operation, path) in enumerate(calls, start=1):
            for error in ERRORS:
                if operation in OPERATIONS[error]:
                    places.setdefault((kept_as(path), operation, error), []).append(place)
        for number, (kind, operation, error) in enumerate(by_turns(list(places), numbers)[:count]):
            place, stays = numbers.choice(places[kind, operation, error]), number % 3 == 2
            way = "for good" if stays else "once"
            name = f"{task}, {error} at {operation} of {kind}, call {place} {way}, {number}"
            yield Fault(f"disk: {kind}", name, partial(_meet, task=task, error=error, place=place, stays=stays))


def by_turns(groups: list[tuple[str, str, str]], numbers: random.Random) -> list[tuple[str, str, str]]:
    """Return groups in random order, of what is kept by turns, again and again."""
    by_kind: dict[str, list[tuple[str, str, str]]] = {}
    numbers.shuffle(groups)
    for group in groups:
        by_kind.setdefault(group[0], []).append(group)
    longest = max(map(len, by_kind.values()))
    return [mine[turn % len(mine)] for turn in range(2 * longest) for mine in by_kind.values()]


def _meet(bench: Bench, *, task: str, error: str, place: int, stays: bool) -> Verdict:
    bench.begin(task)
    disturbed = partial(failing, task, getattr(errno, error), place, stays=stays)
    return judged_training(bench, task, disturbed, TOLD)


def moving(task: str, step: int, *, back_after: int | None) -> int:
    """Train a task whose folder of runs is moved away after a step, and put back some steps later."""
    from trainauto.engine import loop

    take_in, moved = loop.take_in, Path("moved")
    runs = Path("training_output" if task == "finetune" else "experiments")
    met = noting(lambda: None)

    def taken_in(run: object, record: object) -> None:
        take_in(run, record)
        if record.step == step and runs.exists():
            met()
            runs.rename(moved)
        if back_after is not None and record.step == step + back_after and moved.exists():
            moved.rename(runs)

    loop.take_in = taken_in
    return trained(task)


def resumed_where_it_was(task: str) -> int:
    """Put a moved folder back, and resume."""
    moved, runs = Path("moved"), Path("training_output" if task == "finetune" else "experiments")
    if moved.exists() and not runs.exists():
        moved.rename(runs)
    for owner in runs.rglob("owner_*.json"):
        os.utime(owner, (0, 0))  # as if its process had been silent for long
    return trained(task)


def _meet_moved(bench: Bench, *, task: str, step: int, back_after: int | None) -> Verdict:
    bench.begin(task)
    disturbed = partial(moving, task, step, back_after=back_after)
    return judged_training(bench, task, disturbed, TOLD, resumed=partial(resumed_where_it_was, task))


def moved_folders(seed: int) -> Iterator[Fault]:
    """Yield runs whose folder is moved while they train."""
    numbers = random.Random(f"{seed} moved")
    for task in TASKS_MOVED:
        for back_after in (None, 1):
            step = numbers.randint(2, 4)
            name = f"{task}, moved after step {step}{' and put back' if back_after else ''}"
            yield Fault("disk: folder moved", name, partial(_meet_moved, task=task, step=step, back_after=back_after))


def faults(base: Path, seed: int) -> Iterator[Fault]:
    """Yield all of this subject."""
    yield from at_calls(base, seed)
    yield from moved_folders(seed)
