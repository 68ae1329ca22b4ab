"""Whether this commit trains what another one trained, to the bit: what a change of names and structure has to keep.

    python scripts/same_results.py BASE [--only CASE] [--steps N]

BASE is checked out beside this commit; each side runs the same commands with its own empty cache folder and one thread:

- quick start: its option file, shortened; the controller on. Plans follow measured memory, which differs a little from
  run to run: where they came out differently, this commit replays BASE's run instead.
- gan: the GAN option file under a plan that changes at fixed steps.
- ranks: two processes, gradients summed over gloo.
- resume: stopped half way, resumed by the same side.
- taken over: BASE's half is resumed, replayed and reported by this commit: run directories stay readable.
- tiny_gpt, tiny_t5, digits: the option files of texts and of several tasks, without a controller or a memory budget.
- tiny_base: fine-tuning of a model and pictures that each side makes first; tiny_lora: adapters for what that trained.

Losses of every step are compared as they stand in training_log.jsonl, weights by sha256 of the last checkpoint's files,
and of the model that a run leaves beside its checkpoints.
Exit code 1 where anything differs. Digests are not kept: they depend on the processor.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGES = [{"step": 2, "batch_size": 5, "lq_size": 24}, {"step": 14, "batch_size": 3, "lq_size": 32}]
GAN = (
    "path:pretrain_network_g=null",
    "datasets:train:batch_size_per_gpu=4",
    "network_d:num_feat=4",
    "val:val_enabled=false",
    f"training_automations:PlanSchedule:changes={json.dumps(CHANGES)}",
)
"""The GAN option file from weights of its own, with plans that change at fixed steps; small, for it runs often."""
STEPS = ("train:total_epochs=null", "train:total_iter={steps}", "logger:use_tb_logger=false")
FIXED_PLAN = ("memory:cpu_budget=null", "training_automations:enabled=false")
"""Nothing that is measured decides how a step runs."""
SHORTENED = {
    "train": STEPS[1:],
    "text": (*STEPS, *FIXED_PLAN),
    "multitask": (*STEPS, *FIXED_PLAN),
    "finetune": ("training:max_steps={steps}", "training:output_dir=experiments/{name}", *FIXED_PLAN),
}
"""What says the length of a run, by the folder of option files."""
RECORDS = ("training_log.jsonl", "memory/current/training_log.jsonl")
WEIGHTS = ("checkpoints/step_*", "checkpoints/epoch_*", "checkpoint-*", "model")
"""Where runs have their records, and folders of weights, whose last ones count."""


@dataclass(frozen=True)
class Side:
    """One commit: its code, and a folder in which it runs."""

    name: str
    code: Path
    folder: Path

    def run(self, *command: str, world_size: int = 1) -> str:
        """Run one of its commands; return what it printed.

        Raises:
            RuntimeError: it ended with an error.
        """
        launcher = [sys.executable]
        if world_size > 1:
            launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.code),
            "TRAINAUTO_CACHE": str(self.folder / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        script, *arguments = command
        program = ["-m", script] if script == "trainauto" else [str(self.code / script)]
        done = subprocess.run(
            [*launcher, *program, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    def train(self, file: str, name: str, steps: int, *more: str, world_size: int = 1) -> Path:
        """Train an option file, named below options/, for so many steps; return the folder of the run.

        Each rank has one thread.
        """
        length = SHORTENED[file.split("/")[0]]
        overrides = [f"name={name}", "num_threads=1", *(word.format(steps=steps, name=name) for word in length)]
        launcher = ["--launcher", "pytorch"] if world_size > 1 else []
        flags = [word for word in more if word.startswith("--")]
        overrides += [word for word in more if not word.startswith("--")]
        options = str(self.code / "options" / file)
        self.run("train.py", "-opt", options, *launcher, *flags, "--force_yml", *overrides, world_size=world_size)
        return self.latest(name)

    def latest(self, name: str) -> Path:
        """Return the folder of the latest run of a name."""
        return (self.folder / "experiments" / name / "current").resolve()


def steps_of(run: Path) -> list[dict[str, object]]:
    """Return plan, samples, losses and gradient norms of every step that a run logged."""
    log = next(run / name for name in RECORDS if (run / name).is_file())
    lines = (json.loads(line) for line in log.read_text().splitlines())
    keys = ("step", "plan", "first_sample", "samples", "losses", "grad_norm", "lr")
    return [
        {**{key: line[key] for key in keys}, "task_losses": line.get("task_losses")}
        for line in lines
        if "step_s" in line
    ]


def plans_of(run: Path) -> list[object]:
    """Return the plan of every step."""
    return [step["plan"] for step in steps_of(run)]


def weights_sha256(run: Path) -> dict[str, str]:
    """Return a digest of every file of weights in the last checkpoint of each kind."""
    kinds = (sorted(run.glob(pattern), key=_number) for pattern in WEIGHTS)
    files = (file for folders in kinds if folders for file in sorted(folders[-1].glob("*.safetensors")))
    return {str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _number(checkpoint: Path) -> int:
    return int(re.sub(r"\D", "", checkpoint.name) or 0)


def differences(base: Path, ours: Path) -> list[str]:
    """Return what differs between two runs; nothing where they are the same to the bit."""
    before, now = steps_of(base), steps_of(ours)
    if len(before) != len(now):
        return [f"{len(before)} steps before, {len(now)} now"]
    for old, new in zip(before, now, strict=True):
        if old != new:
            return [f"step {old['step']} was {old}, and is {new}"]
    digests, ours_digests = weights_sha256(base), weights_sha256(ours)
    common = digests.keys() & ours_digests.keys()  # a checkpoint of one side may be of another kind
    if not common:
        return ["no weights were saved that both have"]
    return [f"weights differ: {name}" for name in sorted(common) if digests[name] != ours_digests[name]]


def quick_start(base: Side, ours: Side, steps: int) -> list[str]:
    """Compare the quick start, with the controller; by a replay where the plans came out differently."""
    before, now = (side.train("train/quickstart.yml", "quickstart", steps) for side in (base, ours))
    if plans_of(before) == plans_of(now):
        return differences(before, now)
    print("  other plans were measured: replayed instead")
    return replayed(ours, before)


def gan(base: Side, ours: Side, steps: int) -> list[str]:
    """Compare a generator against a discriminator, whose plan changes."""
    return differences(*(side.train("train/gan_small.yml", "gan", steps, *GAN) for side in (base, ours)))


def ranks(base: Side, ours: Side, steps: int) -> list[str]:
    """Compare two processes that train one run together."""
    file = "train/gan_small.yml"
    return differences(*(side.train(file, "ranks", steps, *GAN, world_size=2) for side in (base, ours)))


def resume(base: Side, ours: Side, steps: int) -> list[str]:
    """Compare runs of which each was continued by its own side."""
    return differences(*(_in_two_parts(side, side, "resumed", steps) for side in (base, ours)))


def taken_over(base: Side, ours: Side, steps: int) -> list[str]:
    """Have this commit continue, replay and report a run that BASE began."""
    before, now = _in_two_parts(base, base, "unbroken", steps), _in_two_parts(base, ours, "begun", steps)
    ours.run("trainauto", "report", str(before))
    return [*differences(before, now), *replayed(ours, before)]


def file_of(file: str) -> "Case":
    """Return a case that compares what an option file trains, named below options/."""
    return lambda base, ours, steps: differences(*(side.train(file, Path(file).stem, steps) for side in (base, ours)))


def tiny_base(base: Side, ours: Side, steps: int) -> list[str]:
    """Compare the fine-tuning of a model with random weights, which each side makes, with what it learns."""
    return differences(*(_finetuned_base(side, steps) for side in (base, ours)))


def tiny_lora(base: Side, ours: Side, steps: int) -> list[str]:
    """Compare adapters for what the same side has trained before."""
    runs = []
    for side in (base, ours):
        model = sorted((_finetuned_base(side, steps) / "checkpoints").glob("epoch_*"), key=_number)[-1]
        runs.append(side.train("finetune/tiny_lora.yml", "tiny_lora", steps, f"model:name={model}"))
    return differences(*runs)


def _finetuned_base(side: Side, steps: int) -> Path:
    side.run("scripts/tiny_vlm.py", "tiny_vlm", f"--pictures={PICTURES}")
    return side.train("finetune/tiny_base.yml", "tiny_base", steps)


def replayed(side: Side, run: Path) -> list[str]:
    """Have a side replay a run; return what differs."""
    side.run("trainauto", "replay", str(run))
    return differences(run, side.latest(f"{run.parent.name}_replay"))


def _in_two_parts(first: Side, second: Side, name: str, steps: int) -> Path:
    """Train half of a run on one side, and the rest on another."""
    run = first.train("train/gan_small.yml", name, steps // 2, *GAN)
    if second != first:
        shutil.copytree(run.parent, second.folder / "experiments" / name, symlinks=True)
    return second.train("train/gan_small.yml", name, steps, *GAN, "--auto_resume")


Case = Callable[[Side, Side, int], list[str]]
CASES: dict[str, Case] = {
    "quick start": quick_start,
    "gan": gan,
    "ranks": ranks,
    "resume": resume,
    "taken over": taken_over,
    "tiny_gpt": file_of("text/tiny_gpt.yml"),
    "tiny_t5": file_of("text/tiny_t5.yml"),
    "digits": file_of("multitask/digits.yml"),
    "tiny_base": tiny_base,
    "tiny_lora": tiny_lora,
}
QUICK_START_STEPS = 220
PICTURES = 320
"""To fine-tune on: an epoch is ten steps."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all cases on both sides; return 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    parser.add_argument("--only", action="append", choices=CASES, default=[], help="a case; may be repeated")
    parser.add_argument("--steps", type=int, default=24, help="of all cases but the quick start, which takes 220")
    given = parser.parse_args(arguments)
    differ = 0
    with tempfile.TemporaryDirectory(prefix="same_results") as folder:
        checkout = Path(folder) / "base"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(checkout)], check=True)
        subprocess.run(["git", "-C", str(checkout), "checkout", "-q", given.base], check=True)
        for name, case in CASES.items():
            if given.only and name not in given.only:
                continue
            sides = (
                Side("base", checkout, Path(folder) / name / "base"),
                Side("now", ROOT, Path(folder) / name / "now"),
            )
            for side in sides:
                side.folder.mkdir(parents=True)
            differences = case(*sides, QUICK_START_STEPS if name == "quick start" else given.steps)
            print(f"{name}: {'; '.join(differences) or 'same losses, same weights'}", flush=True)
            differ += bool(differences)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
