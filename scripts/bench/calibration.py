"""Whether runs that start where an earlier one settled stay there.

    python scripts/bench/calibration.py [--runs 5] [--write docs/benchmarks]

Two networks under a budget that the system enforces: one run that finds its plan, then as many more of the same kind as
asked for, each a process of its own with another seed; counted are those that changed no plan and ran out of no memory.
Exit code 1 if more than one in ten changed its plan. Linux only.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch
import yaml
from autobatch_cases import PERIOD_STEPS, Case, controller, write_images, write_options
from autobatch_runs import _lines, _train

CASES = (("compact", 64), ("rrdbnet", 96))
FIRST_STEPS, LATER_STEPS = 60, 3 * PERIOD_STEPS + 1
ALLOWED = 0.1


def trained(network: str, budget_mib: int, seed: int, steps: int, images: Path, folder: Path) -> dict[str, Any]:
    """Train once; return the plans, the changes, and the seconds until the first step was done."""
    case = Case(network, budget_mib, seed)
    file = write_options(folder / str(seed), case, images, steps, controller("jump", (case.lq_size, case.lq_size)))
    options = yaml.safe_load(file.read_text())
    options["memory"]["calibration"] = True
    file.write_text(yaml.safe_dump(options, sort_keys=False))
    began = time.time()
    records, failure = _train(file, until=lambda _records: False)
    if failure:
        raise RuntimeError(failure)
    changes = [decision for decision in _lines(file, "decisions.jsonl") if decision["kind"] == "plan_change"]
    last = records[-PERIOD_STEPS:]
    return {
        "network": network,
        "budget_mib": budget_mib,
        "seed": seed,
        "first_batch": records[0]["plan"]["batch_size"],
        "batch": records[-1]["plan"]["batch_size"],
        "changes": len(changes),
        "reasons": [change["reason"] for change in changes],
        "ooms": sum(record["ooms"] for record in records),
        "use": round(max(record["peak"]["allocated"] for record in last) / case.limit_bytes, 4),
        "seconds_to_first_step": round(records[0]["time"] - began, 1),
    }


def page(runs: list[dict[str, Any]], later: list[dict[str, Any]]) -> str:
    rows = [
        f"| {run['network']} | {run['budget_mib']} MiB | {'first' if run not in later else 'later'} | "
        f"{run['first_batch']} | {run['batch']} | {run['changes']} | {run['ooms']} | {run['use']:.1%} | "
        f"{run['seconds_to_first_step']} s |"
        for run in runs
    ]
    still = sum(not run["changes"] for run in later)
    return "\n".join(
        [
            "# Runs that start with an earlier run's plan",
            "",
            f"`python scripts/bench/calibration.py --write docs/benchmarks`, {date.today()}: {os.cpu_count()} cores of",
            f"a virtual machine, Python {platform.python_version()}, torch {torch.__version__}, one thread.",
            "",
            f"{still} of {len(later)} later runs kept their plan; out of memory: {sum(run['ooms'] for run in later)}.",
            "",
            "| network | budget | run | first batch | last batch | changes | OOMs | highest use at end | to step 1 |",
            "|---|---|---|---:|---:|---:|---:|---:|---:|",
            *rows,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="later runs of each network")
    parser.add_argument("--write", type=Path, help="folder for calibration.md and calibration.json")
    arguments = parser.parse_args()
    runs, later = [], []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRAINAUTO_CACHE"] = str(Path(folder) / "cache")
        images = write_images(Path(folder) / "images")
        for network, budget_mib in CASES:
            place = Path(folder) / network
            runs.append(trained(network, budget_mib, 0, FIRST_STEPS, images, place))
            for seed in range(1, arguments.runs + 1):
                later.append(trained(network, budget_mib, seed, LATER_STEPS, images, place))
                runs.append(later[-1])
                print(json.dumps(runs[-1]), flush=True)
    text = page(runs, later)
    print(text)
    if arguments.write:
        (arguments.write / "calibration.md").write_text(text)
        (arguments.write / "calibration.json").write_text(json.dumps(runs, indent=1) + "\n")
    return 0 if sum(bool(run["changes"]) for run in later) <= ALLOWED * len(later) else 1


if __name__ == "__main__":
    sys.exit(main())
