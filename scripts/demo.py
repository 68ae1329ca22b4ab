"""A fixed batch that dies, and the same option file that survives; then kill -9, and a resume that gives equal weights.

    python scripts/demo.py                      one to two minutes on two CPU cores
    python scripts/demo.py --picture demo.svg   draws what happened
    python scripts/demo.py --here               with this Python's own packages

Two processes train side by side under one enforced budget of 64 MiB: a plain PyTorch loop with the file's batch
(scripts/plain_loop.py), and trainauto with the whole file. trainauto's is then killed with SIGKILL between two
checkpoints and resumed. ``replay`` repeats its steps in one go, and the digests of both weights are compared.
Linux only, for a memory budget is enforced there alone. The exit code is 0 where all of that happened.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo_picture import draw
from environment import ROOT, Environment, prepare_or_exit
from processes import exit_on_sigterm

STEPS, EVERY, KILLED_AFTER = 60, 20, 50
"""Steps of the run, between checkpoints, and before it is killed."""

PATIENCE_S = 300
OPTIONS = f"""\
name: demo
scale: 2
manual_seed: 1
num_threads: 1
datasets:
  train:
    type: GTImageDataset
    dataroot_gt: [package:skimage/data/astronaut.png, package:skimage/data/rocket.jpg]
    lq_size: 48
    batch_size_per_gpu: 32           # takes about 130 MiB
    num_worker_per_gpu: 0
network_g: {{ type: compact, num_feat: 24, num_conv: 6 }}
train:
  total_iter: {STEPS}
  losses: [{{ type: l1loss }}]
  optim_g: {{ type: Adam, lr: 1e-3 }}
val: {{ val_enabled: false }}
logger: {{ print_freq: 10, save_checkpoint_freq: {EVERY}, use_tb_logger: false }}
memory: {{ cpu_budget: 64MiB, calibration: false }}
training_automations:
  DynamicBatchSizeOptimizer:
    target_vram_usage: 0.85
    adjustment_frequency: 20
    min_lq_size: 48                  # the crop stays: the batch gives way
    max_lq_size: 48
"""


@dataclass
class Child:
    """A process whose lines are printed with its name in front."""

    name: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(line.rstrip())
            if line.strip():
                print(f"{self.name:>9} | {line.rstrip()}", flush=True)

    def wait(self) -> int:
        """Return the exit code, once all was printed."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        return code


@dataclass(frozen=True)
class Demo:
    """The folder that it happens in, and the Python that trains.

    Args:
        environment: of the repository, or this one.
        folder: where the option file and the runs go.
    """

    environment: Environment
    folder: Path
    children: list[Child] = field(default_factory=list)

    def start(self, name: str, *words: str) -> Child:
        """Start a Python program in the folder."""
        command = [str(self.environment.python), *words]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=self.folder, env=self.environment.variables, text=True, **pipes)
        self.children.append(Child(name, process))
        return self.children[-1]

    def stop(self) -> None:
        """End what still runs."""
        for child in self.children:
            child.process.kill()
            child.process.wait()

    def train(self, *words: str) -> Child:
        """Start, or resume, the run of the option file."""
        return self.start("trainauto", str(ROOT / "train.py"), "-opt", "demo.yml", *words)

    def steps(self, name: str = "demo") -> list[Mapping[str, Any]]:
        """Return the records of a run; none before there are any."""
        log = self.folder / "experiments" / name / "current" / "training_log.jsonl"
        if not log.exists():
            return []
        return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def digest(self, name: str) -> str:
        """Return the SHA-256 of the weights that a run ended with."""
        checkpoint = self.folder / "experiments" / name / "current" / "checkpoints" / f"step_{STEPS:08}"
        return hashlib.sha256((checkpoint / "net_g.safetensors").read_bytes()).hexdigest()


def kill_after(demo: Demo, run: Child, step: int) -> list[Mapping[str, Any]]:
    """Kill a run with SIGKILL once it has trained a step; return the records that it left."""
    deadline = time.monotonic() + PATIENCE_S
    while len(demo.steps()) < step and run.process.poll() is None:
        if time.monotonic() > deadline:
            sys.exit(f"demo: {len(demo.steps())} steps in {PATIENCE_S} s: this machine is too slow for it")
        time.sleep(0.02)
    if run.process.poll() is not None:
        sys.exit(f"demo: the run ended by itself, with exit code {run.wait()}")
    os.kill(run.process.pid, signal.SIGKILL)
    run.wait()
    say(f"kill -9 after step {len(demo.steps())}")
    return demo.steps()


def show(demo: Demo) -> tuple[dict[str, Any], list[str]]:
    """Run everything; return what happened, and what did not happen as it should."""
    (demo.folder / "demo.yml").write_text(OPTIONS)
    say("a plain loop with the file's batch, and trainauto with the same file; both may take 64 MiB")
    plain = demo.start("plain", str(ROOT / "scripts" / "plain_loop.py"), "demo.yml", str(STEPS))
    ours = demo.train()
    killed = kill_after(demo, ours, KILLED_AFTER)
    plain_code = plain.wait()
    say("the same command with --auto_resume")
    code = demo.train("--auto_resume").wait()
    whole = demo.steps()
    say("the steps of that run again, in one go: trainauto replay")
    replayed = demo.start("replay", "-m", "trainauto", "replay", "experiments/demo").wait()
    if code or replayed:
        return {}, [f"the resume ended with exit code {code}, the replay with {replayed}"]
    digests = [demo.digest("demo"), demo.digest("demo_replay")]
    happened = {
        "budget_mib": 64,
        "steps": STEPS,
        "fixed": {"plan": "batch 32 x 48 px", "steps": sum("/" in line[:4] for line in plain.lines)},
        "killed": [figures_of(record) for record in killed],
        "whole": [figures_of(record) for record in whole],
        "resumed_from": len(killed) // EVERY * EVERY,
        "digests": digests,
    }
    wrong = []
    if not plain_code or not any("can't allocate memory" in line for line in plain.lines):
        wrong.append("the fixed batch did not run out of memory")
    if any(record["ooms"] for record in (*killed, *whole)):
        wrong.append("memory ran out in trainauto's run")
    if digests[0] != digests[1]:
        wrong.append("the weights differ")
    return happened, wrong


def figures_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the picture shows of a step."""
    plan = record["plan"]
    peak_mib = record["peak"]["allocated"] / 2**20
    return {"step": record["step"], "peak_mib": peak_mib, "plan": f"batch {plan['batch_size']} x {plan['lq_size']} px"}


def say(text: str) -> None:
    """Print a headline."""
    print(f"\n== {text} ==", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Show it, and draw it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="use the running Python's environment")
    parser.add_argument("--picture", type=Path, help="an SVG file to draw")
    chosen = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        sys.exit("demo: a memory budget is enforced on Linux alone")
    exit_on_sigterm()
    environment = prepare_or_exit(here=chosen.here)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trainauto-demo-") as folder:
        demo = Demo(environment, Path(folder))
        try:
            happened, wrong = show(demo)
        finally:
            demo.stop()
    if wrong:
        print("\ndemo: " + "; ".join(wrong), file=sys.stderr)
        return 1
    say(f"what happened, in {time.monotonic() - began:.0f} s")
    fixed, whole = happened["fixed"], happened["whole"]
    highest = max(one["peak_mib"] for one in whole)
    print(f"fixed {fixed['plan']}: out of memory after {fixed['steps']} steps")
    print(f"trainauto: {whole[-1]['plan']}, peaks up to {highest:.1f} of 64 MiB, 0 out of memory, {len(whole)} steps")
    print(f"weights after kill -9 and resume  {happened['digests'][0]}")
    print(f"weights of its steps replayed     {happened['digests'][1]}")
    if chosen.picture:
        chosen.picture.write_text(draw(happened), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
