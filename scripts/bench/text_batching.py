"""Batches of texts of different lengths, ours beside those of others, in one run.

    python scripts/bench/text_batching.py [--texts 20000] [--repeats 5] [--part packing|throughput|classifier|all]

1. Packing: lognormal lengths (median 40 tokens, at most 512) into batches, in one thread: how many, how much padding,
   how long it takes; with equal bounds and equal caps. dynabatch comes from the registry, in an environment of its own.
2. Throughput: texts embedded, continued and learned from by small networks, under one memory budget, in processes of
   their own (scripts/bench/text_throughput.py).
3. Classifier: what the loader plans where the classifier admits batches, on three distributions of lengths; every batch
   is held against the rule (scripts/bench/text_classified.py).

A part alone leaves the figures of the others as they are. Writes docs/benchmarks/text_batching.md and .json.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before numpy is loaded

import numpy as np  # noqa: E402
from peers_env import ROOT, peers_python, versions  # noqa: E402
from text_batching_page import cpu_name, missed, page  # noqa: E402
from text_classified import classified_rows  # noqa: E402
from text_rivals import (  # noqa: E402
    Batches,
    dynabatch,
    fixed_shuffled,
    fixed_sorted,
    in_random_order,
    median_seconds,
    most_tokens,
    padded_tokens,
)

from trainauto.core.files import write_json_atomically, write_text_atomically  # noqa: E402
from trainauto.data.packing import SampleSizes, TokenCost, candidate_counts, pack, pack_candidates  # noqa: E402

COUNT, LONGEST, FACTOR = 64, 512, 6
BOUND = COUNT * LONGEST
PAGE = ROOT / "docs" / "benchmarks" / "text_batching.md"


def lognormal_lengths(texts: int, longest: int = LONGEST, seed: int = 0) -> list[int]:
    """Return lengths as those of texts often are: median 40 tokens, some much longer."""
    drawn = np.random.default_rng(seed).lognormal(np.log(40), 0.9, texts)
    return np.clip(np.round(drawn), 1, longest).astype(int).tolist()


@dataclass(frozen=True)
class Row:
    """What a method makes of all texts.

    Attributes:
        method: its name.
        cap: most texts of a batch; None for no cap.
        batches: how many.
        padded_tokens: tokens with padding.
        waste: share of them that is padding.
        largest: most tokens of a batch.
        seconds: that it takes, without tokenizing.
    """

    method: str
    cap: int | None
    batches: int
    padded_tokens: int
    waste: float
    largest: int
    seconds: float


def packing_rows(lengths: Sequence[int], python: Path, repeats: int) -> list[Row]:
    """Return a row for each method and cap."""
    sizes, cost = SampleSizes(np.asarray(lengths)), TokenCost()
    candidates = candidate_counts(COUNT, end_range=FACTOR)

    def row(method: str, cap: int | None, build: Callable[[], Batches], seconds: float | None = None) -> Row:
        batches = build()
        if sorted(index for batch in batches for index in batch) != list(range(len(lengths))):
            raise RuntimeError(f"{method} does not hold every text once")
        padded = padded_tokens(batches, lengths)
        largest = max(len(batch) * max(lengths[index] for index in batch) for batch in batches)
        took = median_seconds(build, repeats) if seconds is None else seconds
        return Row(method, cap, len(batches), padded, 1 - sum(lengths) / padded, largest, took)

    def ours(cap: int | None) -> Row:
        packed = [batch.tolist() for batch in pack(sizes, cost, BOUND, most_samples=cap).batches()]
        seconds = median_seconds(lambda: pack(SampleSizes(sizes.tokens), cost, BOUND, most_samples=cap), repeats)
        return row("ours", cap, lambda: packed, seconds)

    rows = [row("fixed, shuffled", COUNT, lambda: fixed_shuffled(lengths, COUNT))]
    rows += [row("fixed, sorted", COUNT, lambda: fixed_sorted(lengths, COUNT)), ours(COUNT)]
    for factor in (2, FACTOR):
        batches, seconds = dynabatch(python, lengths, COUNT, factor, repeats)
        rows.append(
            row(f"dynabatch, up to {factor} times", factor * COUNT, lambda b=batches: b, float(np.median(seconds)))
        )
    documented = [batch.tolist() for batch in pack_candidates(sizes, cost, BOUND, candidates).batches()]
    seconds = median_seconds(lambda: pack_candidates(SampleSizes(sizes.tokens), cost, BOUND, candidates), repeats)
    rows.append(row("ours, 50 candidates as documented", FACTOR * COUNT, lambda: documented, seconds))
    for cap in (FACTOR * COUNT, None):
        for name, reverse in (("shortest", False), ("longest", True)):
            build = lambda c=cap, r=reverse: most_tokens(lengths, BOUND, c, longest_first=r)  # noqa: E731
            rows.append(row(f"max tokens, {name} first", cap, build))
        rows.append(ours(cap))
    return rows


TASKS = {"embed": (1200, 256, 32), "generate": (600, 256, 32), "train": (600, 256, 16)}
"""Texts, the longest, and how many of those surely fit."""
TURNS = 5
"""Of the methods in a process."""
ROOM = 1.15
"""The budget of a task is what its largest fixed batch takes, and a little more."""
METHODS = ("fixed, shuffled", "fixed, sorted", "max tokens", "dynabatch", "ours")


@dataclass(frozen=True)
class Throughput:
    """What a method makes of a task.

    Attributes:
        task: what is done with the texts.
        method: who made the batches.
        batches: how many ran.
        failures: times that memory ran out.
        tokens_per_s: of the texts, without padding, by CPU time; the median of all turns.
        to_shuffled: against fixed shuffled batches of the same turn, the median of the ratios.
        to_max_tokens: against batches by most tokens.
        budget_mib: memory there was.
        peak_mib: highest measured, the median of all turns.
    """

    task: str
    method: str
    batches: int
    failures: int
    tokens_per_s: float
    to_shuffled: float
    to_max_tokens: float
    budget_mib: float
    peak_mib: float


def throughput_rows(python: Path, processes: int, threads: int) -> list[Throughput]:
    """Return a row for each task and method; methods take turns in every process."""
    rows = []
    for task, (texts, longest, count) in TASKS.items():
        lengths = lognormal_lengths(texts, longest)
        batches = batches_of_rivals(lengths, count, longest, python)
        if task == "train":  # an epoch of training takes its batches in random order, fairseq's as ours
            batches = {method: in_random_order(made) for method, made in batches.items()}
        budget = budget_of(task, lengths, count, threads)
        runs: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
        for _ in range(processes):
            asked = {method: batches.get(method) for method in METHODS}
            for method, turns in run_child(task, lengths, count, asked, budget, threads, TURNS).items():
                runs[method] += turns
                print(task, method, turns, flush=True)
        for method in METHODS:
            seconds = {name: np.array([run["seconds"] for run in runs[name]]) for name in METHODS}
            rows.append(
                Throughput(
                    task,
                    method,
                    int(runs[method][0]["batches"]),
                    int(max(run["failures"] for run in runs[method])),
                    float(sum(lengths) / np.median(seconds[method])),
                    float(np.median(seconds["fixed, shuffled"] / seconds[method])),
                    float(np.median(seconds["max tokens"] / seconds[method])),
                    budget / 2**20,
                    float(np.median([run["peak_bytes"] for run in runs[method]])) / 2**20,
                )
            )
    return rows


def batches_of_rivals(lengths: list[int], count: int, longest: int, python: Path) -> dict[str, Batches]:
    """Return everybody's batches but ours."""
    return {
        "fixed, shuffled": fixed_shuffled(lengths, count),
        "fixed, sorted": fixed_sorted(lengths, count),
        "max tokens": most_tokens(lengths, count * longest, None, longest_first=True),
        "dynabatch": dynabatch(python, lengths, count, FACTOR, 1)[0],
    }


def budget_of(task: str, lengths: list[int], count: int, threads: int) -> int:
    """Return the bytes that the batch of the longest texts needs, measured, and some room."""
    first = [fixed_sorted(lengths, count)[0]]
    (alone,) = run_child(task, lengths, count, {"first": first}, 16 * 2**30, threads, 1)["first"]
    return int(ROOM * alone["peak_bytes"])


def run_child(
    task: str,
    lengths: list[int],
    count: int,
    batches: dict[str, Batches | None],
    budget_bytes: int,
    threads: int,
    turns: int,
) -> dict[str, list[dict[str, float]]]:
    """Run methods by turns in a process of their own; no batches are given for ours."""
    question = {
        "task": task, "lengths": lengths, "count": count, "batches": batches, "threads": threads, "turns": turns,
        "budget": f"{budget_bytes / 2**20:.3f}MiB",
    }  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(Path(__file__).parent / "text_throughput.py")]
    done = subprocess.run(
        command, input=json.dumps(question), env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    answer: dict[str, list[dict[str, float]]] = json.loads(done.stdout)
    return answer


def main() -> int:
    """Measure, write the page, and say what does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=20_000, help="lengths of the packing part")
    parser.add_argument("--repeats", type=int, default=5, help="builds of a packing")
    parser.add_argument(
        "--runs",
        type=int,
        default=3,
        help="processes of each task of the throughput part, with five turns of each method",
    )
    parser.add_argument("--threads", type=int, default=1, help="torch's threads")
    parser.add_argument("--part", choices=["packing", "throughput", "classifier", "all"], default="all")
    parser.add_argument("--peers", type=Path, default=ROOT / "build" / "text_peers")
    arguments = parser.parse_args()
    results_file = PAGE.with_suffix(".json")
    results = json.loads(results_file.read_text()) if results_file.exists() else {}
    if arguments.part != "classifier":
        measure_beside_others(results, arguments)
    if arguments.part in ("classifier", "all"):
        results["classifier"] = {
            "machine": this_machine(),
            "numpy": np.__version__,
            "texts": arguments.texts,
            "rows": [asdict(row) for row in classified_rows(arguments.texts, arguments.repeats)],
        }
    write_json_atomically(results_file, results)
    write_text_atomically(PAGE, page(results))
    failed = missed(results)
    print("\n".join(failed) or "all of it holds")
    return int(bool(failed))


def measure_beside_others(results: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Measure what needs the others' programs, into the results."""
    python = peers_python(arguments.peers, "bench-texts")
    if arguments.part != "throughput":
        lengths = lognormal_lengths(arguments.texts)
        results["packing"] = [asdict(row) for row in packing_rows(lengths, python, arguments.repeats)]
        results["many_s"] = many_seconds(arguments.repeats)
    if arguments.part != "packing":
        results["throughput"] = [asdict(row) for row in throughput_rows(python, arguments.runs, arguments.threads)]
        results["training_order"] = "random"
    names = ["numpy", "torch", "transformers", "dynabatch"]
    results["machine"] = {**this_machine(), **versions(python, names)}


def this_machine() -> dict[str, Any]:
    """Return what figures were measured on, and when."""
    version = platform.python_version()
    return {"cpu": cpu_name(), "cpus": os.cpu_count(), "python": version, "date": f"{date.today()}"}


def many_seconds(repeats: int) -> dict[str, float]:
    """Return what plans of few and of many texts take."""
    seconds = {}
    for texts in (20_000, 1_000_000):
        lengths = np.asarray(lognormal_lengths(texts))
        build = partial(lambda given: pack(SampleSizes(given), TokenCost(), BOUND), lengths)
        seconds[str(texts)] = median_seconds(build, repeats)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
