"""A small diffusion model whose images grow before its batch does: two sizes, one memory.

    python examples/diffusion_sizes.py [--memory-budget 96MiB] [--epochs 4]

``resize`` makes a sample of any size between the bounds; sizes travel with each sample's number to the workers, which
stay alive. A U-Net that halves images twice takes sides that are multiples of 4; memory follows the side's square.
"""

import argparse
from collections import Counter

import trainauto

trainauto.set_environment()  # before torch: memory that is freed goes back to the system, where the budget sees it

import torch
from sklearn.datasets import load_sample_images
from torch import Tensor, nn
from torch.nn import functional

CUTS_PX, EVERY_PX = 96, 28
WIDTH = 16


def cuts() -> list[Tensor]:
    """Return overlapping parts of two photographs, (3, 96, 96), uint8."""
    images = [torch.from_numpy(image.copy()).permute(2, 0, 1) for image in load_sample_images().images]
    return [
        cut
        for image in images
        for row in image.unfold(1, CUTS_PX, EVERY_PX).unfold(2, CUTS_PX, EVERY_PX).permute(1, 2, 0, 3, 4)
        for cut in row
    ]


def resize(cut: Tensor, side: int) -> Tensor:
    """Return an image from -1 to 1 of this side."""
    return functional.interpolate(cut[None] / 127.5 - 1, size=(side, side), mode="area")[0]


class UNet(nn.Module):
    """Noisy images and how noisy they are in; the noise out."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (WIDTH, 2 * WIDTH, 4 * WIDTH)
        self.first = nn.Conv2d(4, WIDTH, 3, padding=1)
        self.down = nn.ModuleList([layer(WIDTH, sizes[0]), layer(sizes[0], sizes[1]), layer(sizes[1], sizes[2])])
        self.up = nn.ModuleList([layer(sizes[2] + sizes[1], sizes[1]), layer(sizes[1] + sizes[0], sizes[0])])
        self.last = nn.Conv2d(WIDTH, 3, 3, padding=1)

    def forward(self, noisy: Tensor, level: Tensor) -> Tensor:
        plane = level[:, None, None, None].expand(-1, 1, *noisy.shape[2:])
        high = self.down[0](self.first(torch.cat([noisy, plane], 1)))
        middle = self.down[1](functional.avg_pool2d(high, 2))
        low = self.down[2](functional.avg_pool2d(middle, 2))
        middle = self.up[0](torch.cat([functional.interpolate(low, scale_factor=2), middle], 1))
        return self.last(self.up[1](torch.cat([functional.interpolate(middle, scale_factor=2), high], 1)))


def layer(channels_in: int, channels: int) -> nn.Sequential:
    """Return a convolution, a norm of each sample by itself, and an activation."""
    return nn.Sequential(nn.Conv2d(channels_in, channels, 3, padding=1), nn.GroupNorm(4, channels), nn.SiLU())


def loss(model: nn.Module, images: Tensor) -> Tensor:
    """Return the mean squared error of the predicted noise."""
    level = torch.rand(len(images), device=images.device)
    noise = torch.randn_like(images)
    angle = (level * torch.pi / 2)[:, None, None, None]
    return functional.mse_loss(model(angle.cos() * images + angle.sin() * noise, level), noise)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-budget", default="96MiB", help="memory that steps may take")
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    dataset, model = cuts(), UNet()
    loop = trainauto.AdaptiveLoop(
        model,
        trainauto.ModelObjective("diffusion", torch.optim.AdamW(model.parameters(), 1e-3), loss),
        dataset,
        batch_size=trainauto.Range(4, 128),
        size=trainauto.Range(16, 32, minimum=8, multiple=4, power=2),
        resize=resize,
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

    print(f"loss of the last step: {step.losses['loss']:.3f}")
    times = sorted(set(trained.values()))
    print(f"{trained.total()} samples trained = {options.epochs} epochs x {len(dataset)}, each {times} times")
    print(f"plan reached: {loop.plan}; peak {peak_bytes / 2**20:.1f} MiB of {options.memory_budget}")
    print(f"out of memory: {out_of_memory} times")


if __name__ == "__main__":
    main()
