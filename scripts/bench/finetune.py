"""Fine-tuning a small vision-language model under one budget: ours beside transformers' Trainer and TRL's SFTTrainer.

    python scripts/bench/finetune.py [--small] [--peers FOLDER] [--write FOLDER] [--note TEXT]

The Trainer and TRL's train the same conversations with forward batches of 1, 2, 4 and 8, accumulated to steps of the
same size; ours is ``train.py`` with an option file that says 1, and one that says 8. Each trains an epoch in a process
of its own under an enforced budget; methods take turns, ``--repeats`` times. TRL is installed in an environment beside
this one. ``--write docs/benchmarks`` writes finetune.md and finetune.json there. Linux only.

Exit code 1 if ours ended, lost a conversation, or learned something else than the whole step would.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import finetune_clock
from finetune_data import HELD_BACK, SAMPLES, STEP, TEXT_SIZES, make_all, write_options
from finetune_page import Record, furthest, is_kept, page, roughness, steady_rate
from method_runs import environment, run_method, typical_runs
from peers_env import ROOT, peers_python, versions

BATCHES, FEWER_BATCHES = (1, 2, 4, 8), (1, 4, 8)
BUDGET_MIB = 144
NO_BUDGET_MIB = 4096
WHOLE = f"whole {STEP} {STEP}"
ALONE = ("plain 1 1", "plain 4 4")
"""Without accumulation: what the source's claim compares."""


class Bench:
    """Runs methods on the conversations of a folder.

    Args:
        made: of model and conversations.
        samples: conversations of an epoch.
        peers: interpreter of the environment with TRL.
    """

    def __init__(self, made: Path, samples: int, peers: Path) -> None:
        self._made, self._samples, self._peers = made, samples, peers
        self._runs = 0
        self.models: dict[str, str] = {}
        self.steady: dict[str, list[float]] = {}

    def run(self, method: str) -> Record:
        """Train an epoch by a method, and return what became of it."""
        self._runs += 1
        folder = self._made / f"run_{self._runs}"
        folder.mkdir()
        clock = folder / "clock.json"
        os.environ[finetune_clock.VARIABLE] = str(clock)
        step = int(method.split()[2])
        record = measured(
            lambda: self._ours(method, folder) if method.startswith("ours") else self._peer(method, folder)
        )
        record |= {"samples_per_s": (self._samples - record["lost"]) / record["cpu_s"], "steady_per_s": 0.0}
        if record["failure"] is None:
            noted = json.loads(clock.read_text())
            self.models.setdefault(method, record["model"])
            record["steady_per_s"] = steady_rate(noted["cpu_s"], step)
            self.steady.setdefault(method, []).append(record["steady_per_s"])
            record["start_s"] = noted["cpu_s"][0]
            record["losses"] = noted["losses"]
            record["roughness"] = roughness(noted["losses"])
        return record

    def _peer(self, method: str, folder: Path) -> Record:
        kind, batch, step = method.split()
        python = self._peers if kind.startswith("trl") else Path(sys.executable)
        budget_mib = NO_BUDGET_MIB if kind == "whole" else BUDGET_MIB
        words = [kind, batch, step, str(self._made), str(folder / "saved"), str(budget_mib)]
        record = run_method(python, "finetune_methods.py", words, self._samples)
        if kind == "whole":
            record |= {key: record[key] * budget_mib / BUDGET_MIB for key in ("use", "most_use")}
        saved = sorted((folder / "saved").glob("checkpoint-*"))
        return {"most_use": None, **record, "model": str(saved[-1]) if saved else ""}

    def _ours(self, method: str, folder: Path) -> Record:
        _, batch, _ = method.split()
        file = write_options(folder, self._made, int(batch), BUDGET_MIB)
        paths = f"{ROOT}{os.pathsep}{Path(__file__).parent}"
        done = subprocess.run(
            [sys.executable, str(ROOT / "train.py"), "-opt", str(file)],
            env={**environment(), "PYTHONPATH": paths},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        run = folder / "training_output" / "current"
        log = run / "training_log.jsonl"
        steps = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        last = " ".join(done.stderr.splitlines()[-2:])[:160]
        uses = sorted(record["peak"]["allocated"] / record["peak"]["limit"] for record in steps)
        return {
            "failure": f"exit code {done.returncode}: {last}" if done.returncode else None,
            "batch": max((-(-record["samples"] // record["plan"]["micro_batches"]) for record in steps), default=0),
            "ooms": sum(record["ooms"] for record in steps),
            "lost": self._samples - sum(record["samples"] for record in steps),
            "use": uses[len(uses) // 2] if uses else None,
            "most_use": uses[-1] if uses else None,
            "model": str(run / "checkpoints" / "epoch_0"),
        }

    def add_losses(self, records: Sequence[Record]) -> None:
        """Have records know the loss of their models, and how far their steps were from the whole step."""
        words = ["losses", str(self._made), *self.models.values()]
        found = run_method(Path(sys.executable), "finetune_methods.py", words, 0)
        reference = next(record for record in records if record["method"] == WHOLE)["losses"]
        for record in records:
            if record["failure"] is None:
                record["steady_range"] = [fold(self.steady[record["method"]]) for fold in (min, max)]
                record["loss"] = found[self.models[record["method"]]]
                record["loss_difference"] = furthest(record["losses"], reference)


def measured(run: Callable[[], Record]) -> Record:
    """Return a record with the wall and CPU seconds of the processes that a run began."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    record = run()
    wall_s, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**record, "wall_s": wall_s, "cpu_s": cpu_s}


def methods(batches: Sequence[int]) -> list[str]:
    """Return all methods that have steps of the same size."""
    names = [f"{kind} {batch} {STEP}" for kind in ("plain", "trl") for batch in batches]
    return [*names, f"trl_default 4 {STEP}", f"ours 1 {STEP}", f"ours 8 {STEP}"]


def compare(samples: int, chosen: Sequence[str], repeats: int, peers: Path) -> Record:
    """Return the records of all methods, and of those without accumulation."""
    with tempfile.TemporaryDirectory(prefix="finetune") as folder:
        made = Path(folder)
        weights = make_all(made, samples)
        bench = Bench(made, samples, peers)
        whole = typical_runs([WHOLE], bench.run, 1, "steady_per_s")
        typical = typical_runs([*chosen, *ALONE], bench.run, repeats, "steady_per_s")
        records = [*whole.values(), *(typical[method] for method in chosen)]
        bench.add_losses(records)
    alone = [typical[method] for method in ALONE]
    for record in (*records, *alone):
        record.pop("model", None)
        record.pop("losses", None)
    return {"weights_m": weights / 1e6, "records": records, "alone": alone}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a third of the conversations, once: two minutes of CPU")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", type=lambda path: Path(path).resolve(), default=ROOT / "build" / "finetune_peers")
    parser.add_argument("--write", type=Path, help="folder for finetune.md and finetune.json")
    parser.add_argument("--machine", default="a virtual machine", help="words for the page")
    parser.add_argument("--note", default="", help="a sentence for the page")
    arguments = parser.parse_args(words)
    samples, repeats = (SAMPLES // 3, 1) if arguments.small else (SAMPLES, arguments.repeats)
    chosen = methods(FEWER_BATCHES if arguments.small else BATCHES)
    peers = peers_python(arguments.peers, "bench-finetune")
    result = compare(samples, chosen, repeats, peers)
    command = "python scripts/bench/finetune.py --write docs/benchmarks"
    result["facts"] = {
        "command": command + (" --small" if arguments.small else f" --repeats {repeats}"),
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores of {arguments.machine}, Python {platform.python_version()}",
        **versions(peers, ["torch", "transformers", "trl"]),
        "note": arguments.note,
        "samples": samples,
        "held_back": HELD_BACK,
        "step": STEP,
        "budget_mib": BUDGET_MIB,
        "words": TEXT_SIZES["vocab_size"],
        "weights_m": result.pop("weights_m"),
        "repeats": repeats,
    }
    text = page(result)
    print(text)
    if arguments.write:
        (arguments.write / "finetune.md").write_text(text)
        (arguments.write / "finetune.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0 if is_kept(result) else 1


if __name__ == "__main__":
    sys.exit(main())
