"""An epoch of a loop of one's own: ours beside what others offer, under one budget, in one run.

    python scripts/bench/any_loop.py [--small] [--peers FOLDER] [--write FOLDER] [--note TEXT]

Accelerate's find_executable_batch_size, Lightning's BatchSizeFinder, batches fixed by hand (16, 64, and the largest
that trying finds), ours within Lightning, and ours: each trains one epoch in a process of its own, once alone and once
beside a neighbour who takes a quarter of the budget for a tenth of the epoch. Methods take turns, ``--repeats`` times;
medians. Then what an AdaptiveLoop costs over the same loop by hand (any_loop_overhead.py). The peers are installed in
an environment beside this one. ``--write docs/benchmarks`` writes any_loop.md and any_loop.json there. Linux only.

Exit code 1 if ours lost a sample, trained one twice, ended, or costs more than 1 %.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median

from any_loop_overhead import MOST_RATIO
from method_runs import Record, overhead_lines, row, run_method, run_overhead, table_head, typical_runs
from peers_env import ROOT, peers_python, versions

SCENES = {
    "alone": "Alone",
    "neighbour": "Beside another program, which takes a quarter of the budget for a tenth of the epoch",
}
NAMES = {
    "accelerate": "Accelerate, find_executable_batch_size",
    "lightning": "Lightning, BatchSizeFinder",
    "ours in Lightning": "ours within Lightning (GrowingBatches)",
    "ours": "ours (AdaptiveLoop)",
}
INTRODUCTION = """\
Each method trains one epoch of {samples} images (24 px, six convolutions, Adam) on one thread under an enforced
budget, {budget_mib} MiB. Each runs in its own process, in turns, {repeats} times; the run of median speed is shown.
Seconds are of CPU time, from the built network to the end of the epoch, with searches, trials, traces and restarts.
Batch: the largest that was trained. Use: the median peak under it, as a share of the budget. Thrown away: samples
whose training was undone. On a CPU larger batches are hardly faster, so speed shows what each method costs, not what
it gains on a GPU. The other methods recognise out-of-memory errors by the message of torch's allocator; oneDNN's
differs."""


def measure_epochs(python: Path, samples: int, budget_mib: int, repeats: int) -> list[Record]:
    """Return a record of each method and scene: the run of median speed."""

    def run(method: str, scene: str) -> Record:
        return run_method(python, "any_loop_methods.py", [method, scene, str(samples), str(budget_mib)], samples)

    best = run("search", "alone")["batch"]
    print(f"the largest batch that trying finds: {best}", flush=True)
    methods = ["accelerate", "lightning", *(f"fixed {n}" for n in sorted({16, 64, best})), "ours in Lightning", "ours"]
    records = []
    for scene in SCENES:
        for method, record in typical_runs(methods, partial(run, scene=scene), repeats, "samples_per_s").items():
            name = NAMES.get(method, f"by hand, {method.split()[-1]}{' (largest found)' * (method == f'fixed {best}')}")
            records.append({"scene": scene, "name": name, **record})
    return records


def page(result: Record) -> str:
    """Return the page in Markdown."""
    facts, overhead = result["facts"], result["overhead"]
    lines = [
        "# Your own training loop: ours compared with other tools",
        "",
        f"`{facts['command']}`, {facts['date']}: {facts['machine']}, torch {facts['torch']}, lightning "
        f"{facts['lightning']}, accelerate {facts['accelerate']}.",
        *([facts["note"]] if facts["note"] else []),
        "",
        INTRODUCTION.format(**facts),
        "",
    ]
    for scene, title in SCENES.items():
        lines += [
            f"## {title}",
            "",
            *table_head("samples/s"),
            *(row(each, each["name"], "samples_per_s") for each in result["epochs"] if each["scene"] == scene),
            "",
        ]
    lines += [
        "## Overhead compared with the same loop written by hand",
        "",
        "Both use the same fixed plan without a budget, in one process, step by step in turns. The figures are",
        f"process CPU time of {overhead['pairs']} pairs of {overhead['block']} steps of {overhead['step_ms']:.0f}",
        "ms by hand.",
        "",
        *overhead_lines(overhead),
    ]
    return "\n".join(lines) + "\n"


def is_kept(result: Record) -> bool:
    """Say whether ours holds what it promises."""
    ours = [record for record in result["epochs"] if record["method"] == "ours"]
    whole = all(not record["failures"] and not record["lost"] and not record["twice"] for record in ours)
    return whole and median(result["overhead"]["ours/hand"]) <= MOST_RATIO


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="an eighth of the samples, once: about two minutes")
    parser.add_argument("--samples", type=int, default=12_000)
    parser.add_argument("--budget-mib", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=10, help="of the overhead")
    parser.add_argument("--peers", type=lambda path: Path(path).resolve(), default=ROOT / "build" / "peers")
    parser.add_argument("--write", type=Path, help="folder for any_loop.md and any_loop.json")
    parser.add_argument("--machine", default="a virtual machine", help="words for the page")
    parser.add_argument("--note", default="", help="a sentence for the page")
    arguments = parser.parse_args(words)
    samples, repeats = (arguments.samples // 8, 1) if arguments.small else (arguments.samples, arguments.repeats)
    python = peers_python(arguments.peers, "bench")
    result: Record = {
        "facts": {
            "command": (
                f"python scripts/bench/any_loop.py --samples {samples} --repeats {repeats} --write docs/benchmarks"
            ),
            "date": date.today().isoformat(),
            "machine": f"{os.cpu_count()} cores of {arguments.machine}, Python {platform.python_version()}",
            **versions(python, ["torch", "lightning", "accelerate"]),
            "note": arguments.note,
            "samples": samples,
            "budget_mib": arguments.budget_mib,
            "repeats": repeats,
        },
        "epochs": measure_epochs(python, samples, arguments.budget_mib, repeats),
        "overhead": run_overhead(
            "any_loop_overhead.py", "--pairs", str(arguments.pairs), "--block", str(6 if arguments.small else 16)
        ),
    }
    text = page(result)
    print(text)
    if arguments.write:
        (arguments.write / "any_loop.md").write_text(text)
        (arguments.write / "any_loop.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0 if is_kept(result) else 1


if __name__ == "__main__":
    sys.exit(main())
