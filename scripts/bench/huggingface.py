"""An epoch of transformers' Trainer: ours beside the stock one and others, under one budget, in one run.

    python scripts/bench/huggingface.py [--small] [--peers FOLDER] [--write FOLDER] [--note TEXT]

The stock Trainer with a batch of 8 and with the largest that trying finds, in random order and by length,
``auto_find_batch_size``, dynabatch's Trainer, and ours in samples and in tokens: each trains one epoch in a process of
its own. Methods take turns, ``--repeats`` times; medians. Then what ours costs over the stock Trainer
(huggingface_overhead.py). dynabatch is installed in an environment beside this one. ``--write docs/benchmarks`` writes
huggingface.md and huggingface.json there. Linux only.

Exit code 1 if ours lost a sample, trained one twice, ended, or costs more than 2 %.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import median

from huggingface_overhead import MOST_RATIO
from method_runs import Record, overhead_lines, row, run_method, run_overhead, table_head, typical_runs
from peers_env import ROOT, peers_python, versions

SPEED = "tokens_per_s"
OURS = {
    "samples": "ours, in samples (MemoryAwareTrainer)",
    "tokens": "ours, in padded tokens",
    "throughput": "the same, `objective: throughput`",
    "goodput": "the same, `objective: goodput`",
}
NAMES = {
    "fixed": "stock Trainer, batch {size}",
    "grouped": "stock Trainer, batch {size}, group_by_length",
    "auto_find": "auto_find_batch_size from {size}",
    "dynabatch": "dynabatch's Trainer, first batch {size}",
}
INTRODUCTION = """\
Each method trains one epoch of {samples} rows (lognormal lengths, median 40, at most 256 tokens) of a Llama of 2
layers of 96 with AdamW. It has one thread and an enforced budget, {budget_mib} MiB. Each runs in its own process,
{times}, in turns; the run of median speed is shown. Tokens exclude padding. Seconds are of CPU time, from the built
network to the end of the epoch, with searches, traces and restarts. {best} is the largest batch with which an epoch
of the stock Trainer finishes (of {found} a few steps fit). The stock Trainer and dynabatch use it, and that search is
not in their seconds. Batch: the most samples of a step. Use: the median peak of all steps, as a share of the budget.
Twice: samples that were trained more than once. On a CPU large batches are hardly faster."""


def measure_epochs(python: Path, samples: int, budget_mib: int, repeats: int) -> tuple[int, int, list[Record]]:
    """Return the largest batches that try out and that last, and a record of each method: the run of median speed."""

    def run(method: str) -> Record:
        return run_method(python, "huggingface_methods.py", [method, str(samples), str(budget_mib)], samples)

    found: int = run("search")["batch"]
    print(f"the largest batch of which a few steps fit: {found}", flush=True)
    best = next((size for size in range(found, 0, -1) if run(f"fixed {size}")["failure"] is None), 1)
    print(f"the largest batch with which an epoch comes to its end: {best}", flush=True)
    methods = [*(f"fixed {size}" for size in sorted({8, best})), f"grouped {best}", "auto_find 512"]
    methods += [f"dynabatch {best}", *OURS]
    return found, best, list(typical_runs(methods, run, repeats, SPEED).values())


def name_of(method: str) -> str:
    """Return what the page calls a method."""
    kind, *size = method.split()
    return OURS[kind] if kind in OURS else NAMES[kind].format(size=size[0])


def page(result: Record) -> str:
    """Return the page in Markdown."""
    facts, overhead = result["facts"], result["overhead"]
    lines = [
        "# The Trainer of transformers: ours compared with other tools",
        "",
        f"`{facts['command']}`, {facts['date']}: {facts['machine']}, torch {facts['torch']}, transformers "
        f"{facts['transformers']}, accelerate {facts['accelerate']}, dynabatch {facts['dynabatch']}.",
        *([facts["note"]] if facts["note"] else []),
        "",
        INTRODUCTION.format(**facts, times="once" if facts["repeats"] == 1 else f"{facts['repeats']} times"),
        "",
        *table_head("tokens/s"),
        *(row(record, name_of(record["method"]), SPEED) for record in result["epochs"]),
        "",
        *faster_ones(result["epochs"]),
        "",
        "## Overhead compared with the stock Trainer",
        "",
        "Both use the same fixed batch without a budget, in one process, step by step in turns. The figures are",
        f"process CPU time: medians of {overhead['pairs']} pairs of {overhead['steps']} steps of",
        f"{overhead['step_ms']:.0f} ms of the stock Trainer, in each of {len(overhead['ours/stock'])} processes.",
        "",
        *overhead_lines(overhead),
    ]
    return "\n".join(lines) + "\n"


def faster_ones(epochs: Sequence[Record]) -> list[str]:
    """Return how the fastest of ours stands beside the fastest of the others."""

    def fastest(is_ours: bool) -> Record:
        group = [record for record in epochs if (record["method"] in OURS) is is_ours]
        return max(group, key=lambda record: float(record[SPEED]))

    def said(record: Record) -> str:
        return f"{record[SPEED]:,.0f} tokens/s at {record['use']:.0%} of the budget"

    ours, other = fastest(True), fastest(False)
    ratio = ours[SPEED] / other[SPEED]
    return [
        f"Our fastest row is `{ours['method']}` ({said(ours)}): {ratio:.3f} of the fastest other,",
        f"{name_of(other['method'])} ({said(other)}). This includes traces before the first step.",
        "`objective: memory`, the default, fills the available memory, which does not increase speed on a CPU.",
    ]


def is_kept(result: Record) -> bool:
    """Say whether ours holds what it promises."""
    ours = [record for record in result["epochs"] if record["method"] in OURS]
    whole = all(not record["failures"] and not record["lost"] and not record["twice"] for record in ours)
    return whole and median(result["overhead"]["ours/stock"]) <= MOST_RATIO


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="an eighth of the samples, once: about two minutes")
    parser.add_argument("--samples", type=int, default=4_000)
    parser.add_argument("--budget-mib", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", type=lambda path: Path(path).resolve(), default=ROOT / "build" / "text_peers")
    parser.add_argument("--write", type=Path, help="folder for huggingface.md and huggingface.json")
    parser.add_argument("--machine", default="a virtual machine", help="words for the page")
    parser.add_argument("--note", default="", help="a sentence for the page")
    arguments = parser.parse_args(words)
    samples, repeats = (arguments.samples // 8, 1) if arguments.small else (arguments.samples, arguments.repeats)
    python = peers_python(arguments.peers, "bench-texts")
    found, best, epochs = measure_epochs(python, samples, arguments.budget_mib, repeats)
    command = f"python scripts/bench/huggingface.py --samples {samples} --repeats {repeats} --write docs/benchmarks"
    processes = "1" if arguments.small else "6"
    result: Record = {
        "facts": {
            "command": command,
            "date": date.today().isoformat(),
            "machine": f"{os.cpu_count()} cores of {arguments.machine}, Python {platform.python_version()}",
            **versions(python, ["torch", "transformers", "accelerate", "dynabatch"]),
            "note": arguments.note,
            "samples": samples,
            "budget_mib": arguments.budget_mib,
            "repeats": repeats,
            "found": found,
            "best": best,
        },
        "epochs": epochs,
        "overhead": run_overhead("huggingface_overhead.py", "--processes", processes),
    }
    text = page(result)
    print(text)
    if arguments.write:
        (arguments.write / "huggingface.md").write_text(text)
        (arguments.write / "huggingface.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0 if is_kept(result) else 1


if __name__ == "__main__":
    sys.exit(main())
