"""What an AdaptiveLoop costs over a loop written by hand, at the same fixed plan and without a budget.

    python scripts/bench/any_loop_overhead.py [--pairs 10] [--block 16] [--json FILE]

Both loops train the same network on the same dataset in one process: by hand with torch's DataLoader, `zero_grad`,
`backward`, `step` and one reading of the loss; ours as its users write it, with `loop.batches()` and `loop.step()`.
Steps take turns: by hand, ours, by hand again, in changing order. The figure is the process's CPU time of ours over
that by hand, of a round of steps; the two by hand give the noise (A/A). Medians of all rounds.

Exit code 1 if the median is above 1.01.
"""

import argparse
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from trainauto import AdaptiveLoop, ModelObjective

SAMPLES, SIDE, CHANNELS, BATCH = 480, 28, 32, 48
WARM_UP_STEPS = 4
MOST_RATIO = 1.01

Steps = Callable[[int], None]
"""Trains so many steps."""


def network() -> nn.Module:
    """Return a small image classifier without norms that couple samples."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, CHANNELS, 3, padding=1), nn.ReLU()]
    for _ in range(5):
        layers += [nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 10))


def loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the mean cross-entropy."""
    return functional.cross_entropy(model(batch[0]), batch[1])


def by_hand(data: TensorDataset) -> Steps:
    """Return the loop as it is usually written."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def batches() -> Iterator[Any]:
        while True:
            yield from DataLoader(data, batch_size=BATCH, shuffle=True)

    stream = batches()

    def train(steps: int) -> None:
        for batch in itertools.islice(stream, steps):
            optimizer.zero_grad(set_to_none=True)
            value = loss(model, batch)
            value.backward()
            optimizer.step()
            value.item()  # as for a log

    return train


def ours(data: TensorDataset) -> Steps:
    """Return the same in an AdaptiveLoop."""
    model = network()
    objective = ModelObjective("classifier", torch.optim.Adam(model.parameters(), 1e-3), loss)
    loop = AdaptiveLoop(model, objective, data, batch_size=BATCH)
    stream = loop.batches()

    def train(steps: int) -> None:
        for batch in itertools.islice(stream, steps):
            loop.step(batch)

    return train


def measure(pairs: int, block: int) -> dict[str, Any]:
    """Return the ratios of CPU time of every round, and the milliseconds of a step by hand."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(SAMPLES, 3, SIDE, SIDE, generator=generator)
    data = TensorDataset(images, torch.randint(10, (SAMPLES,), generator=generator))
    loops = {"hand": by_hand(data), "ours": ours(data), "again": by_hand(data)}
    for train in loops.values():
        train(WARM_UP_STEPS)
    rounds: list[dict[str, float]] = []
    orders = itertools.cycle(itertools.permutations(loops))
    for _ in range(pairs):
        spent = dict.fromkeys(loops, 0.0)
        for _ in range(block):
            for name in next(orders):
                begun = time.process_time()
                loops[name](1)
                spent[name] += time.process_time() - begun
        rounds.append(spent)
    return {
        "step_ms": 1000 * median(spent["hand"] for spent in rounds) / block,
        "ours/hand": [spent["ours"] / spent["hand"] for spent in rounds],
        "again/hand": [spent["again"] / spent["hand"] for spent in rounds],
        "pairs": pairs,
        "block": block,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--block", type=int, default=16, help="steps of a round")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result = measure(arguments.pairs, arguments.block)
    print(f"a step by hand: {result['step_ms']:.1f} ms of CPU time, {result['pairs']} pairs of {result['block']} steps")
    for name in ("ours/hand", "again/hand"):
        ratios = result[name]
        print(f"{name:12}{median(ratios):.4f}  ({min(ratios):.4f} to {max(ratios):.4f})")
    if arguments.json:
        machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        arguments.json.write_text(json.dumps({**result, **machine, "torch": torch.__version__}, indent=1) + "\n")
    return int(median(result["ours/hand"]) > MOST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
