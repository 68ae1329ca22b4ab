"""A GAN on scikit-learn's digits: two objectives that take turns in every step, on batches as large as memory allows.

    python examples/gan.py [--memory-budget 48MiB] [--epochs 8]

The generator's objective comes first and hands its fakes on, detached: the discriminator's finds them in its batch, so
the generator runs once a step. An objective that runs out of memory is run again in parts; what has stepped stays.
"""

import argparse
from collections import Counter

import trainauto

trainauto.set_environment()  # before torch: memory that is freed goes back to the system, where the budget sees it

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

FIRST_BATCH, LARGEST_BATCH = 16, 1024
NOISE, WIDTH = 32, 48


class Digits(Dataset[dict[str, Tensor]]):
    """Digits, each with the noise of a fake."""

    def __init__(self) -> None:
        self.images = torch.from_numpy(load_digits().images).float()[:, None] / 8 - 1

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"real": self.images[index], "noise": torch.randn(NOISE)}


def networks() -> nn.ModuleDict:
    """Return both networks in one module."""
    generator = nn.Sequential(
        nn.Linear(NOISE, 16 * WIDTH),
        nn.Unflatten(1, (WIDTH, 4, 4)),
        nn.SiLU(),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(WIDTH, 1, 3, padding=1),
        nn.Tanh(),
    )
    discriminator = nn.Sequential(
        nn.Conv2d(1, WIDTH, 3, padding=1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(16 * WIDTH, 1),
    )
    return nn.ModuleDict({"generator": generator, "discriminator": discriminator})


def fool(model: nn.ModuleDict, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the generator's loss, and hand its fakes on."""
    model["discriminator"].requires_grad_(False)  # it only looks: no gradients for its weights here
    fake = model["generator"](batch["noise"])
    batch["fake"] = fake.detach()
    return {"generator": functional.softplus(-model["discriminator"](fake)).mean()}


def tell_apart(model: nn.ModuleDict, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the discriminator's losses on digits and on the fakes of this step."""
    discriminator = model["discriminator"].requires_grad_(True)
    return {
        "real": functional.softplus(-discriminator(batch["real"])).mean(),
        "fake": functional.softplus(discriminator(batch["fake"])).mean(),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-budget", default="48MiB", help="memory that steps may take")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    dataset, model = Digits(), networks()
    optimizers = {name: torch.optim.Adam(part.parameters(), 1e-3, (0.5, 0.9)) for name, part in model.items()}
    loop = trainauto.AdaptiveLoop(
        model,
        [
            trainauto.ModelObjective("generator", optimizers["generator"], fool),
            trainauto.ModelObjective("discriminator", optimizers["discriminator"], tell_apart),
        ],
        dataset,
        batch_size=trainauto.Range(FIRST_BATCH, LARGEST_BATCH),
        memory_budget=options.memory_budget,
        settings={"adjustment_frequency": 6},  # steps between two looks at memory; short, as the run is
    )
    trained: Counter[str] = Counter()
    out_of_memory = peak_bytes = 0
    with loop:
        for batch in loop.batches(options.epochs):
            step = loop.step(batch)
            out_of_memory += step.out_of_memory
            if not step.trained:  # it changed nothing, and comes again in smaller batches
                continue
            trained.update(batch.names)
            peak_bytes = max(peak_bytes, step.peak_bytes or 0)
            for decision in step.decisions:
                print(f"step {loop.progress.steps}: {decision.plan}: {decision.reason}")

    print("losses of the last step:", ", ".join(f"{name} {value:.2f}" for name, value in step.losses.items()))
    times = sorted(set(trained.values()))
    print(f"{trained.total()} samples trained = {options.epochs} epochs x {len(dataset)}, each {times} times")
    print(f"plan reached: {loop.plan}; peak {peak_bytes / 2**20:.1f} MiB of {options.memory_budget}")
    print(f"out of memory: {out_of_memory} times")


if __name__ == "__main__":
    main()
