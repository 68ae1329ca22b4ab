"""Faults of all kinds in real runs of this package: how many are survived, or end in one clear block.

    python scripts/bench/faults.py [--only KIND] [--seed N] [--thin N] [--jobs N] [--json FILE] [--write PAGE]

Each fault is injected into a fork of this process, which has loaded everything;
a resume shows whether anything is lost.
--write docs/benchmarks/faults.md writes the tables there. With --json, faults that FILE has are not tried again.
"""

import argparse
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from faults_forks import LOADED, OF_IMAGES, Forked, forked, load

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]  # the package of this repository, and tiny_vlm.py

JOBS = 2
SEED = 50
GIVEN_UP_S = 200.0
"""A fault is three runs at most, of which each may take 60 s."""

BEGIN, END = "<!-- measured -->", "<!-- end -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all faults that are asked for; return 1 where one was neither survived nor one clear block."""
    asked = parsed(arguments)
    load(OF_IMAGES if asked.task == "sr" else LOADED)
    import faults_verdicts

    begun = time.monotonic()
    with working_folder(asked.keep) as folder:
        prepare(folder / "base", asked.jobs, asked.task)
        faults = chosen(folder / "base", asked)
        known = read(asked.json)
        left = [fault for fault in faults if fault.name not in known]
        print(f"{len(faults)} faults, {len(faults) - len(left)} of them known", flush=True)
        for number, (fault, verdict, seconds) in enumerate(tried(left, folder, asked.jobs), start=1):
            known[fault.name] = {"kind": fault.kind, "seconds": round(seconds, 1), **asdict(verdict)}
            if asked.json:
                asked.json.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            mark = "" if verdict.outcome in GOOD else "  <---"
            print(
                f"{number}/{len(left)} {seconds:4.1f} s  {verdict.outcome}: {fault.kind}: {fault.name}{mark}",
                flush=True,
            )
            if mark:
                print(f"    {verdict.message}\n    {verdict.why}", flush=True)
    of_now = {fault.name: known[fault.name] for fault in faults if fault.name in known}
    print(table(of_now))
    if asked.write:
        write(asked.write, of_now, time.monotonic() - begun, sys.argv[1:] if arguments is None else arguments)
    is_bad = any(found["outcome"] not in (*GOOD, faults_verdicts.NOT_MET) for found in of_now.values())
    return int(is_bad or len(of_now) < len(faults))


GOOD = ("survived", "one clear block")


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="KIND", help="faults whose kind or name holds this text")
    parser.add_argument("--task", help="memory faults of one kind of run, such as sr; no other is prepared")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of places and values (default: {SEED})")
    parser.add_argument("--thin", type=int, default=1, metavar="N", help="every N-th fault")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"faults at once (default: {JOBS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="results by fault; those that are there stay")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="page whose tables are written anew")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work there, and leave what the runs have left")
    return parser.parse_args(arguments)


@contextmanager
def working_folder(keep: Path | None) -> Iterator[Path]:
    """Give a folder; it is deleted in the end, by this process alone: forks end as it does."""
    folder, owner = (keep or Path(tempfile.mkdtemp(prefix="faults-"))).absolute(), os.getpid()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        if keep is None and os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)


def prepare(base: Path, jobs: int, only: str | None) -> None:
    """Run every task undisturbed, and note its operators and its calls of the file system, where that is not done."""
    import faults_tasks

    base.mkdir(exist_ok=True)
    work = {task: task for task in faults_tasks.TASKS} | {"sr15": "sr"}
    work = {name: task for name, task in work.items() if not only or name == only}
    waiting = [(name, task) for name, task in work.items() if not (base / f"{name}.trained" / ".done").exists()]
    for name, _ in waiting:
        for folder in (base / name, base / f"{name}.trained"):
            shutil.rmtree(folder, ignore_errors=True)
    started = {name: lambda name=name, task=task: undisturbed(base, name, task) for name, task in waiting}
    for name, code, said in side_by_side(started, base, jobs):
        if code:
            raise RuntimeError(f"an undisturbed run of {name} failed:\n{said}")


def undisturbed(base: Path, name: str, task: str) -> int:
    """Run a task without faults: once plainly, once counted, which has to give the same weights."""
    import faults_disk
    import faults_memory
    from faults_forks import run
    from faults_injection import Census, watched_files
    from faults_tasks import Outcome, copied, prepare, trained

    plain, kept, counted = base / name, base / f"{name}.trained", base / f"{name}.counted"
    prepare(task, plain)
    words = ("--force_yml", "train:total_iter=15") if name == "sr15" else ()
    copied(plain, kept)
    ended = run(lambda: trained(task, *words), kept, "plain")
    if ended.code:
        raise RuntimeError(ended.said + ended.block)
    copied(plain, counted)

    def counting() -> int:
        census, calls = Census(), list[tuple[str, str]]()
        with watched_files(Path.cwd(), lambda operation, path: calls.append((operation, path))):
            code = trained(task, *words, injected=lambda: census)
        Path(faults_memory.CENSUS).write_text(json.dumps(census.phases))
        Path(faults_disk.CENSUS).write_text(json.dumps(calls))
        return code

    again = run(counting, counted, "counted")
    if again.code or Outcome.of(counted).weights != Outcome.of(kept).weights:
        raise RuntimeError(f"{name} does not train the same twice: {again.said} {again.block}")
    for file in (faults_memory.CENSUS, faults_disk.CENSUS):
        shutil.move(counted / file, kept / file)
    shutil.rmtree(counted)
    (kept / ".done").touch()
    return 0


def chosen(base: Path, asked: argparse.Namespace) -> list[Any]:
    """Return the faults that the command line asks for."""
    import faults_disk
    import faults_kept
    import faults_memory
    import faults_options
    import faults_pictures
    import faults_processes

    subjects = (faults_memory, faults_disk, faults_processes, faults_pictures, faults_kept, faults_options)
    subjects = (faults_memory,) if asked.task else subjects
    faults = [fault for subject in subjects for fault in subject.faults(base, asked.seed)]
    names = Counter(fault.name for fault in faults)
    if twice := [name for name, count in names.items() if count > 1]:
        raise RuntimeError(f"named twice: {twice}")
    faults = [fault for fault in faults if not asked.task or fault.name.startswith(f"{asked.task},")]
    wanted = [fault for fault in faults if not asked.only or asked.only in f"{fault.kind}: {fault.name}"]
    return wanted[:: asked.thin]


def tried(faults: Sequence[Any], folder: Path, jobs: int) -> Iterator[tuple[Any, Any, float]]:
    """Try faults side by side; yield each with its verdict and its seconds."""
    from faults_verdicts import HANG, Bench, Verdict

    by_name = {f"fault{number}": fault for number, fault in enumerate(faults)}

    def meeting(name: str, fault: Any) -> Callable[[], int]:
        def meet() -> int:
            place = folder / name
            verdict = fault.meet(Bench(folder / "base", place))
            (folder / f"{name}.json").write_text(json.dumps(asdict(verdict)))
            return 0

        return meet

    work = {}
    for name, fault in by_name.items():
        shutil.rmtree(folder / name, ignore_errors=True)
        work[name] = meeting(name, fault)
    begun: dict[str, float] = {}
    for name, code, said in side_by_side(work, folder, jobs, begun):
        file = folder / f"{name}.json"
        if code > 0 or (code and not file.exists() and time.monotonic() - begun[name] < GIVEN_UP_S):
            print(f"{by_name[name].name} could not be tried:\n{said}", flush=True)
            continue
        verdict = Verdict(**json.loads(file.read_text())) if file.exists() else Verdict(HANG, "", "did not end")
        file.unlink(missing_ok=True)
        shutil.rmtree(folder / name, ignore_errors=True)
        yield by_name[name], verdict, time.monotonic() - begun[name]


def side_by_side(
    work: Mapping[str, Callable[[], int]], folder: Path, jobs: int, begun: dict[str, float] | None = None
) -> Iterator[tuple[str, int, str]]:
    """Run so many works at once, each in a fork; yield the name, the exit code and the words of each that has ended."""
    waiting, running = list(work), dict[str, Forked]()
    begun = begun if begun is not None else {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            begun[name] = time.monotonic()
            (folder / name).mkdir(exist_ok=True) if folder.name != "base" else None
            running[name] = forked(work[name], folder, name)
        for name, process in [*running.items()]:
            is_late = time.monotonic() - begun[name] > GIVEN_UP_S
            if is_late:
                process.kill()
            code = process.poll()
            if code is not None:
                ended = running.pop(name)
                ended.kill()
                words = "".join((folder / f".{name}.{stream}").read_text(errors="replace") for stream in ("out", "err"))
                for stream in ("out", "err"):
                    (folder / f".{name}.{stream}").unlink()
                yield name, code, words
        time.sleep(0.05)


def read(file: Path | None) -> dict[str, dict[str, Any]]:
    """Return the results that a file has; none where it is not there."""
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file is not None and file.exists() else {}


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the results by kind, as Markdown."""
    from faults_verdicts import NOT_MET, OUTCOMES

    lines = [
        f"| kind of fault | tried | {' | '.join(OUTCOMES)} | it says, for example |",
        f"|---|{'---:|' * (len(OUTCOMES) + 1)}---|",
    ]
    kinds = dict.fromkeys(one["kind"] for one in found.values())
    of_all = Counter(one["outcome"] for one in found.values())
    for kind in kinds:
        mine = [one for one in found.values() if one["kind"] == kind and one["outcome"] != NOT_MET]
        counts = Counter(one["outcome"] for one in mine)
        lines.append(row(kind, len(mine), [counts[outcome] for outcome in OUTCOMES], example(mine)))
    tried_of_all = sum(of_all[outcome] for outcome in OUTCOMES)
    lines.append(row("all", tried_of_all, [of_all[outcome] for outcome in OUTCOMES], ""))
    if of_all[NOT_MET]:
        lines.append(f"\n{of_all[NOT_MET]} more runs ended before the place of their fault, and count nowhere.")
    return "\n".join(lines) + "\n"


def row(kind: str, tried_count: int, counts: Sequence[int], said: str) -> str:
    """Return a row of the table."""
    return f"| {kind} | {tried_count} | {' | '.join(map(str, counts))} | {said} |"


def example(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a message of a kind, of those that ended in a block if there are any."""
    said = [one["message"] for one in found if one["message"] and one["outcome"] == "one clear block"]
    said += [one["message"] for one in found if one["message"]]
    return re.sub(r"/\S*/fault\d+/run/", "", said[0]).replace("|", "\\|").replace("<", "&lt;") if said else ""


def write(page: Path, found: Mapping[str, Mapping[str, Any]], seconds: float, arguments: Sequence[str]) -> None:
    """Write the tables into a page, between its marks."""
    import torch

    text = page.read_text(encoding="utf-8")
    words = " ".join(word for word in arguments if word)
    machine = (
        f"{os.cpu_count()} cores of a virtual machine, Python {platform.python_version()}, torch {torch.__version__}"
    )
    head = f"`scripts/bench/faults.py {words}`, {date.today()}: {machine}; {seconds / 60:.0f} minutes.\n"
    before, rest = text.split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{head}\n{table(found)}{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
