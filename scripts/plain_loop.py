"""The plain loop of scripts/demo.py: an option file's network, batch and crop in PyTorch alone, in the same budget.

    python scripts/plain_loop.py OPTION_FILE STEPS

The batch is what the file says and stays. The budget is put in force by the means of a run of trainauto; nothing else
of it helps: where memory runs out, the loop ends, as PyTorch's do.
"""

import random
import sys
from pathlib import Path

import trainauto

trainauto.set_environment()

import torch  # noqa: E402
from skimage import data  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from trainauto.builders.image_model import build_network  # noqa: E402
from trainauto.core.units import MIB  # noqa: E402
from trainauto.memory.monitor import budget  # noqa: E402
from trainauto.memory.monitor.meter import MemoryMeter  # noqa: E402
from trainauto.options.load import load_options  # noqa: E402

PHOTOGRAPHS = (data.astronaut, data.rocket)


def batch_of(chance: random.Random, photographs: list[Tensor], size: int, side: int) -> Tensor:
    """Return random crops, (N, 3, side, side)."""
    crops = []
    for _ in range(size):
        photograph = chance.choice(photographs)
        top, left = (chance.randrange(extent - side) for extent in photograph.shape[1:])
        crops.append(photograph[:, top : top + side, left : left + side])
    return torch.stack(crops)


def step(network: nn.Module, optimizer: torch.optim.Optimizer, target: Tensor, factor: int) -> float:
    """Train on crops and their smaller versions; return the loss."""
    small = functional.interpolate(target, scale_factor=1 / factor, mode="bicubic", antialias=True)
    loss = functional.l1_loss(network(small), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> int:
    """Train until the steps are done, or memory runs out."""
    file, steps = Path(sys.argv[1]), int(sys.argv[2])
    loaded = load_options(file)
    options = loaded.options
    torch.set_num_threads(1)
    torch.manual_seed(1)
    chance, train_set = random.Random(1), options.datasets.train
    size, factor = train_set.batch_size_per_gpu, options.scale
    side = train_set.lq_size * factor
    photographs = [torch.from_numpy(make()).permute(2, 0, 1).float() / 255 for make in PHOTOGRAPHS]
    network = build_network(loaded)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    budget.calm_allocator()
    step(network, optimizer, batch_of(chance, photographs, 1, 16 * factor), factor)  # one small crop: all is loaded
    meter = MemoryMeter(torch.device("cpu"))
    meter.set_budget(options.memory.budget_bytes("cpu"))
    for number in range(1, steps + 1):
        with meter.window() as window:
            loss = step(network, optimizer, batch_of(chance, photographs, size, side), factor)
        peak_bytes = window.reading.allocated if window.reading else 0
        print(f"{number}/{steps}  loss {loss:.4f}  {size}x{train_set.lq_size}  {peak_bytes / MIB:.1f} MiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
