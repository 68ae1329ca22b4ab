"""Arguments that several commands take, and what has to be set before torch is loaded."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainauto.core.errors import InputError, Problem

if TYPE_CHECKING:
    import torch

    from trainauto.forecast.task import Task
    from trainauto.inference.load_network import LoadedNetwork
    from trainauto.options.load import LoadedOptions
    from trainauto.options.run_options import FileOptions
    from trainauto.storage.run_directory import RunDirectory

Commands = Any
"""What ``ArgumentParser.add_subparsers`` returns; argparse has no public name for it."""


def takes_options(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add ``-opt`` and ``--force_yml``."""
    parser.add_argument("-opt", required=required, type=Path, metavar="FILE", help="option file")
    takes_overrides(parser)


def takes_overrides(parser: argparse.ArgumentParser) -> None:
    """Add ``--force_yml``."""
    parser.add_argument(
        "--force_yml", nargs="+", default=[], metavar="A:B=V", help="set options, e.g. train:total_iter=1000"
    )


def takes_run(parser: argparse.ArgumentParser) -> None:
    """Add the folder of a run."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run, or experiments/NAME for its newest")


def takes_network(parser: argparse.ArgumentParser) -> None:
    """Add the two ways of naming a trained network: ``RUN``, or ``--weights FILE``, with ``-opt FILE`` or without.

    ``RUN`` is the first positional argument and may be left out: what else a command takes by position has to follow it
    directly, since argparse hands out what comes before an option without looking at what comes after it.
    """
    parser.add_argument(
        "run", nargs="?", type=Path, metavar="RUN", help="folder of a run, or experiments/NAME for its newest"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="WHICH",
        help="of RUN: best (default; latest if there is none), latest, or a step (for a fine-tuned model an epoch)",
    )
    takes_options(parser, required=False)
    parser.add_argument(
        "--weights",
        type=Path,
        metavar="FILE",
        help="instead of RUN: .safetensors or .pth; names and shapes tell its network unless -opt does",
    )
    parser.add_argument("--param_key", metavar="KEY", help="entry of --weights that holds them, e.g. params_ema")


def check_network(parsed: argparse.Namespace) -> None:
    """Refuse arguments of :func:`takes_network` that name no network, or two; loads nothing.

    Raises:
        InputError: both ways are used, none is, or one by halves.
    """
    of_run = {"--checkpoint": parsed.checkpoint}
    of_file = {"-opt": parsed.opt, "--weights": parsed.weights}
    beside = {"--param_key": parsed.param_key, "--force_yml": parsed.force_yml or None}
    options = [name for name, value in {**of_file, **beside}.items() if value is not None]
    if parsed.run is not None and options:
        message = f"which network? RUN and {' and '.join(options)} are given"
        raise InputError(Problem(message, advice="A run knows its options and weights: leave out one or the other."))
    if parsed.run is not None:
        return
    if parsed.weights is None:
        beside_given = f" --weights must be given with {' and '.join(options)}" if options else ""
        message = f"which network?{beside_given}"
        raise InputError(Problem(message, advice="Name a run, e.g. experiments/NAME, or --weights FILE."))
    if parsed.opt is None and parsed.force_yml:
        message = "--force_yml sets options of a file, and none is given"
        raise InputError(Problem(message, advice="Name one with -opt, or leave --force_yml out."))
    if stray := [name for name, value in of_run.items() if value is not None]:
        message = f"{stray[0]} chooses among those of a RUN, and none is given"
        raise InputError(Problem(message, advice="--weights names the file itself: leave it out."))


def named_network(parsed: argparse.Namespace, device: "torch.device") -> "LoadedNetwork":
    """Return the network that the arguments of :func:`takes_network` name.

    Raises:
        InputError: as :func:`check_network`, or what is named cannot be used.
        CheckpointError: the weights of the run are damaged.
    """
    from trainauto.commands.whole_options import load_whole
    from trainauto.inference.load_network import (
        load_network,
        network_from_weights,
        network_from_weights_alone,
    )
    from trainauto.options.load import super_resolution_only

    check_network(parsed)
    if parsed.run is not None:
        return load_network(parsed.run, parsed.checkpoint or "best", device)
    if parsed.opt is None:
        return network_from_weights_alone(parsed.weights, parsed.param_key, device)
    loaded = super_resolution_only(load_whole(parsed.opt, parsed.force_yml))
    return network_from_weights(loaded, parsed.weights, parsed.param_key, device)


def task_of_run(run: Path) -> "tuple[Task[Any], RunDirectory, LoadedOptions[FileOptions]] | None":
    """Return the task of a run, its directory and its options; ``None`` where an older version wrote it.

    Raises:
        InputError: there is no run, or its options cannot be used.
    """
    from trainauto.forecast.task import task_of
    from trainauto.storage.run_directory import RunDirectory
    from trainauto.storage.run_options import options_of

    directory = RunDirectory.find(run)
    if not directory.given.is_file():
        return None
    loaded = options_of(directory)
    return task_of(loaded), directory, loaded


def refuse_given(arguments: Mapping[str, Any], why: str, advice: str) -> None:
    """Refuse arguments that were given and mean nothing to a task.

    Args:
        arguments: values by name, such as ``--lq``.
        why: they mean nothing, to follow the name.
        advice: what to write.

    Raises:
        InputError: names the first of them.
    """
    for name, value in arguments.items():
        if value not in (None, False):
            raise InputError(Problem(f"{name} {why}", advice=advice))


def check_free(out: Path, *, overwrite: bool, example: str = "out.pth") -> None:
    """Refuse a file that cannot be written, or is there already; ``example`` is a name that it could have.

    Raises:
        InputError: it is a folder, lies in none, or exists.
    """
    if out.is_dir():
        raise InputError(Problem(f"{out} is a folder", advice=f"Name a file in it, e.g. {out / example}."))
    if not out.parent.is_dir():
        raise InputError(Problem(f"there is no folder {out.parent}", advice="Make it first, or name another."))
    if out.exists() and not overwrite:
        raise InputError(Problem(f"{out} is there already", advice="--overwrite replaces it."))


def prepare_environment(options: "FileOptions") -> None:
    """Set what has to be set before torch is loaded."""
    from trainauto.core.process import set_environment, use_expandable_segments

    use_expandable_segments()
    if options.deterministic:
        # cuBLAS reads it when CUDA starts; without it torch refuses deterministic matrix products.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if options.memory.has_budget:
        set_environment()
