"""Signals at any moment, and workers that end."""

import json
import os
import random
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import faults_disk
import faults_memory
from faults_injection import watched_files
from faults_memory import WORKERS, noting
from faults_tasks import trained
from faults_verdicts import Bench, Fault, Verdict, judged_training

KILLED = {"sr": 8, "gan": 7, "text": 6, "multitask": 6, "finetune": 7}
STOPPING = ("SIGTERM", "SIGINT", "SIGHUP")
STOPPED = {"sr": 3, "text": 2, "multitask": 2, "finetune": 2}
"""Of each signal."""

NEVER = r"(?!)"
"""No words excuse other weights here."""

TASKS_WITH_WORKERS = ("sr", "text", "finetune")


def signalled_at_operator(task: str, number: int, places: tuple[int, ...]) -> int:
    """Train a task that gets a signal before some operators."""
    return faults_memory.failing(task, partial(os.kill, os.getpid(), number), places, False)


def signalled_at_call(task: str, number: int, place: int) -> int:
    """Train a task that gets a signal before a call of the file system."""
    seen, sends = 0, noting(partial(os.kill, os.getpid(), number))

    def called(_operation: str, path: str) -> None:
        nonlocal seen
        if faults_disk.MET_NAME in path:
            return
        seen += 1
        if seen == place:
            sends()

    with watched_files(Path.cwd(), called):
        return trained(task)


def _meet(bench: Bench, *, task: str, number: int, places: tuple[int, ...], at_operator: bool) -> Verdict:
    bench.begin(task)
    disturbed = (
        partial(signalled_at_operator, task, number, places)
        if at_operator
        else partial(signalled_at_call, task, number, places[0])
    )
    return judged_training(bench, task, disturbed, NEVER, may_be_killed=True)


def signals(base: Path, seed: int) -> Iterator[Fault]:
    """Yield signals before operators and calls of the file system."""
    for task in KILLED:
        numbers = random.Random(f"{seed} signals {task}")
        operators = len(json.loads((base / f"{task}.trained" / faults_memory.CENSUS).read_text()))
        calls = len(json.loads((base / f"{task}.trained" / faults_disk.CENSUS).read_text()))
        names = ["SIGKILL"] * KILLED[task] + [name for name in STOPPING for _ in range(STOPPED.get(task, 0))]
        for count, name in enumerate(names):
            at_operator = count % 2 == 0
            place = numbers.randint(1, operators if at_operator else calls)
            what = f"before operator {place}" if at_operator else f"before call {place} of the file system"
            yield Fault(
                "kill -9" if name == "SIGKILL" else f"{name}",
                f"{task}, {name} {what}",
                partial(_meet, task=task, number=getattr(signal, name), places=(place,), at_operator=at_operator),
            )
        for name in STOPPING[: 1 if task in STOPPED else 0]:
            place = numbers.randint(1, operators - 40)
            meet = partial(_meet, task=task, number=getattr(signal, name), places=(place, place + 30), at_operator=True)
            yield Fault("two signals", f"{task}, {name} before operators {place} and {place + 30}", meet)


WORKER_ENDS = ("SIGKILL", "SIGSEGV", "SIGBUS", "exit 3")


def with_a_worker_that_ends(task: str, how: str, call: int) -> int:
    """Train a task whose only worker ends at a sample."""
    from trainauto.data import dynamic_loader

    collate, seen, parent = dynamic_loader._collate, 0, os.getpid()
    met = noting(lambda: None)

    def ends(*given: object) -> object:
        nonlocal seen
        seen += 1
        if seen == call and os.getpid() != parent:
            met()
            if how.startswith("exit"):
                os._exit(3)
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(getattr(signal, how), signal.SIG_DFL) if how != "SIGKILL" else None
            os.kill(os.getpid(), getattr(signal, how))
        return collate(*given)

    dynamic_loader._collate = ends
    return trained(task, "--force_yml", WORKERS[task])


def _meet_worker(bench: Bench, *, task: str, how: str, call: int) -> Verdict:
    bench.begin(task)
    return judged_training(bench, task, partial(with_a_worker_that_ends, task, how, call), NEVER)


def workers(seed: int) -> Iterator[Fault]:
    """Yield workers that end."""
    numbers = random.Random(f"{seed} workers")
    for task in TASKS_WITH_WORKERS:
        for how in WORKER_ENDS:
            call = numbers.randint(1, 4)
            meet = partial(_meet_worker, task=task, how=how, call=call)
            yield Fault("workers that end", f"{task}, {how} at batch {call}", meet)


def faults(base: Path, seed: int) -> Iterator[Fault]:
    """Yield all of this subject."""
    yield from signals(base, seed)
    yield from workers(seed)
