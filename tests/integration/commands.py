"""Driving the doors as a person does: option files in a folder, commands in child processes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

TRAIN = Path(__file__).parents[2] / "train.py"


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


def train(options: Path, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run ``train.py -opt options ...`` in the folder of the option file."""
    command = [sys.executable, str(TRAIN), "-opt", options.name, *arguments]
    return subprocess.run(
        command, cwd=options.parent, env=environment(), capture_output=True, text=True, timeout=timeout_s, check=False
    )


def started(options: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start ``train.py -opt options ...`` in the folder of the option file; its words come in ``stdout``."""
    command = [sys.executable, str(TRAIN), "-opt", options.name, *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=options.parent, env=environment(), **pipes)


def run_directory(options: Path, name: str = "tiny") -> Path:
    return (options.parent / "experiments" / name / "current").resolve()


def step_records(run: Path) -> list[dict[str, Any]]:
    lines = (run / "training_log.jsonl").read_text().splitlines()
    return [record for line in lines if "step_s" in (record := json.loads(line))]


def latest_weights(run: Path) -> dict[str, bytes]:
    """Return the weights files of the newest checkpoint, byte for byte."""
    folder = run / "checkpoints" / json.loads((run / "checkpoints" / "latest.json").read_text())["folder"]
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.safetensors"))}
