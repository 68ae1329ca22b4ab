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
"""Exit code where the command to run is none, as shells have it."""
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
    "RTX 3070": Card(86, 46),
    "RTX 3080": Card(86, 68),
    "RTX 3090": Card(86, 82),
    "RTX 4060": Card(89, 24),
    "RTX 4070": Card(89, 46),
    "RTX 4080": Card(89, 76),
    "RTX 4090": Card(89, 128),
    "RTX 5090": Card(120, 170),
    "L4": Card(89, 58),
    "L40S": Card(89, 142),
    "A100": Card(80, 108),
    "H100": Card(90, 132),
    "H200": Card(90, 132),
}


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
    run.add_argument("--convolution-workspace", default="0MiB", help="what cuDNN asks for at each convolution")
    run.add_argument("to_run", nargs="+", metavar="COMMAND")
    chosen = parser.parse_args(arguments)
    exit_on_sigterm()
    environment = prepare_or_exit(here=chosen.here)
    try:
        made = build(environment.python, chosen.torch, full=chosen.full)
        if chosen.command == "prepare":
            print(f"simulated card: {made.python}, torch {chosen.torch}", flush=True)
            return 0
        settings = card_settings(
            chosen.card, chosen.count, chosen.others, chosen.capability, chosen.convolution_workspace
        )
    except InstallError as error:
        print(f"simulated card: {error}", file=sys.stderr, flush=True)
        return NOT_HERE if isinstance(error, NotHereError) else 1
    except KeyboardInterrupt:
        print("simulated card: interrupted; the next call continues from here", flush=True)
        return 130
    with table_of_holders(environment.variables) as table:
        variables = {**on_card(made, environment.variables), **settings, "SIMULATED_CARD_TABLE": table}
        if (program := shutil.which(chosen.to_run[0], path=variables["PATH"])) is None:
            print(f"simulated card: there is no program {chosen.to_run[0]!r}", file=sys.stderr, flush=True)
            return NO_PROGRAM
        return run_in_foreground([program, *chosen.to_run[1:]], cwd=Path.cwd(), env=variables)


def card_settings(
    card: str, count: int, others: str, capability: int | None, convolution_workspace: str
) -> dict[str, str]:
    """Return the variables that say what the card is.

    Raises:
        InstallError: A text is not understood.
    """
    name = SIZE.sub("", card).strip()
    # Of a Ti or a Super it is another number of multiprocessors.
    variants = {known: re.compile(rf"\b{known}\b(?!\s*(ti|super))", re.IGNORECASE) for known in CARDS}
    known = next((CARDS[known] for known, variant in variants.items() if variant.search(name)), None)
    if known is None and capability is None:
        raise InstallError(
            f"no card {name!r} is known here: {', '.join(CARDS)}.\n"
            "  What to try: add --capability, like 86 for compute capability 8.6."
        )
    if count < 1:
        raise InstallError(f"--count {count}: a machine without a card needs no simulated one")
    facts = known or CARDS["RTX 3060"]
    return {
        "SIMULATED_CARD_NAME": f"{name} (simulated)",
        "SIMULATED_CARD_BYTES": str(bytes_of(card, "--card")),
        "SIMULATED_CARD_COUNT": str(count),
        "SIMULATED_CARD_OTHERS_BYTES": str(bytes_of(others, "--others")),
        "SIMULATED_CARD_CAPABILITY": str(capability or facts.capability),
        "SIMULATED_CARD_MULTIPROCESSORS": str(facts.multiprocessors),
        "SIMULATED_CARD_CONVOLUTION_BYTES": str(bytes_of(convolution_workspace, "--convolution-workspace")),
    }


def bytes_of(text: str, option: str) -> int:
    """Return the bytes that the text of an option ends with or is, like ``2GiB``.

    Raises:
        InstallError: There are none.
    """
    if not (found := SIZE.search(text)):
        example = f"'{text} 12GB'" if option == "--card" else "500MiB or 2GiB"
        raise InstallError(f"{option} {text!r} names no size.\n  What to try: {option} {example}.")
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
