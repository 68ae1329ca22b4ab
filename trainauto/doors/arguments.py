"""Arguments that several commands take, and what has to be set before torch is loaded."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainauto.options.schema import Options

Commands = Any
"""What ``ArgumentParser.add_subparsers`` returns; argparse has no public name for it."""

Door = Callable[[argparse.Namespace], int]
"""Runs a command; returns its exit code."""


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


def prepare_environment(options: "Options") -> None:
    """Set what has to be set before torch is loaded."""
    from trainauto.core.process import set_environment, use_expandable_segments

    use_expandable_segments()
    if options.deterministic:
        # cuBLAS reads it when CUDA starts; without it torch refuses deterministic matrix products.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if options.memory.has_budget:
        set_environment()
