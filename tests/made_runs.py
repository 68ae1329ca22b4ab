"""Run directories with checkpoints, written by what writes those of real runs, without the training."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainauto.builders.image_model import build_network
from trainauto.builders.load_plugins import load_plugins
from trainauto.core.files import write_json_atomically, write_text_atomically
from trainauto.engine.best import Best
from trainauto.engine.checkpoint import Checkpoints
from trainauto.models.weights import save_weights
from trainauto.options.load import load_options
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_metadata import as_yaml


def options_of(network: Mapping[str, Any], scale: int = 2, **changes: Any) -> dict[str, Any]:
    """Return a whole option file; its data are never looked at."""
    return {
        "name": "made",
        "scale": scale,
        "datasets": {
            "train": {"type": "GTImageDataset", "dataroot_gt": "gt", "lq_size": 16, "batch_size_per_gpu": 2},
            "val": {"type": "GTImageDataset", "dataroot_gt": "gt"},
        },
        "network_g": dict(network),
        "train": {"total_iter": 30, "losses": [{"type": "l1loss"}], "optim_g": {"type": "Adam", "lr": 1e-3}},
        **changes,
    }


def make_run(
    folder: Path,
    options: Mapping[str, Any],
    *,
    steps: Sequence[int] = (10,),
    best: int | None = None,
    averages: bool = True,
    plugins: Path | None = None,
) -> RunDirectory:
    """Make ``folder/experiments/NAME/current`` with random weights of a seed of its own at every step.

    The weights of step ``n`` are those of ``torch.manual_seed(n)``, its averages half of them.
    """
    run = RunDirectory.create(folder / "experiments", options["name"])
    write_text_atomically(run.given, as_yaml(options))
    write_json_atomically(run.config, {})
    write_json_atomically(run.origin, {"folder": str(plugins or folder)})
    checkpoints = Checkpoints(run.checkpoints, keep=len(steps) or 1)
    for step in steps:
        network = seeded_network(run.given, step, plugins or folder)

        def write(into: Path, network: nn.Module = network) -> None:
            save_weights(network, into / "net_g.safetensors")
            if averages:
                save_weights(halved(network), into / "net_g_ema.safetensors")

        if step == best:
            checkpoints.note_score(Best(step, 30.0, "val/psnr"), better_is_higher=True)
        checkpoints.save(step, {}, write)
    return run


def seeded_network(option_file: Path, seed: int, plugins: Path) -> nn.Module:
    loaded = replace(load_options(option_file), folder=plugins)
    load_plugins(loaded)
    torch.manual_seed(seed)
    return build_network(loaded, pretrained=False)


def halved(network: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(0.5)
    return network
