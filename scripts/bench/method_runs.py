"""An epoch by each of several methods, in processes of their own and in turns; what became of it, as a table."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from peers_env import ROOT

Record = dict[str, Any]

COUNTS = ("ooms", "restarts", "thrown_away", "twice", "lost")
PATIENCE_S = 900


def run_method(python: Path, script: str, words: Sequence[str], samples: int) -> Record:
    """Train an epoch in a process of its own; one that dies is a result, too.

    Args:
        python: interpreter of the environment it runs in.
        script: of scripts/bench; it gets the words and the file of its result, an account's record.
        words: its arguments.
        samples: of the epoch, all of which are lost with a process that dies.
    """
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        result = Path(folder) / "result.json"
        done = subprocess.run(
            [str(python), str(ROOT / "scripts" / "bench" / script), *words, str(result)],
            env=environment(),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if result.exists():
            return dict(json.loads(result.read_text()))
    last = " ".join(done.stderr.splitlines()[-2:])[:160]
    return {"failure": f"exit code {done.returncode}: {last}", "batch": 0, "seconds": 0.0, "samples_per_s": 0.0} | {
        **dict.fromkeys(COUNTS, 0),
        "lost": samples,
        "use": None,
    }


def environment() -> dict[str, str]:
    """Return the variables of every measured process: one thread, this repository's package first."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


def typical_runs(methods: Sequence[str], run: Callable[[str], Record], repeats: int, speed: str) -> dict[str, Record]:
    """Return of each method the run of median speed, with how many runs and failures there were.

    Args:
        methods: take turns, so that the machine's load hits all alike.
        run: runs one.
        repeats: how often each runs.
        speed: figure of a record that runs are compared by.
    """
    runs: dict[str, list[Record]] = {method: [] for method in methods}
    for _ in range(repeats):
        for method in methods:
            runs[method].append(run(method))
            print(f"{method}: {runs[method][-1]}", flush=True)
    typical = {}
    for method, each in runs.items():
        middle = sorted(each, key=lambda record: float(record.get(speed, 0.0)))[(len(each) - 1) // 2]
        failures = sum(record["failure"] is not None for record in each)
        typical[method] = {**middle, "method": method, "runs": len(each), "failures": failures}
    return typical


def table_head(speed: str) -> list[str]:
    """Return the head of the table of methods."""
    return [
        f"| | batch | {speed} | use | OOMs | restarts | thrown away | twice | lost | crashes | ended with |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]


def row(record: Record, name: str, speed: str) -> str:
    """Return a method's line of the table."""
    use = f"{record['use']:.1%}" if record["use"] is not None else ""
    counts = " | ".join(str(record[count]) for count in COUNTS)
    rate = f"{record[speed]:.0f}" if not record["failure"] else ""
    crashes = f"{record['failures']} of {record['runs']}"
    ended = (record["failure"] or "").replace("[enforce fail at alloc_cpu.cpp:127] err == 0. ", "")[:90]
    return f"| {name} | {record['batch']} | {rate} | {use} | {counts} | {crashes} | {ended} |"


def run_overhead(script: str, *words: str) -> Record:
    """Return what a bench of overhead finds.

    Raises:
        RuntimeError: it left nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "overhead.json"
        command = [sys.executable, str(ROOT / "scripts" / "bench" / script), *words, "--json", str(file)]
        done = subprocess.run(command, env=environment(), check=False, cwd=folder)
        if not file.exists():
            raise RuntimeError(f"{script} ended with {done.returncode}")
        return dict(json.loads(file.read_text()))


def overhead_lines(overhead: Record) -> list[str]:
    """Return the table of an overhead: each ratio's median and range."""
    ratios = {name: values for name, values in overhead.items() if "/" in name}
    return [
        "| | median | from | to |",
        "|---|---:|---:|---:|",
        *(f"| {name} | {median(each):.4f} | {min(each):.4f} | {max(each):.4f} |" for name, each in ratios.items()),
    ]
