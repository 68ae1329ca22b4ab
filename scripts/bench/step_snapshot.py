"""What a step pays for being able to run again: the snapshot of its batch and its networks, measured alone.

    python scripts/bench/step_snapshot.py [--modules 600] [--leaves 100] [--steps 300] [--device cpu]

Networks of so many modules, batches of so many leaves, none of which changes in training: what is measured is the look
at what might have changed, in steps after the first ones. ``weights`` have no buffer, ``buffers`` one a module,
``frozen`` a frozen weight besides. ``batch norm`` changes three buffers a module; the copies of those, which any
recovery needs, are taken off, and so is reading the random generators everywhere. Medians, in microseconds; on a busy
machine that of ``batch norm`` is the noise of its 1,800 copies.

Exit code 1 where one of ``weights``, ``buffers`` and ``frozen`` is above 200.
"""

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from trainauto.core.files import write_json_atomically
from trainauto.engine.module_state import LEARNING_STEPS
from trainauto.engine.snapshot import StepSnapshot

MOST_US = 200.0
BOUNDED = ("weights", "buffers", "frozen")


class Kept(nn.Module):
    """A weight, and what else a module of a kind holds."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        if kind in ("buffers", "frozen"):
            self.register_buffer("buffer", torch.zeros(4))
        if kind == "frozen":
            self.frozen = nn.Parameter(torch.zeros(4), requires_grad=False)


def network_of(kind: str, modules: int) -> nn.Module:
    """Return a network of a kind."""
    if kind == "batch norm":
        return nn.Sequential(*(nn.BatchNorm1d(4) for _ in range(modules)))
    return nn.Sequential(*(Kept(kind) for _ in range(modules)))


def measure(kind: str, modules: int, leaves: int, steps: int, device: torch.device) -> float:
    """Return the median microseconds of a step, without what is taken off."""
    network = network_of(kind, modules).to(device)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    snapshot = StepSnapshot([network], device, [torch.optim.SGD(trained, 0.1)])
    batch = {f"leaf_{number}": torch.zeros(8, device=device) for number in range(leaves)}
    changes = kind == "batch norm"
    for _ in range(LEARNING_STEPS + 2):
        snapshot.take(batch, batch)
        if changes:
            network(torch.rand(4, 4, device=device))
        snapshot.commit_pass()
        snapshot.commit_step()

    def step() -> None:
        snapshot.take(batch, batch)
        snapshot.commit_pass()
        snapshot.commit_step()

    buffers = list(network.buffers()) if changes else []
    kept: list[list[tuple[Tensor, Tensor]]] = [[]]

    def needed() -> None:
        kept[0] = [(buffer, buffer.detach().clone()) for buffer in buffers]
        torch.get_rng_state()
        if device.type == "cuda":
            torch.cuda.get_rng_state(device)

    seconds = functools.partial(_seconds, device=device)
    return statistics.median(seconds(step) - seconds(needed) for _ in range(steps)) * 1e6


def _seconds(call: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def main() -> int:
    """Measure, print, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=600)
    parser.add_argument("--leaves", type=int, default=100)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = {}
    for kind in ("weights", "buffers", "frozen", "batch norm"):
        figures[kind] = measure(kind, arguments.modules, arguments.leaves, arguments.steps, arguments.device)
        print(f"{kind:12}{figures[kind]:8.0f} us a step")
    if arguments.json:
        write_json_atomically(arguments.json, {"us": figures, "modules": arguments.modules, "leaves": arguments.leaves})
    return int(any(figures[kind] > MOST_US for kind in BOUNDED))


if __name__ == "__main__":
    sys.exit(main())
