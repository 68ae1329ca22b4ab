"""Our policies against other batch finders, on real networks under budgets that the system enforces.

    python scripts/bench/autobatch.py [--small] [--only METHOD] [--fresh] [--no-run] [--results FILE] [--write FOLDER]

Four networks, three budgets, two seeds; jump, jump to 95 %, step, free crop, Lightning's finder (both ways),
Accelerate's find_executable_batch_size, doubling and bisection; and the best plan there is, found by training one plan
after another. Every cell is a process of its own. A result is appended to a file of JSON lines when it is there, so a
second call runs only what is missing. The peers are installed in an environment beside this one (``--peers``), where
torch stays the one that is measured. ``--small`` takes about two minutes. Linux only.

``--write docs/benchmarks`` writes autobatch.md and autobatch.json there. Exit code 1 if a target of jump was missed.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from autobatch_cases import ROOT, TARGET, Case, cases, child_environment, write_images
from autobatch_runs import PATIENCE_S, best, steered
from autobatch_table import HIGH, HIGH_TARGET, METHODS, PEERS, Record, page, targets, with_references
from peers_env import peers_python, versions

REFERENCES = ("best", "best, crop free")
SMALL_METHODS = ("jump", "lightning binsearch", "accelerate", "bisection", "best")


def peer(method: str, case: Case, images: Path, folder: Path, python: Path) -> Record:
    """Run another method in a process of its own."""
    result = folder / "result.json"
    folder.mkdir(parents=True, exist_ok=True)
    script = ROOT / "scripts" / "bench" / "autobatch_peers.py"
    arguments = [method, case.network, str(case.budget_mib), str(case.seed), str(images), str(result)]
    environment = {**child_environment(), "AUTOBATCH_BEGAN": str(time.time())}
    with (folder / "output.txt").open("w") as output:
        done = subprocess.run(
            [str(python), str(script), *arguments],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        )
    if result.exists():
        return dict(json.loads(result.read_text()))
    last = " ".join((folder / "output.txt").read_text().splitlines()[-2:])
    return {"failure": f"exit code {done.returncode}: {last}"}


def run_cell(method: str, case: Case, images: Path, folder: Path, python: Path | None) -> Record:
    """Run one method on one case."""
    if method in PEERS and python is not None:
        return peer(method, case, images, folder, python)
    free_crop = method.endswith("crop free")
    if method.startswith("best"):
        return best(case, free_crop, images, folder)
    target = HIGH_TARGET if method == HIGH else TARGET
    return steered(case, method.split(",")[0], free_crop, images, folder, target)


def wanted_cells(small: bool, only: Sequence[str]) -> list[tuple[str, Case]]:
    """Return the cells to run: all methods of a case after one another, so that the machine's load hits all alike.

    References come first, for their seconds do not count: a best plan belongs to a network and a budget, not to a seed.
    """
    methods = SMALL_METHODS if small else (*REFERENCES, *METHODS)
    chosen = [method for method in (*REFERENCES, *METHODS) if method in methods and (not only or method in only)]
    references = [
        (method, case) for method in chosen if method in REFERENCES for case in cases(small) if case.seed == 1
    ]
    return references + [(method, case) for case in cases(small) for method in chosen if method not in REFERENCES]


def read_results(file: Path) -> list[Record]:
    """Return one record a cell, the newest where there are several."""
    lines = file.read_text().splitlines() if file.exists() else []
    return list({_key(result): result for result in map(json.loads, lines)}.values())


def _key(record: Record) -> tuple[Any, ...]:
    return record["method"], record["network"], record["budget_mib"], record["seed"]


def fill(file: Path, wanted: Sequence[tuple[str, Case]], redo: Sequence[str], peers: Path) -> None:
    """Run every cell that has no result yet, or whose method is to be run again; append what comes."""
    have = {_key(result) for result in read_results(file) if result["method"] not in redo}
    missing = [
        (method, case) for method, case in wanted if (method, case.network, case.budget_mib, case.seed) not in have
    ]
    python = peers_python(peers, "bench") if any(method in PEERS for method, _ in missing) else None
    with tempfile.TemporaryDirectory(prefix="autobatch") as folder:
        images = write_images(Path(folder) / "images")
        for place, (method, case) in enumerate(missing):
            began = time.monotonic()
            inside = Path(folder) / f"{place}"
            outcome = run_cell(method, case, images, inside, python)
            record = {
                "method": method,
                "network": case.network,
                "budget_mib": case.budget_mib,
                "seed": case.seed,
                **outcome,
            }
            with file.open("a") as results:
                results.write(json.dumps(record) + "\n")
            outcome_text = outcome.get("failure") or f"batch {outcome['batch']} x {outcome['lq_size']}"
            seconds = time.monotonic() - began
            print(f"{place + 1}/{len(missing)} {method}, {case.name}: {outcome_text} ({seconds:.0f} s)", flush=True)


def facts(arguments: argparse.Namespace, python: Path) -> Record:
    """Return what a reader needs to judge the figures."""
    return {
        "command": "python scripts/bench/autobatch.py --write docs/benchmarks",
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores of {arguments.machine}, Python {platform.python_version()}",
        **versions(python, ["torch", "lightning", "accelerate"]),
        "note": arguments.note,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one case, five methods, about two minutes")
    parser.add_argument("--only", action="append", default=[], help="run (and run again) this method; may be repeated")
    parser.add_argument("--fresh", action="store_true", help="forget the results there are")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "autobatch.jsonl", help="JSON lines of cells")
    parser.add_argument(
        "--peers",
        type=lambda path: Path(path).resolve(),
        default=ROOT / "build" / "peers",
        help="environment of the peers",
    )
    parser.add_argument("--no-run", action="store_true", help="make the page of the results there are")
    parser.add_argument("--write", type=Path, help="folder for autobatch.md and autobatch.json")
    parser.add_argument("--machine", default="a virtual machine", help="words for the page")
    parser.add_argument("--note", default="", help="a sentence for the page")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - {*METHODS, *REFERENCES}:
        parser.error(f"unknown method {', '.join(sorted(unknown))}; there are: {', '.join((*METHODS, *REFERENCES))}")
    file: Path = arguments.results
    if arguments.small:
        file = file.with_name(f"{file.stem}_small{file.suffix}")
    file.parent.mkdir(parents=True, exist_ok=True)
    if arguments.fresh:
        file.unlink(missing_ok=True)
    if not arguments.no_run:
        fill(file, wanted_cells(arguments.small, arguments.only), arguments.only, arguments.peers)
    results = read_results(file)
    known = facts(arguments, peers_python(arguments.peers, "bench"))
    text = page(results, known)
    print(text)
    if arguments.write:
        (arguments.write / "autobatch.md").write_text(text)
        (arguments.write / "autobatch.json").write_text(json.dumps({**known, "cells": results}, indent=1) + "\n")
    return 0 if all(met for _, _, met in targets(with_references(results))) else 1


if __name__ == "__main__":
    sys.exit(main())
