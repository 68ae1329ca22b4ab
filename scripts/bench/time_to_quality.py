"""Which plan trains best in so many seconds? Whole runs, each with its schedule ended at the same second.

    python scripts/bench/time_to_quality.py [--seeds 3] [--only TASK] [--small] [--no-run] [--write docs/benchmarks]

Tasks: the quick start (12 s and 60 s of training), ``options/text/tiny_gpt.yml`` (60 s) from a quarter of its batch,
and a classifier of digits in a loop of its own (``digits_run.py``, 5 s) from a batch that is too small. Variants: the
option file's plan, larger batches of a grid, and the objectives of the controller.

Machines are shared, and a run that is slowed by a neighbour would seem to train worse. So steps are timed first, alone
and in turns: short runs of the file's batch and of the grid, three rounds, the fastest of each; a constant and a slope
by work are fitted to them. From then on a step costs what that line says of its work, whatever the clock says, and a
run's schedule ends when its steps have cost the seconds that are wanted. What objectives spend on plans they try is
counted so; a trial finds how much data that leaves room for. Each run is a process of its own on one thread. A result
is appended to a file of JSON lines when it is there, so that a second call runs only what is missing. ``--small`` takes
a minute. Linux only. The script runs on a card unchanged (``--device auto``), where it has no budget.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml
from autobatch_cases import ROOT, child_environment

Record = dict[str, Any]
CONTROLLER = "DynamicBatchSizeOptimizer"
OBJECTIVES = ("memory", "throughput", "goodput")
PATIENCE_S = 1800
NEAR, TRIALS = 0.06, 3
"""How far the seconds of a run may lie off those that are wanted, and how often its length is mended for that."""

ROUNDS, SHARE = 3, 12
"""Rounds of timing, and the share of the first trial's data that each of them trains."""


@dataclass(frozen=True)
class Task:
    """What is trained.

    Attributes:
        name: of it.
        option_file: of it, or a script that is given its options as JSON.
        seconds: of training.
        batch: of the option file, or another one to begin with, in samples or tokens.
        grid: larger batches, fixed.
        metric: what the last validation is judged by.
        higher_is_better: of it.
        first_samples: of the first trial; of texts, epochs by the thousand.
        budget: of memory, on a CPU.
        note: what explains its figures.
    """

    name: str
    option_file: Path
    seconds: float
    batch: int
    grid: Sequence[int]
    metric: str
    higher_is_better: bool
    first_samples: int
    budget: str
    note: str = ""

    @property
    def is_script(self) -> bool:
        """Whether it is a loop of its own."""
        return self.option_file.suffix == ".py"

    @property
    def is_text(self) -> bool:
        """Whether batches are counted in tokens."""
        return self.option_file.parent.name == "text"


QUICKSTART, GPT = ROOT / "options" / "train" / "quickstart.yml", ROOT / "options" / "text" / "tiny_gpt.yml"
TASKS = (
    Task("quick start, 12 s", QUICKSTART, 12, 4, (8, 16, 32), "psnr_y", True, 2400, "96MiB"),
    Task("quick start, 60 s", QUICKSTART, 60, 4, (8, 16, 32), "psnr_y", True, 10000, "96MiB"),
    Task("tiny_gpt from 512 tokens, 60 s", GPT, 60, 512, (1024, 2048), "loss", False, 2500, "512MiB"),
)
DIGITS = ROOT / "scripts" / "bench" / "digits_run.py"
DIGITS_NOTE = """\
A step of 4 samples takes 3.3 ms here, one of 64 takes 5.1: the file's batch is too small. Goodput leaves it after 33
steps, and tries batches of up to 119 in the first 140 of some 1,200 steps before it stays between 22 and 61. It is not
shown to be better than the file's batch: its runs took 2.6 to 7.3 s, for what they try differs, and a second set of
eight (3.7 to 8.4 s) was .003 worse than the file (better in 2 of 8). A batch of 16 that is held from the first step
learns more in the same time: what is tried costs a share of so short a run, and no batch of the grid gains much."""
TASKS += (Task("digits from batch 4, 5 s", DIGITS, 5, 4, (16, 64, 256), "loss", False, 20000, "96MiB", DIGITS_NOTE),)
SMALL = Task("quick start, 2 s", QUICKSTART, 2, 4, (), "psnr_y", True, 400, "96MiB")


@dataclass(frozen=True)
class Cell:
    """One run: of a task, under a variant (an objective, or ``batch N``), with a seed."""

    task: str
    variant: str
    seed: int


def options_of(task: Task, variant: str, seed: int, samples: int, cache: Path, device: str) -> Record:
    """Return the options of a run."""
    batch = int(variant.split()[-1]) if variant.startswith("batch") else task.batch
    if task.is_script:
        objective = variant if variant in OBJECTIVES else None
        own = {"batch": batch, "objective": objective, "samples": samples, "seed": seed}
        return own | {"budget": task.budget, "device": device}
    options: Record = yaml.safe_load(task.option_file.read_text())
    train, controller = options["train"], options["training_automations"][CONTROLLER]
    warmup = train.pop("warmup_steps", 0) / train["total_iter"] if "total_iter" in train else train["warmup_ratio"]
    for name in ("total_iter", "total_epochs"):
        train.pop(name, None)
    length = {"total_epochs": samples / 1000} if task.is_text else {"total_samples": samples}
    train |= {**length, "warmup_ratio": round(warmup, 4)}
    options |= {"name": "run", "device": device, "num_threads": 1, "manual_seed": seed}
    options["val"] |= {"val_freq": 10**6}  # it validates at its end
    options["logger"] = {"print_freq": 50, "save_checkpoint_freq": 10**6, "use_tb_logger": False}
    # One budget for all, in which the whole grid fits: enforcing it takes time, and more where it is tight.
    options["memory"] = {"calibration": False, **({"cpu_budget": task.budget} if device == "cpu" else {})}
    if task.is_text:
        train["tokens_per_batch"] = batch
        controller.pop("max_tokens", None)
    else:
        options["val"]["save_img"] = False
        options["datasets"]["train"]["batch_size_per_gpu"] = batch
        for dataset in options["datasets"].values():
            dataset["cache_dir"] = str(cache)
    if variant in OBJECTIVES:
        controller["objective"] = variant
    else:
        del options["training_automations"]
    return options


def trained(
    task: Task, cell: Cell, samples: int, folder: Path, cache: Path, device: str, cost: Sequence[float] = ()
) -> Record:
    """Train in a process of its own; return what its logs say.

    Raises:
        RuntimeError: the run did not end well.
    """
    folder.mkdir(parents=True)
    options = options_of(task, cell.variant, cell.seed, samples, cache, device)
    (folder / "run.yml").write_text(json.dumps(options))  # JSON is YAML
    program = [task.option_file] if task.is_script else [ROOT / "train.py", "-opt"]
    with (folder / "output.txt").open("w") as output:
        code = subprocess.run(
            [sys.executable, *map(str, program), "run.yml"],
            cwd=folder,
            env=child_environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        ).returncode
    if code:
        raise RuntimeError(f"exit code {code}: " + " ".join((folder / "output.txt").read_text().splitlines()[-3:]))
    run = folder / "experiments" / ("current" if task.is_script else "run/current")
    steps = lines(run / "training_log.jsonl")
    if task.is_script:
        validation = {"metrics": json.loads((folder / "output.txt").read_text().splitlines()[-1])}
    else:
        validation = lines(run / "validation.jsonl")[-1]
    noted = [step for step in steps if step.get("noise")]
    return {
        **asdict(cell),
        "samples": samples,
        "trained": sum(step["units"] if task.is_text else step["samples"] for step in steps),
        "seconds": round(sum(cost[0] + cost[1] * step["units"] for step in steps), 2) if cost else 0.0,
        "clock": [median(step["data_s"] + step["step_s"] for step in steps), median(step["units"] for step in steps)],
        "steps": len(steps),
        "plan": steps[-1]["plan"],
        "peak_share": max(step["peak"]["allocated"] / (step["peak"]["limit"] or float("inf")) for step in steps),
        "ooms": sum(step["ooms"] for step in steps),
        "sampled_steps": len(noted),
        "score": validation["metrics"][task.metric],
        "baseline": validation.get("bicubic", {}).get(task.metric),
    }


def lines(file: Path) -> list[Record]:
    """Return the records of a file of JSON lines; none if there is no such file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def cells(tasks: Sequence[Task], seeds: int) -> Iterator[tuple[Task, Cell]]:
    """Yield all runs, seed by seed and all variants in turn, so that load on the machine meets all alike."""
    for task in tasks:
        variants = ("file", *(f"batch {batch}" for batch in task.grid), *OBJECTIVES)
        for seed in range(1, seeds + 1):
            yield from ((task, Cell(task.name, variant, seed)) for variant in variants)


def timed(task: Task, folder: Path, device: str) -> list[float]:
    """Return constant and slope of the seconds of a step by its work, from short runs in turns."""
    fastest: dict[float, float] = {}
    for number in range(ROUNDS):
        for batch in (task.batch, *task.grid):
            samples = task.first_samples // SHARE
            cell = Cell(task.name, f"batch {batch}", 1)
            seconds, work = trained(task, cell, samples, folder / f"{number}_{batch}", folder / "cache", device)[
                "clock"
            ]
            fastest[work] = min(seconds, fastest.get(work, seconds))
    works, seconds = np.array(list(fastest)), np.array(list(fastest.values()))
    if len(works) == 1:
        return [0.0, float(seconds[0] / works[0])]
    table = np.stack([1 / seconds, works / seconds], axis=1)
    constant, slope = np.linalg.lstsq(table, np.ones(len(works)), rcond=None)[0]
    return [max(0.0, float(constant)), float(slope)]


def fill(file: Path, tasks: Sequence[Task], seeds: int, device: str) -> int:
    """Make every run that has no result yet, append what comes, and return how many failed."""

    def keep(record: Record) -> None:
        with file.open("a") as results:
            results.write(json.dumps(record) + "\n")

    costs = {one["task"]: one["cost"] for one in lines(file) if "cost" in one}
    runs = [one for one in lines(file) if "cost" not in one]
    have = {(one["task"], one["variant"], one["seed"]) for one in runs}
    samples_of = {(one["task"], one["variant"]): one["samples"] for one in runs}
    failed = 0
    with tempfile.TemporaryDirectory(prefix="quality") as folder:
        for task in tasks:
            if task.name not in costs:
                costs[task.name] = timed(task, Path(folder) / f"timed {task.name}", device)
                keep({"task": task.name, "cost": costs[task.name]})
                print(f"{task.name}: {costs[task.name]}", flush=True)
        for number, (task, cell) in enumerate(cells(tasks, seeds)):
            if (cell.task, cell.variant, cell.seed) in have:
                continue
            key = cell.task, cell.variant
            samples, began = samples_of.get(key, task.first_samples), time.monotonic()
            try:
                for trial in range(TRIALS):
                    place = Path(folder) / f"{number}_{trial}"
                    record = trained(task, cell, samples, place, Path(folder) / "cache", device, costs[task.name])
                    is_steered = cell.variant in OBJECTIVES  # what it costs depends on what it tries
                    if (key in samples_of and not is_steered) or abs(record["seconds"] / task.seconds - 1) <= NEAR:
                        break
                    samples = max(100, round(samples * task.seconds / record["seconds"]))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{cell}: {error}", flush=True)
                failed += 1
                continue
            samples_of[key] = record["samples"]
            keep(record)
            took = time.monotonic() - began
            print(f"{cell}: {record['score']:.4f} in {record['seconds']:.1f} s, {took:.0f} s in all", flush=True)
    return failed


def page(results: Sequence[Record], tasks: Sequence[Task], facts: Record) -> str:
    """Return the page in Markdown."""
    text = [
        "# Time to quality: which plan trains best in so many seconds?",
        "",
        f"`{facts['command']}`, {facts['date']}: {facts['machine']}, Python {facts['python']},",
        f"torch {facts['torch']}, one thread. Nothing here was measured on a GPU: a card saturates later than a CPU,",
        "so that larger batches cost less there. The script runs on a card unchanged.",
        "",
        "Each run ends its schedule after the same seconds of training. The seconds of a step follow from its work, by",
        "a line fitted to steps that were timed in turns, so that no neighbour of a run counts against it.",
        "`file` is the option file's plan, `batch N` the same with another batch, held; the others are objectives of",
        "the controller. Medians over the seeds (least..most).",
    ]
    for task in tasks:
        of_task = [one for one in results if one["task"] == task.name]
        if of_task:
            text += ["", f"## {task.name}", "", *_table(of_task, task), "", *_verdict(of_task, task)]
            text += ["", task.note] if task.note else []
    return "\n".join([*text, ""])


def _table(results: Sequence[Record], task: Task) -> list[str]:
    unit = "tokens" if task.is_text else "samples"
    gain = "" if task.metric == "loss" else " (dB above bicubic)"
    rows = [f"| variant | runs | seconds | steps | last plan | {unit} | peak use | {task.metric}{gain} |"]
    rows.append("|---|---:|---:|---:|---|---:|---:|---:|")
    for variant in dict.fromkeys(one["variant"] for one in results):
        runs = [one for one in results if one["variant"] == variant]
        scores = sorted(_score(one) for one in runs)
        use = max(one["peak_share"] for one in runs)
        rows.append(
            f"| {variant} | {len(runs)} | {median(one['seconds'] for one in runs):.1f} "
            f"| {median(one['steps'] for one in runs):.0f} | {_plan(runs[-1]['plan'])} "
            f"| {median(one['trained'] for one in runs):.0f} | {f'{use:.0%}' if use else '-'} "
            f"| {median(scores):+.3f} ({scores[0]:+.3f}..{scores[-1]:+.3f}) |"
        )
    return rows


def _verdict(results: Sequence[Record], task: Task) -> list[str]:
    """Say how goodput comes out against the file, the grid and the other objectives, seed by seed."""
    by = {(one["variant"], one["seed"]): _score(one) for one in results}
    seeds = sorted({seed for variant, seed in by if variant == "goodput"})
    sign = 1 if task.higher_is_better else -1
    said = []
    for other in dict.fromkeys(variant for variant, _ in by if variant != "goodput"):
        pairs = [sign * (by["goodput", seed] - by[other, seed]) for seed in seeds if (other, seed) in by]
        if pairs:
            better = sum(pair > 0 for pair in pairs)
            said.append(f"{median(pairs):+.3f} to `{other}` (better in {better} of {len(pairs)})")
    return [f"Goodput, paired by seed, higher is better: {'; '.join(said)}."] if said else []


def _score(one: Record) -> float:
    """Return what the last validation gave; of images above bicubic."""
    return float(one["score"] - (one["baseline"] or 0.0))


def _plan(plan: Record) -> str:
    if "tokens" in plan:
        return f"{plan['tokens']} tokens"
    if "lq_size" not in plan:
        return f"batch {plan['batch_size']}"
    return f"batch {plan['batch_size']} x {plan['lq_size']} px"


def main() -> int:
    """Run what is missing, print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="tasks whose names hold this")
    parser.add_argument("--small", action="store_true", help="two seconds of the quick start, one seed")
    parser.add_argument("--device", default="cpu", choices=("cpu", "auto"))
    parser.add_argument("--no-run", action="store_true", help="make the page of what is there")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "time_to_quality.jsonl", help="JSON lines")
    parser.add_argument("--write", type=Path, help="folder for time_to_quality.md and time_to_quality.json")
    parser.add_argument("--machine", default=platform.processor() or platform.machine(), help="words for the page")
    arguments = parser.parse_args()
    tasks = (SMALL,) if arguments.small else tuple(one for one in TASKS if (arguments.only or "") in one.name)
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    seeds = 1 if arguments.small else arguments.seeds
    failed = 0 if arguments.no_run else fill(arguments.results, tasks, seeds, arguments.device)
    results = [one for one in lines(arguments.results) if "cost" not in one]
    facts = {
        "command": f"python scripts/bench/time_to_quality.py --seeds {seeds} --write docs/benchmarks",
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores of {arguments.machine}",
        "python": platform.python_version(),
        "torch": version("torch"),
    }
    if not results:
        print("no results", file=sys.stderr)
        return 1
    text = page(results, tasks, facts)
    print(text)
    if arguments.write:
        (arguments.write / "time_to_quality.md").write_text(text)
        (arguments.write / "time_to_quality.json").write_text(json.dumps(results, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
