"""What a step of the GAN recipe costs here over a plain PyTorch loop on the same tensors.

    python scripts/bench/gan_step.py [--pairs 30] [--samples 8] [--lq-size 32] [--tower-divisor 2] [--device cpu]

Both train the networks of options/train/gan_stage.yml with its five losses and its optimizers: one by the engine, as
train.py does, with its snapshot; the other as it is written by hand. Pairs of steps take turns in one process, in
changing order; the figure is the median of their ratios of wall time. ``plain / plain`` is the noise. Exit code 1 where
the median is above 1.03.
"""

import argparse
import itertools
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from trainauto.builders.image_model import build_model, build_network
from trainauto.builders.losses import build_losses
from trainauto.builders.precision import choose_precision
from trainauto.core.batch import Batch
from trainauto.core.plan import BatchShape, Plan
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.options.load import LoadedOptions, load_options
from trainauto.tasks.sr.data.image_crops import ImageCrops
from trainauto.tasks.sr.losses import GANLoss
from trainauto.tasks.sr.models import SRGANModel
from trainauto.tasks.sr.towers.tower import DESIGNS

sys.path.append(str(Path(__file__).parents[1]))
from seeded_tower import write_seeded_tower

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "options/train/gan_stage.yml"
MOST_RATIO = 1.03
WARM_UP_STEPS = 4


def recipe(folder: Path, arguments: argparse.Namespace) -> LoadedOptions:
    """Return the recipe with a tower, on the device, from networks that have learned nothing."""
    options = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    tower = folder / "vgg19.pth"
    write_seeded_tower(DESIGNS["vgg19"], tower, arguments.tower_divisor)
    for loss in options["train"]["losses"]:
        if "weights" in loss:
            loss["weights"] = str(tower)
    del options["path"]
    file = folder / "gan.yml"
    file.write_text(yaml.safe_dump(options | {"device": arguments.device}, sort_keys=False))
    return load_options(file)


def model_of(loaded: LoadedOptions) -> SRGANModel:
    """Return the model, alike each time."""
    torch.manual_seed(0)
    model = build_model(loaded, build_network(loaded, pretrained=False), choose_precision(loaded))
    if not isinstance(model, SRGANModel):
        raise TypeError(f"{RECIPE.name} trains no SRGANModel")
    return model


def batches_of(loaded: LoadedOptions, samples: int, lq_size: int) -> Iterator[Batch]:
    """Yield batches of noise, as they would leave the loader."""
    plan = Plan.of(batch_size=samples, lq_size=lq_size)
    crops = ImageCrops(3, loaded.options.scale)
    while True:
        tensors = {name: tensor.random_(0, 256) for name, tensor in crops.dummy(samples, lq_size).items()}
        shape = BatchShape(samples, lq_size, images=samples)
        yield Batch(tensors, crops, ("noise",) * samples, 0, plan, plan, shape)


def ours(model: SRGANModel) -> Callable[[Batch], None]:
    """Return a step of the engine."""
    snapshot, numbers = StepSnapshot.of(model), itertools.count(1)

    def step(batch: Batch) -> None:
        optimize_parameters(model, batch, StepSettings(step=next(numbers)), snapshot=snapshot)

    return step


def by_hand(loaded: LoadedOptions, model: SRGANModel) -> Callable[[Batch], None]:
    """Return a step as it is written by hand, with the same losses, networks and optimizers."""
    device = model.device
    net_g, net_d = model.networks["net_g"], model.networks["net_d"]
    average = model.averages["net_g"]
    losses = [loss.to(device) for loss in build_losses(loaded).values()]
    gan_loss = next(loss for loss in losses if isinstance(loss, GANLoss))
    compared: list[nn.Module] = [loss for loss in losses if loss is not gan_loss]

    def step(batch: Batch) -> None:
        lq, gt = (batch.tensors[name].to(device).float().div_(255) for name in ("lq", "gt"))
        net_d.requires_grad_(False)
        model.optimizers["g"].zero_grad()
        made = net_g(lq)
        total = sum((_total(loss(made, gt)) for loss in compared), start=torch.zeros((), device=device))
        total = total + gan_loss(net_d(made), target_is_real=True)
        total.backward()
        model.optimizers["g"].step()
        net_d.requires_grad_(True)
        model.optimizers["d"].zero_grad()
        real, fake = net_d(gt), net_d(made.detach())
        judged = gan_loss(real, target_is_real=True, is_disc=True) + gan_loss(fake, target_is_real=False, is_disc=True)
        judged.backward()
        model.optimizers["d"].step()
        average.update(net_g)
        total.item(), judged.item()  # a loop that logs

    return step


def _total(value: Any) -> Tensor:
    return sum(value.values()) if isinstance(value, dict) else value  # type: ignore[return-value]


def seconds(step: Callable[[Batch], None], batch: Batch, device: torch.device) -> float:
    """Return what a step takes."""
    start = time.perf_counter()
    step(batch)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--lq-size", type=int, default=32)
    parser.add_argument("--tower-divisor", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        loaded = recipe(Path(folder), arguments)
        models = [model_of(loaded) for _ in range(3)]
        steps = {
            "ours": ours(models[0]),
            "plain": by_hand(loaded, models[1]),
            "again": by_hand(loaded, models[2]),
        }
    device = models[0].device
    batches = batches_of(loaded, arguments.samples, arguments.lq_size)
    for _ in range(WARM_UP_STEPS):
        for step, batch in zip(steps.values(), itertools.repeat(next(batches)), strict=False):
            step(batch)
    taken: dict[str, list[float]] = {name: [] for name in steps}
    orders = itertools.islice(itertools.cycle(itertools.permutations(steps)), arguments.pairs)
    for order, batch in zip(orders, batches, strict=False):
        for name in order:
            taken[name].append(seconds(steps[name], batch, device))
    ratio, noise = (
        median(ours / plain for ours, plain in zip(taken[name], taken["plain"], strict=True))
        for name in ("ours", "again")
    )
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} CPU cores"
    print(f"{card}, torch {torch.__version__}, Python {platform.python_version()}: {arguments.pairs} pairs,")
    print(f"{arguments.samples} crops of {arguments.lq_size} px, a plain step {median(taken['plain']) * 1e3:.0f} ms")
    print(f"ours / plain   {ratio:.4f}\nplain / plain  {noise:.4f}")
    return int(ratio > MOST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
