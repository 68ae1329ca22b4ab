"""Runs a command on a card that is not there: PyTorch's CUDA build over a CUDA of our own, whose kernels do nothing.

python scripts/simulated_card.py run -- python train.py -opt options/train/quickstart.yml
python scripts/simulated_card.py run --card "RTX 4090 24GB" --others 2GiB -- python -m trainauto doctor
python scripts/simulated_card.py run --count 2 -- COMMAND                  two cards
python scripts/simulated_card.py prepare                                   only build it

The first call compiles tests/simulated_card and installs a CUDA build of torch beside .venv, in a cache of its own
(Linux, g++; 1.5 GB). torch's allocator, its out-of-memory errors and its figures are real. What kernels compute is not,
nor is any time: docs/simulated_card.md says what can be learned from a run.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from environment import ROOT, prepare_or_exit
from install import InstallError
from processes import exit_on_sigterm, run_in_foreground
from simulated_card_build import TORCH, Build, NotHereError, build

NOT_HERE = 3
"""Exit code where this machine lacks what the card is made of."""
NO_PROGRAM = 127
"""Exit code where there is no such command, as shells have it."""
MIB = 1 << 20
UNITS = {"MB": MIB, "MIB": MIB, "GB": 1024 * MIB, "GIB": 1024 * MIB}
"""Cards are sold by GB and have as many GiB."""
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(MB|MiB|GB|GiB)", re.IGNORECASE)


@dataclass(frozen=True)
class Card:
    """Compute capability times ten, and multiprocessors, as NVIDIA publishes them."""

    capability: int
    multiprocessors: int


CARDS = {
    "T4": Card(75, 40),
    "RTX 2060": Card(75, 30),
    "RTX 3060": Card(86, 28),
    "RTX 3090": Card(86, 82),
    "RTX 4090": Card(89, 128),
    "L4": Card(89, 58),
    "L40S": Card(89, 142),
    "A100": Card(80, 108),
    "H100": Card(90, 132),
    "H200": Card(90, 132),
}
OTHER_MODELS = r"(?!\s*(ti|super|laptop|d|nvl)\b)"
"""Words after a name with which it is another card's, of more or fewer multiprocessors."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is missing, then run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="compile it and make its environment")
    run = commands.add_parser("run", help="run a command on it; `python` is that of its environment")
    for command in (prepare, run):
        command.add_argument("--torch", default=TORCH, help="version of torch (default: %(default)s)")
        command.add_argument("--here", action="store_true", help="take other packages from the running Python")
        command.add_argument("--full", action="store_true", help="with NVIDIA's libraries, 5.5 GB instead of 1.5 GB")
    run.add_argument("--card", default="RTX 3060 12GB", help="name and memory, like %(default)r")
    run.add_argument("--count", type=int, default=1, help="number of cards, all alike")
    run.add_argument("--others", default="0MiB", help="memory of each that another program holds, like 2GiB")
    run.add_argument("--capability", type=int, help="compute capability times ten, of a card that is not known here")
    run.add_argument("--multiprocessors", type=int, help="number of multiprocessors of such a card (default: 28)")
    run.add_argument("--convolution-workspace", default="0MiB", help="what cuDNN asks for at each convolution")
    run.add_argument("to_run", nargs="+", metavar="COMMAND")
    chosen = parser.parse_args(arguments)
    exit_on_sigterm()
    try:
        settings = card_settings(chosen) if chosen.command == "run" else {}
        environment = prepare_or_exit(here=chosen.here)
        made = build(environment.python, chosen.torch, full=chosen.full)
        if chosen.command == "prepare":
            print(f"simulated card: {made.python}, torch {chosen.torch}", flush=True)
            return 0
    except InstallError as error:
        print(f"simulated card: {error}", file=sys.stderr, flush=True)
        return NOT_HERE if isinstance(error, NotHereError) else 1
    except KeyboardInterrupt:
        print("simulated card: interrupted; the next call makes what is missing", file=sys.stderr, flush=True)
        return 130
    with table_of_holders(environment.variables) as table:
        variables = {**on_card(made, environment.variables), **settings, "SIMULATED_CARD_TABLE": table}
        if (program := shutil.which(chosen.to_run[0], path=variables["PATH"])) is None:
            told = f"simulated card: {chosen.to_run[0]!r} is no program that can be run.\n"
            print(f"{told}  What to try: write `python` before a file of Python.", file=sys.stderr, flush=True)
            return NO_PROGRAM
        return run_in_foreground([program, *chosen.to_run[1:]], cwd=Path.cwd(), env=variables)


def card_settings(chosen: argparse.Namespace) -> dict[str, str]:
    """Return the variables that say what the card is.

    Raises:
        InstallError: A text is not understood, or describes no card.
    """
    size, name = SIZE.search(chosen.card), SIZE.sub("", chosen.card).strip()
    if not size or not name or not bytes_of(size[0], "--card"):
        raise InstallError(f"--card {chosen.card!r} is no name and memory.\n  What to try: --card 'RTX 4090 24GB'.")
    if chosen.count < 1:
        raise InstallError(f"--count {chosen.count}: a machine without a card needs no simulated one")
    if (others := bytes_of(chosen.others, "--others")) > (memory := bytes_of(size[0], "--card")):
        raise InstallError(f"--others {chosen.others} is more than the card has, {size[0]}")
    facts = next((CARDS[known] for known in CARDS if re.search(rf"\b{known}\b{OTHER_MODELS}", name, re.I)), None)
    if facts is None and chosen.capability is None:
        raise InstallError(
            f"no card {name!r} is known here: {', '.join(CARDS)}.\n"
            "  What to try: add --capability and --multiprocessors, like 86 (of compute capability 8.6) and 38."
        )
    facts = facts or CARDS["RTX 3060"]
    return {
        "SIMULATED_CARD_NAME": f"{name} (simulated)",
        "SIMULATED_CARD_BYTES": str(memory),
        "SIMULATED_CARD_COUNT": str(chosen.count),
        "SIMULATED_CARD_OTHERS_BYTES": str(others),
        "SIMULATED_CARD_CAPABILITY": str(chosen.capability or facts.capability),
        "SIMULATED_CARD_MULTIPROCESSORS": str(chosen.multiprocessors or facts.multiprocessors),
        "SIMULATED_CARD_CONVOLUTION_BYTES": str(bytes_of(chosen.convolution_workspace, "--convolution-workspace")),
    }


def bytes_of(text: str, option: str) -> int:
    """Return the bytes that the text of an option says, like ``2GiB``.

    Raises:
        InstallError: It is no size.
    """
    if not (found := SIZE.fullmatch(text.strip())):
        raise InstallError(f"{option} {text!r} is no size in MB, MiB, GB or GiB.\n  What to try: {option} 2GiB.")
    return int(float(found[1]) * UNITS[found[2].upper()])


def on_card(made: Build, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process that finds the card."""

    def before(name: str, *first: Path) -> str:
        return os.pathsep.join([*map(str, first), *filter(None, [variables.get(name, "")])])

    return {
        **variables,
        "LD_PRELOAD": str(made.library),
        "LD_LIBRARY_PATH": before("LD_LIBRARY_PATH", made.library.parent),
        "PATH": before("PATH", ROOT / "tests" / "simulated_card" / "bin", made.python.parent),
        "PYTHONPATH": before("PYTHONPATH", ROOT),
        "SIMULATED_CARD_BESIDE": str(made.beside),
    }


@contextmanager
def table_of_holders(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the file in which processes write what they hold: that of a card that this one shares, or a new one."""
    if shared := variables.get("SIMULATED_CARD_TABLE"):
        yield shared
        return
    with tempfile.NamedTemporaryFile(prefix="simulated-card-") as file:
        yield file.name


if __name__ == "__main__":
    sys.exit(main())
