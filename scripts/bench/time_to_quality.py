"""Does a fuller memory train better per second? Whole runs of the quick start, compared by time and by samples.

    python scripts/bench/time_to_quality.py [--small] [--seeds 3] [--samples 3000] [--levels 0 0.4 0.8 1.2]
                                            [--only VARIANT] [--fresh] [--no-run] [--write FOLDER]

Network, photographs and budget are those of ``options/train/quickstart.yml``. Every run trains the same number of
samples, and its schedule counts samples, so that each comes to the end of its schedule whatever its batch;
``start, same pixels`` is given more of its smaller crops, and with them about as many seconds. Runs take turns, seed
by seed, each a process of its own on one thread. A result is appended to a file of JSON lines when it is there, so a
second call runs only what is missing. Levels are read from the curves afterwards. ``--samples 7500`` is the length of
the quick start itself, 600 steps, at the plan that fills its memory. ``--small`` takes about two minutes. Linux only.

``--write docs/benchmarks`` writes time_to_quality.md and time_to_quality.json there. Exit code 1 if a run failed.
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
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from autobatch_cases import ROOT, child_environment
from time_to_quality_table import Record, figures_of, page

OPTION_FILE = ROOT / "options" / "train" / "quickstart.yml"
CONTROLLER = "DynamicBatchSizeOptimizer"
SAMPLES, LEVELS_DB = 3000, (0.0, 0.4, 0.8, 1.2)
SMALL_SAMPLES, SMALL_LEVELS_DB = 1000, (-1.6, -1.55)
POINTS, SMALL_POINTS = 20, 10
"""Validations of a run, as far as its batch can be predicted."""

PATIENCE_S = 1800


@dataclass(frozen=True)
class Variant:
    """One way to spend the budget.

    Attributes:
        name: the word for it on the page.
        controller: what it changes in the quick start's controller; ``None``: the run has no controller.
        scalings: values of ``train.lr_scaling`` that can make a difference.
        usual_batch: about how many samples its steps hold, for the steps between validations to be chosen.
        same_pixels: trains as many pixels as crops of the controller's bound would hold, not as many samples.
    """

    name: str
    controller: dict[str, Any] | None
    scalings: Sequence[str] = ("none", "sqrt")
    usual_batch: int = 12
    same_pixels: bool = False


VARIANTS = (
    Variant("start", None, ("none",), usual_batch=4),
    Variant("start, same pixels", None, ("none",), usual_batch=4, same_pixels=True),
    Variant("memory", {}),
    Variant("throughput", {"objective": "throughput"}, usual_batch=10),
    # Its rate follows the 16 samples that it always holds: lr_scaling changes nothing.
    Variant("target16", {"target_batch_size": 16}, ("none",), usual_batch=16),
)
SMALL = ("start", "memory")


@dataclass(frozen=True)
class Cell:
    """One run to make."""

    variant: Variant
    scaling: str
    seed: int
    samples: int
    points: int = POINTS

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells its result from others."""
        return self.variant.name, self.scaling, self.seed, self.samples


def key_of(record: Record) -> tuple[Any, ...]:
    """Return the key of the cell that a result belongs to."""
    return record["variant"], record["scaling"], record["seed"], record["samples"]


def options_of(cell: Cell, cache: Path) -> Record:
    """Return the option file of a run: the quick start's, with what the cell changes."""
    options: Record = yaml.safe_load(OPTION_FILE.read_text())
    train, controllers = options["train"], options["training_automations"]
    warmup = train.pop("warmup_steps") / train.pop("total_iter")  # a run that counts samples takes a share
    samples = cell.samples
    if cell.variant.same_pixels:
        crops_px = controllers[CONTROLLER]["max_lq_size"], options["datasets"]["train"]["lq_size"]
        samples = round(samples * (crops_px[0] / crops_px[1]) ** 2)
    train |= {"total_samples": samples, "warmup_ratio": round(warmup, 4), "lr_scaling": cell.scaling}
    options |= {"name": "run", "device": "cpu", "num_threads": 1, "manual_seed": cell.seed}
    for dataset in options["datasets"].values():
        dataset["cache_dir"] = str(cache)
    options["val"] |= {"val_freq": max(1, samples // (cell.variant.usual_batch * cell.points)), "save_img": False}
    options["logger"] = {"print_freq": 50, "save_checkpoint_freq": 100_000, "use_tb_logger": False}
    options["memory"]["calibration"] = False  # no run learns from one before it
    if cell.variant.controller is None:
        del options["training_automations"]
    else:
        controllers[CONTROLLER] |= deepcopy(cell.variant.controller)
    return options


def trained(cell: Cell, folder: Path, cache: Path) -> Record:
    """Train a cell through ``train.py`` in a process of its own; return what its logs say.

    Raises:
        RuntimeError: the run did not end well.
    """
    folder.mkdir(parents=True)
    (folder / "run.yml").write_text(yaml.safe_dump(options_of(cell, cache), sort_keys=False))
    command = [sys.executable, str(ROOT / "train.py"), "-opt", "run.yml"]
    load, began = os.getloadavg()[0], time.monotonic()
    with (folder / "output.txt").open("w") as output:
        code = subprocess.run(
            command,
            cwd=folder,
            env=child_environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        ).returncode
    wall_s = time.monotonic() - began
    if code:
        raise RuntimeError(f"exit code {code}: " + " ".join((folder / "output.txt").read_text().splitlines()[-3:]))
    run = folder / "experiments" / "run" / "current"
    steps, validations = lines(run / "training_log.jsonl"), lines(run / "validation.jsonl")
    figures = figures_of(steps, validations, json.loads((run / "config.json").read_text()))
    names = {"variant": cell.variant.name, "scaling": cell.scaling, "seed": cell.seed, "samples": cell.samples}
    return {**names, **figures, "wall_s": round(wall_s, 1), "load": round(load, 1)}


def lines(file: Path) -> list[Record]:
    """Return the records of a file of JSON lines; none if there is no such file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def cells(variants: Sequence[str], seeds: int, samples: int, points: int = POINTS) -> Iterator[Cell]:
    """Yield all runs, seed by seed and all variants in turn, so that load on the machine meets all alike."""
    for seed in range(1, seeds + 1):
        for variant in VARIANTS:
            if variant.name in variants:
                yield from (Cell(variant, scaling, seed, samples, points) for scaling in variant.scalings)


def fill(file: Path, wanted: Sequence[Cell]) -> int:
    """Make every run that has no result yet, append what comes, and return how many failed."""
    have = {key_of(result) for result in lines(file)}
    missing = [cell for cell in wanted if cell.key not in have]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="quality") as folder:
        for place, cell in enumerate(missing):
            heading = f"{place + 1}/{len(missing)} {cell.variant.name}, lr_scaling {cell.scaling}, seed {cell.seed}:"
            try:
                record = trained(cell, Path(folder) / str(place), Path(folder) / "cache")
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{heading} {error}", flush=True)
                failed += 1
                continue
            with file.open("a") as results:
                results.write(json.dumps(record) + "\n")
            gained = f"{record['gain_db']:+.2f} dB after {record['seconds']:.0f} s"
            print(f"{heading} {gained}, {record['wall_s']:.0f} s in all", flush=True)
    return failed


def facts(arguments: argparse.Namespace, seeds: int, samples: int, levels_db: Sequence[float]) -> Record:
    """Return what a reader needs to judge the figures."""
    levels = " ".join(f"{level:g}" for level in levels_db)
    chosen = f"--seeds {seeds} --samples {samples} --levels {levels}" + (" --small" if arguments.small else "")
    return {
        "command": f"python scripts/bench/time_to_quality.py {chosen} --write docs/benchmarks",
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores of {arguments.machine}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "samples": samples,
        "note": arguments.note,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [variant.name for variant in VARIANTS]
    parser.add_argument("--small", action="store_true", help="one seed, two variants, short: about two minutes")
    parser.add_argument("--seeds", type=int, help="seeds of every variant (3)")
    parser.add_argument("--samples", type=int, help=f"samples of a run ({SAMPLES})")
    parser.add_argument("--levels", type=float, nargs="+", help=f"dB of PSNR-Y above bicubic {LEVELS_DB}")
    parser.add_argument("--only", action="append", choices=names, help="make runs of this variant; may be repeated")
    parser.add_argument("--fresh", action="store_true", help="forget the results there are")
    parser.add_argument("--no-run", action="store_true", help="make the page of the results there are")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "time_to_quality.jsonl", help="JSON lines")
    parser.add_argument("--write", type=Path, help="folder for time_to_quality.md and time_to_quality.json")
    parser.add_argument("--machine", default="a virtual machine", help="words for the page")
    parser.add_argument("--note", default="", help="a sentence for the page")
    arguments = parser.parse_args()
    small: bool = arguments.small
    samples = arguments.samples or (SMALL_SAMPLES if small else SAMPLES)
    seeds = arguments.seeds or (1 if small else 3)
    levels_db = sorted(arguments.levels or (SMALL_LEVELS_DB if small else LEVELS_DB))
    file: Path = arguments.results.resolve()
    if small:
        file = file.with_name(f"{file.stem}_small{file.suffix}")
    file.parent.mkdir(parents=True, exist_ok=True)
    if arguments.fresh:
        file.unlink(missing_ok=True)
    chosen = arguments.only or (SMALL if small else names)
    wanted = list(cells(chosen, seeds, samples, SMALL_POINTS if small else POINTS))
    if small:
        wanted = [cell for cell in wanted if cell.scaling == "none"]
    failed = 0 if arguments.no_run else fill(file, wanted)
    known = {cell.key for cell in cells(names, seeds, samples)}
    results = [
        result for result in {key_of(result): result for result in lines(file)}.values() if key_of(result) in known
    ]
    if not results:
        print("no results", file=sys.stderr)
        return 1
    about = facts(arguments, seeds, samples, levels_db)
    text = page(results, levels_db, about)
    print(text)
    if arguments.write:
        (arguments.write / "time_to_quality.md").write_text(text)
        kept = {**about, "levels_db": levels_db, "runs": results}
        (arguments.write / "time_to_quality.json").write_text(json.dumps(kept, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
