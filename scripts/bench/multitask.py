"""Training on several tasks: fixed batches, accumulation, dynamic batches and both, beside the source's figures.

    python scripts/bench/multitask.py [--small] [--write FOLDER] [--note TEXT]

The digits' three tasks (one or two images a sample), steps of 64 samples. Each method trains in a process of its own on
one thread; methods take turns, ``--repeats`` times; medians. Dynamic methods are given a budget, a share of what the
fixed batch took. Then what ours costs where it changes nothing, and how accurate the model is when it learns the tasks
together and each alone. ``--write docs/benchmarks`` writes multitask.md and multitask.json there. Linux only.

Exit code 1 if a method of ours ended by an error.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from method_runs import Record, run_method

METHODS = ("fixed", "accumulated", "dynamic", "both", "unbounded")
TASKS = ("T1", "T2", "T3")
NAMES = {
    "fixed": "fixed batch (transformers' Trainer)",
    "accumulated": "+ gradient accumulation (transformers' Trainer)",
    "dynamic": "+ dynamic batches (ours)",
    "both": "+ both (ours)",
    "unbounded": "ours, as the fixed batch",
}
PUBLISHED = {"fixed": "25 GB", "accumulated": "18 GB, -28 %", "dynamic": "20 GB, -20 %", "both": "15 GB, -40 %"}
"""The source's table of memory, of another model on a card."""
BUDGET_SHARE = 0.6
"""Of the fixed batch's peak, that dynamic methods get."""

INTRODUCTION = """\
{samples} samples of the digits' tasks (T1 40 %, T2 30 %, T3 30 %; questions in words), {epochs} epochs, steps of 64
samples, AdamW, one thread, each method in a process of its own, {times}, in turns; medians. Memory is the highest peak
of a step beside what the process held before, in MiB; speed counts CPU seconds behind the first steps. Dynamic methods
had a budget of {budget_mib} MiB, {share:.0%} of what the fixed batch took, and leave a tenth of it free: what they
take is what they were given. The source's figures are of a model of its own on a card, and its code that trains is not
public: its table says what was claimed, ours what is measured here."""


def measure(samples: int, epochs: float, repeats: int) -> tuple[int, dict[str, Record]]:
    """Return the budget of dynamic methods in MiB, and of each method medians of its runs."""
    budget_mib = round(BUDGET_SHARE * run("fixed", samples, epochs, 0)["peak_mib"])
    runs: dict[str, list[Record]] = {method: [] for method in METHODS}
    for _ in range(repeats):
        for method in METHODS:
            runs[method].append(run(method, samples, epochs, budget_mib))
            print(f"{method}: {runs[method][-1]}", flush=True)
    return budget_mib, {method: typical(each) for method, each in runs.items()}


def typical(runs: Sequence[Record]) -> Record:
    """Return medians of the figures of runs; a failure of any stays."""
    failures = [one["failure"] for one in runs if one["failure"]]
    figures: Record = {"failure": failures[0] if failures else None, "runs": len(runs)}
    for name in ("samples_per_s", "peak_mib", "largest_pass", "ooms", "steps"):
        values = [one[name] for one in runs if one.get(name) is not None]
        figures[name] = median(values) if values else None
    return figures


def run(method: str, samples: int, epochs: float, budget_mib: int) -> Record:
    """Run a method in a process of its own."""
    words = [method, str(samples), str(epochs), str(budget_mib)]
    return run_method(Path(sys.executable), "multitask_methods.py", words, samples)


def row(method: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a method's line of the table."""
    own, base = figures[method], figures["fixed"]
    if own["failure"]:
        return f"| {NAMES[method]} | {PUBLISHED.get(method, '')} | {own['failure'][:80]} | | | | |"
    change = f" ({own['peak_mib'] / base['peak_mib'] - 1:+.0%})" if method != "fixed" else ""
    speed = own["samples_per_s"] / base["samples_per_s"]
    cells = [NAMES[method], PUBLISHED.get(method, ""), f"{own['peak_mib']:.0f}{change}", f"{own['largest_pass']:.0f}"]
    return f"| {' | '.join(cells)} | {own['samples_per_s']:.0f} | {speed:.2f} | {own['ooms']:.0f} |"


def accuracy_table(quality: Mapping[str, Record]) -> list[str]:
    """Return accuracy by task: together, together with equal weights, each alone."""
    lines = ["| trained | T1 | T2 | T3 |", "|---|---:|---:|---:|"]
    for method, name in (("together", "together, GradNorm"), ("equal", "together, equal weights")):
        lines.append(f"| {name} | {' | '.join(percent(quality[method], task) for task in TASKS)} |")
    alone = " | ".join(percent(quality[task], task) for task in TASKS)
    return [*lines, f"| each alone, three models | {alone} |"]


def percent(record: Record, task: str) -> str:
    """Return an accuracy in per cent."""
    return f"{100 * record['accuracy'][task]:.1f} %" if record.get("accuracy") else str(record["failure"])


def page(result: Record) -> str:
    """Return the page in Markdown."""
    facts, figures = result["facts"], result["methods"]
    cost = figures["fixed"]["samples_per_s"] / figures["unbounded"]["samples_per_s"] - 1
    lines = [
        "# Several tasks: memory, speed and accuracy, beside the source's figures",
        "",
        f"`{facts['command']}`, {facts['date']}: {facts['machine']}, torch {facts['torch']}, transformers "
        f"{facts['transformers']}.",
        *([facts["note"]] if facts["note"] else []),
        "",
        INTRODUCTION.format(**facts, times="once" if facts["repeats"] == 1 else f"{facts['repeats']} times"),
        "",
        "| | source: memory | memory, MiB | largest pass | samples/s | of the fixed batch's | OOMs |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(row(method, figures) for method in METHODS if method != "unbounded"),
        "",
        f"Overhead of dynamic batching, steps alike and no budget: {cost:+.1%} of CPU time (the source: about 4 %).",
        "Its claims of twice the throughput with smaller batches, and of half the training time, are to be held",
        "against the speed of the third and fourth line.",
        "",
        "## Accuracy",
        "",
        f"On {facts['test_samples']} samples of pictures that no training saw, after {facts['quality_epochs']} epochs "
        f"of {facts['quality_samples']} samples; a task alone has as many samples of it as the mixture has.",
        "",
        *accuracy_table(result["quality"]),
    ]
    return "\n".join(lines) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few samples, once: about three minutes")
    parser.add_argument("--samples", type=int, default=4_000)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--quality-samples", type=int, default=9_000)
    parser.add_argument("--quality-epochs", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", type=Path, help="folder for multitask.md and multitask.json")
    parser.add_argument("--machine", default="a virtual machine", help="words for the page")
    parser.add_argument("--note", default="", help="a sentence for the page")
    given = parser.parse_args(words)
    if given.small:
        given.samples, given.epochs, given.repeats = 1_280, 1.0, 1
        given.quality_samples, given.quality_epochs = 2_000, 2.0
    budget_mib, methods = measure(given.samples, given.epochs, given.repeats)
    quality = {}
    for method in ("together", "equal", *TASKS):
        quality[method] = run(method, given.quality_samples, given.quality_epochs, 0)
        print(f"{method}: {quality[method]}", flush=True)
    command = f"python scripts/bench/multitask.py {'--small ' if given.small else ''}--repeats {given.repeats}"
    result: Record = {
        "facts": {
            "command": f"{command} --write docs/benchmarks",
            "date": date.today().isoformat(),
            "machine": f"{os.cpu_count()} cores of {given.machine}, Python {platform.python_version()}",
            "torch": version("torch"),
            "transformers": version("transformers"),
            "note": given.note,
            "samples": given.samples,
            "epochs": given.epochs,
            "repeats": given.repeats,
            "budget_mib": budget_mib,
            "share": BUDGET_SHARE,
            "test_samples": 1500,
            "quality_samples": given.quality_samples,
            "quality_epochs": given.quality_epochs,
        },
        "methods": methods,
        "quality": quality,
    }
    text = page(result)
    print(text)
    if given.write:
        (given.write / "multitask.md").write_text(text)
        (given.write / "multitask.json").write_text(json.dumps(result, indent=1) + "\n")
    ours = [*(methods[name] for name in ("dynamic", "both", "unbounded")), *quality.values()]
    return 1 if any(record["failure"] for record in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
