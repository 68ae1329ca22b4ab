"""An image classifier with BatchNorm on scikit-learn's digits, its batch as large as memory allows.

    python examples/digits_batchnorm.py [--memory-budget 48MiB] [--epochs 8]

BatchNorm computes with the statistics of its batch, so that a batch is not the sum of its parts: one that runs out of
memory comes back as smaller batches. Learning rates are the loop's own affair: this one follows the samples trained.
"""

import argparse
from collections import Counter

import trainauto

trainauto.set_environment()  # before torch: memory that is freed goes back to the system, where the budget sees it

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

FIRST_BATCH, LARGEST_BATCH = 16, 1024
RATE = 2e-3


def block(channels_in: int, channels: int) -> nn.Sequential:
    """Return a convolution, BatchNorm and ReLU."""
    return nn.Sequential(nn.Conv2d(channels_in, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())


def classifier() -> nn.Module:
    """Return a small network for images of 8 x 8 pixels."""
    blocks = (block(32, 32) for _ in range(4))
    return nn.Sequential(block(1, 32), *blocks, nn.Flatten(), nn.Linear(32 * 64, 10))


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean cross-entropy; of the model that is passed in, for memory is predicted on a copy of it."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-budget", default="48MiB", help="memory that steps may take")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] / 16
    dataset = TensorDataset(images, torch.from_numpy(digits.target))
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    loop = trainauto.AdaptiveLoop(
        model,
        trainauto.ModelObjective("classifier", optimizer, loss),
        dataset,
        batch_size=trainauto.Range(FIRST_BATCH, LARGEST_BATCH),
        memory_budget=options.memory_budget,
        settings={"adjustment_frequency": 6},  # steps between two looks at memory; short, as the run is
    )
    trained: Counter[str] = Counter()
    out_of_memory = peak_bytes = 0
    with loop:
        for batch in loop.batches(options.epochs):
            done = loop.progress.samples / (options.epochs * len(dataset))
            optimizer.param_groups[0]["lr"] = RATE * (1 - done)
            step = loop.step(batch)
            out_of_memory += step.out_of_memory
            if not step.trained:  # it changed nothing, and comes again in smaller batches
                continue
            trained.update(batch.names)
            peak_bytes = max(peak_bytes, step.peak_bytes or 0)
            for decision in step.decisions:
                print(f"step {loop.progress.steps}: {decision.plan}: {decision.reason}")

    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(1) == torch.from_numpy(digits.target)).float().mean()
    print(f"{right:.1%} of the digits are told right")
    times = sorted(set(trained.values()))
    print(f"{trained.total()} samples trained = {options.epochs} epochs x {len(dataset)}, each {times} times")
    print(f"plan reached: {loop.plan}; peak {peak_bytes / 2**20:.1f} MiB of {options.memory_budget}")
    print(f"out of memory: {out_of_memory} times")


if __name__ == "__main__":
    main()
