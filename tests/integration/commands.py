"""Driving the commands as a person does: option files in a folder."""

import argparse
import io
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import yaml

from tests.integration.ready_processes import Started, begin
from trainauto.automations import AUTOMATIONS
from trainauto.cli import main
from trainauto.data import DATASETS
from trainauto.forecast.task import task_of
from trainauto.models import MODELS
from trainauto.optim import OPTIMIZERS, SCHEDULES
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.options.tasks import TASKS
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.losses import LOSSES
from trainauto.tasks.sr.metrics import METRICS

TRAIN = Path(__file__).parents[2] / "train.py"
REGISTRIES = (ARCHS, AUTOMATIONS, DATASETS, LOSSES, METRICS, MODELS, OPTIMIZERS, SCHEDULES)


def tiny_options(gt: Path, **changes: Any) -> dict[str, Any]:
    """Return options of a run that takes seconds; ``changes`` are merged in, section by section."""
    base: dict[str, Any] = {
        "name": "tiny",
        "scale": 2,
        "device": "cpu",
        "num_threads": 1,
        "manual_seed": 3,
        "datasets": {
            "train": {
                "type": "GTImageDataset",
                "dataroot_gt": str(gt),
                "lq_size": 16,
                "batch_size_per_gpu": 4,
                "num_worker_per_gpu": 0,
                "lookahead": 4,
            },
            "val": {"type": "GTImageDataset", "dataroot_gt": str(gt / "image_000.png")},
        },
        "network_g": {"type": "compact", "num_feat": 8, "num_conv": 1},
        "train": {"total_iter": 12, "losses": [{"type": "l1loss"}], "optim_g": {"type": "Adam", "lr": 1e-3}},
        "val": {"val_freq": 6, "metrics": {"psnr": {"type": "calculate_psnr"}}},
        "logger": {"print_freq": 4, "save_checkpoint_freq": 5, "use_tb_logger": False},
    }
    return merged(base, changes)


def gan_options(**changes: Any) -> dict[str, Any]:
    """Return changes of :func:`tiny_options` that train against a discriminator, with further ``changes``."""
    base: dict[str, Any] = {
        "model_type": "SRGANModel",
        "network_d": {"type": "unetdiscriminatorsn", "num_feat": 4},
        "train": {
            "losses": [{"type": "l1loss"}, {"type": "ganloss", "loss_weight": 0.1}],
            "optim_d": {"type": "Adam", "lr": 1e-3},
        },
    }
    return merged(base, changes)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping) and "type" not in value
        result[key] = merged(result[key], value) if both else value
    return result


def write_options(file: Path, options: Mapping[str, Any]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(dict(options), sort_keys=False))
    return file


def environment() -> dict[str, str]:
    # 80 columns, and no colours: what a log or a pipe sees.
    return {**os.environ, "COLUMNS": "80", "PYTHONWARNINGS": "ignore"}


@dataclass(frozen=True)
class Ended:
    """What a command left: its exit code, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


PROCESS_WIDE = re.compile(r"use_compile: true|deterministic: true|fast_matmul: true|num_worker_per_gpu: [1-9]")
"""Options of runs that change their process for good, or fork it: they get one of their own."""

COUNTED = "budget:"
"""An option of runs that count what their process holds: one of their own."""


@contextmanager
def plugins_forgotten(folder: Path) -> Iterator[None]:
    """Have plugins below a folder leave with the run that named them: modules, search path, names they registered."""
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        plugins = [name for name, module in sys.modules.items() if _is_below(folder, module)]
        for registry in REGISTRIES:
            for key in [key for key, component in registry._entries.items() if component.__module__ in plugins]:
                del registry._entries[key], registry._shown[key]
                registry._aliases.discard(key)
        for name in [name for name, task in TASKS.items() if task.model.__module__ in plugins]:
            del TASKS[name]
        for name in plugins:
            del sys.modules[name]


def _is_below(folder: Path, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and file.startswith(f"{folder}{os.sep}")  # thousands are asked: paths would take 0.1 s


def command(
    *arguments: str, cwd: Path, own_process: bool = False, afresh: bool = False, timeout_s: float = 300
) -> Ended:
    """Run a command of trainauto, in this process as its entry point does, or in one of its own.

    Args:
        arguments: its words.
        cwd: where it is run.
        own_process: run it in a process that has loaded torch already.
        afresh: run it in a process that loads everything itself.
        timeout_s: how long it may take there.
    """
    if own_process or afresh:
        line = ["-m", "trainauto", *arguments]
        process = begin(line, cwd=cwd, env=environment(), is_merged=False, afresh=afresh)
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        return Ended(process.returncode, stdout, stderr)
    out, err = io.StringIO(), io.StringIO()
    with (
        plugins_forgotten(cwd),
        chdir(cwd),
        mock.patch.dict(os.environ, {"COLUMNS": "80"}),
        warnings.catch_warnings(action="ignore"),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            code = main(arguments)
        except SystemExit as left:  # argparse
            code = left.code if isinstance(left.code, int) else 2
    return Ended(code, out.getvalue(), err.getvalue())


def script(*words: str, cwd: Path, afresh: bool = False, timeout_s: float = 300) -> Ended:
    """Run ``python words...`` in one thread, with the package to import, in a process that has loaded torch already.

    Args:
        words: a script and its arguments, or ``-m``, a module and its arguments.
        cwd: where it is run.
        afresh: have it load everything itself, and say what it is warned of.
        timeout_s: how long it may take.
    """
    env = {**os.environ, "PYTHONPATH": str(TRAIN.parent), "OMP_NUM_THREADS": "1"}
    process = begin(words, cwd=cwd, env=env, is_merged=False, afresh=afresh)
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return Ended(process.returncode, stdout, stderr)


def train(
    options: Path,
    *arguments: str,
    timeout_s: float = 120,
    own_process: bool | None = None,
    afresh: bool = False,
) -> Ended:
    """Run ``train.py -opt options ...`` in the folder of the option file; in a process of its own if it needs one."""
    written = options.read_text(errors="replace") + " ".join(arguments).replace("=", ": ")
    if own_process is None:
        own_process = COUNTED in written or PROCESS_WIDE.search(written) is not None
    line = ("train", "-opt", options.name, *arguments)
    return command(*line, cwd=options.parent, own_process=own_process, afresh=afresh, timeout_s=timeout_s)


def train_loaded(loaded: LoadedOptions[FileOptions], *, auto_resume: bool = False, launcher: str = "none") -> int:
    """Train an option file of any task in this process, as the command does."""
    arguments = {"opt": loaded.path, "force_yml": [], "accept_samples": False}
    parsed = argparse.Namespace(auto_resume=auto_resume, launcher=launcher, **arguments)
    return task_of(loaded).train(loaded, parsed)


def started(options: Path, *arguments: str, **how: bool) -> Started:
    """Start ``train.py -opt options ...`` in the folder of the option file; its words come in ``stdout``."""
    return begin([str(TRAIN), "-opt", options.name, *arguments], cwd=options.parent, env=environment(), **how)


def run_directory(options: Path, name: str = "tiny") -> Path:
    return (options.parent / "experiments" / name / "current").resolve()


def step_records(run: Path) -> list[dict[str, Any]]:
    lines = (run / "training_log.jsonl").read_text().splitlines()
    return [record for line in lines if "step_s" in (record := json.loads(line))]


def latest_optimizers(run: Path) -> dict[str, torch.Tensor]:
    """Return what the optimizers of the newest checkpoint remember, by optimizer, number of the weight and name."""
    folder = run / "checkpoints" / json.loads((run / "checkpoints" / "latest.json").read_text())["folder"]
    optimizers = torch.load(folder / "state.pt", weights_only=True)["model"]["optimizers"]
    return {
        f"{name} {weight} {key}": value
        for name, optimizer in optimizers.items()
        for weight, state in optimizer["state"].items()
        for key, value in state.items()
    }


def latest_weights(run: Path) -> dict[str, bytes]:
    """Return the weights files of the newest checkpoint, byte for byte."""
    folder = run / "checkpoints" / json.loads((run / "checkpoints" / "latest.json").read_text())["folder"]
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.safetensors"))}
