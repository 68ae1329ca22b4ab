"""Whether what ``plan`` refuses does not fit: networks from 1 KB to 1 GB on six cards, with three sets of images.

    python scripts/bench/plan_refusals.py [--networks 40] [--write FOLDER]

Every network of :func:`networks` trains x4 under L1 and Adam with an average; images bound crops by their shortest
side. ``plan`` answers for each card as it does for an option file. Two things are then held against a step that is
traced under that very plan, in the simulated allocator of a card with as much memory as may be had of it:

- a refusal: the smallest plan. It was wrong where steps of it run within the target without a flush.
- a choice: the plan. It was wrong where they do not.

What kernels take beyond a trace is not drawn here, but believed in (``ratio_prior.py``): a refusal is within doubt
where the smallest plan fits as traced, and no longer with a tenth and 64 MiB more.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from trainauto.builders.data import build_axes  # noqa: E402
from trainauto.builders.image_model import build_network  # noqa: E402
from trainauto.core.plan import Axis, Plan, plan_of  # noqa: E402
from trainauto.core.units import GIB, MIB, size_text  # noqa: E402
from trainauto.data.dynamic_dataset import DatasetScan  # noqa: E402
from trainauto.forecast.card_answer import CONTEXT_BYTES, CardPlan  # noqa: E402
from trainauto.forecast.option_plans import plan_crops  # noqa: E402
from trainauto.forecast.traced_run import FakeRun  # noqa: E402
from trainauto.memory.cost.memory_forecast import PlanBytes  # noqa: E402
from trainauto.memory.cuda_allocator.allocator import (  # noqa: E402
    CachingAllocator,
    SimulatedOutOfMemoryError,
    replay,
)
from trainauto.memory.cuda_allocator.steps import repeated  # noqa: E402
from trainauto.memory.tracing.cuda_autocast import cast_as_cuda  # noqa: E402
from trainauto.memory.tracing.cuda_operators import compute_as_cuda  # noqa: E402
from trainauto.memory.tracing.fake_tensors import group_as_cuda  # noqa: E402
from trainauto.memory.tracing.holders import PeakHolders  # noqa: E402
from trainauto.memory.tracing.libraries import Hardware  # noqa: E402
from trainauto.memory.tracing.trace import Trace  # noqa: E402
from trainauto.options.cards import CardPreset, card_by_words, card_of_memory  # noqa: E402
from trainauto.options.load import LoadedOptions, load_options  # noqa: E402
from trainauto.tasks.sr.archs import ARCHS  # noqa: E402

SCALE = 4
IMAGES_PX = (128, 448, 1792)
"""Shortest side of the high-quality images of a set."""

STEPS = 3
"""Steps of a plan in the simulated allocator: the cache that one leaves may not fit the next."""


@ARCHS.register("two_convolutions")
class TwoConvolutions(nn.Module):
    """The network of docs/own_network.md."""

    def __init__(self, width: int = 32, scale: int = SCALE) -> None:
        super().__init__()
        layers = nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 3 * scale**2, 3, padding=1)
        self.body = nn.Sequential(*layers)
        self.enlarge = nn.PixelShuffle(scale)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge images (N, 3, h, w)."""
        enlarged: Tensor = self.enlarge(self.body(image))
        return enlarged


def networks() -> Iterator[dict[str, Any]]:
    """Yield the networks, the small ones first of every kind."""
    for width in (1, 2, 4, 8, 16, 28, 32, 48, 64, 128, 256, 512, 2048):
        yield {"type": "two_convolutions", "width": width}
    for features, convolutions in (
        *((4, 1), (8, 2), (16, 2), (16, 16), (24, 8), (32, 16), (48, 8), (64, 8), (64, 32), (96, 16), (128, 16)),
        *((192, 16), (256, 16), (384, 16), (512, 16), (768, 16), (1024, 24)),
    ):
        yield {"type": "compact", "num_feat": features, "num_conv": convolutions}
    for channels in (16, 32, 48, 96):
        yield {"type": "span", "feature_channels": channels}
    for features, blocks in ((32, 2), (64, 6), (64, 23), (128, 23)):
        yield {"type": "rrdbnet", "num_feat": features, "num_block": blocks}
    for channels, depths in ((36, [2, 2]), (60, [6, 6, 6, 6])):
        yield {"type": "swinir_light", "embed_dim": channels, "depths": depths, "num_heads": [2] * len(depths)}


CARDS = (
    card_of_memory(2 * GIB),
    *map(card_by_words, ("RTX 4050 Laptop", "RTX 3060 12GB", "T4", "RTX 4090", "H200")),
)

ALONE_BYTES = 2 * MIB
"""Networks of fewer weights are asked about card by card: plans are bounded otherwise, and six times as many traced."""


class Traced:
    """The run of a network, traced under any plan as on a card, once each.

    Args:
        network: ``network_g`` of its option file.
        folder: for that file.
    """

    def __init__(self, network: dict[str, Any], folder: Path) -> None:
        file = folder / "run.yml"
        file.write_text(yaml.safe_dump(_options(network)))
        self.loaded: LoadedOptions = load_options(file)  # type: ignore[assignment]
        self._run = FakeRun.of(self.loaded, like_cuda=True)
        self._known: dict[Plan, Trace] = {}
        with torch.device("meta"):
            self.network = build_network(self.loaded, pretrained=False)
        self.weights_bytes = 4 * sum(weight.numel() for weight in self.network.parameters())

    def aim(self, hardware: Hardware) -> None:
        """Trace for an RTX 4090's kernels whatever the card: the networks compute no fused attention."""

    def holders(self, plan: Plan) -> PeakHolders:
        """Return what is live at the peak of a step, by module."""
        held = self._run.trace(plan, by_module=True).held_at_peak
        assert held is not None  # noqa: S101 - it was asked for
        return held

    def step(self, plan: Plan) -> Trace:
        """Return a step under a plan."""
        if plan not in self._known:
            self._known[plan] = self._run.trace(plan)
        return self._known[plan]

    def trace(self, plan: Plan) -> PlanBytes:
        """Return the same as ``plan`` asks for it."""
        step = self.step(plan)
        return PlanBytes.of(step, 0.0, self._run.kernels(step), segments="expandable")


def _options(network: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "refusals",
        "scale": SCALE,
        "datasets": {"train": {"type": "GTImageDataset", "dataroot_gt": "nothing_is_read", "lq_size": 32}},
        "network_g": network,
        "train": {
            "total_iter": 1,
            "losses": [{"type": "l1loss"}],
            "optim_g": {"type": "Adam", "lr": 1e-4},
            "ema_decay": 0.999,
        },
    }


@dataclass(frozen=True)
class Answer:
    """What was said of a network on a card, and whether that is right.

    Attributes:
        what: ``refused`` or ``chosen``.
        is_right: it is, in the simulated allocator.
        within_doubt: a refusal that is right with what kernels are believed to take beside the trace.
        words: network, images, card, and why.
    """

    what: str
    is_right: bool
    within_doubt: bool
    words: str


def answers(traced: Traced, images_px: int, cards: Sequence[CardPreset]) -> Iterator[Answer]:
    """Yield what is said of a network on cards that are asked for at once, for a set of images."""
    axes = build_axes(traced.loaded, traced.network, DatasetScan(100, images_px // SCALE, "an image", 0))
    said, _ = plan_crops(traced.loaded, axes, cards, traced)
    for card in said.cards:
        plan = card.plan or _smallest(card, axes)
        fits = _fits(traced.step(plan), card)
        words = f"{_name(traced)}, images of {images_px} px, {card.preset.name}: {plan}"
        if card.plan is None:
            yield Answer("refused", not fits, fits and _is_doubtful(traced.step(plan), card), f"{words}: {card.reason}")
        else:
            yield Answer("chosen", fits, False, words)


def _smallest(card: CardPlan, axes: tuple[Axis, ...]) -> Plan:
    """Return the smallest plan that a controller would try on a card."""
    size, _ = axes
    return plan_of(axes, card.preset.min_batch_size, size.clamp(min(card.preset.min_lq_size, size.maximum)))


def _fits(step: Trace, card: CardPlan) -> bool:
    """Say whether steps stay within the target and need not flush with what may be had of a card."""
    available = min(card.limit_bytes, card.memory_bytes - CONTEXT_BYTES)
    allocator = CachingAllocator(expandable=True, limit_bytes=available)
    try:
        replay(repeated(step.events, STEPS, step.initial), allocator)
    except SimulatedOutOfMemoryError:
        return False
    return allocator.alloc_retries == 0 and step.peak_bytes <= card.target_bytes


def _is_doubtful(step: Trace, card: CardPlan) -> bool:
    """Say whether a step is above the target with a tenth more, and 64 MiB for what kernels work in."""
    return 1.1 * step.peak_bytes + 64 * MIB > card.target_bytes


def _name(traced: Traced) -> str:
    options = traced.loaded.options.network_g
    return f"{options.type} of {_size(traced.weights_bytes)}"


def _size(size_bytes: int) -> str:
    return size_text(size_bytes) if size_bytes >= MIB else f"{size_bytes / 1024:.1f} KiB"


def page(found: list[Answer], weights: list[int], seconds: float) -> str:
    """Return the page."""
    counts = Counter((answer.what, answer.is_right) for answer in found)
    wrong = [answer for answer in found if not answer.is_right]
    doubtful = sum(answer.within_doubt for answer in wrong)
    lines = [
        "# Whether what plan refuses does not fit",
        "",
        f"`python scripts/bench/plan_refusals.py --write docs/benchmarks`, {date.today().isoformat()}: "
        f"{os.cpu_count()} cores of a virtual machine, Python {platform.python_version()}, torch {torch.__version__}.",
        "",
        f"{len(weights)} networks with weights of {_size(min(weights))} to {_size(max(weights))}, "
        f"{len(CARDS)} cards, {len(IMAGES_PX)} sets of images, in {seconds:.0f} s. What is held against what stands at "
        "the top of the script.",
        "",
        "| | of the simulated allocator's mind | not | of these within doubt |",
        "|---|---:|---:|---:|",
        f"| refused | {counts['refused', True]} | {counts['refused', False]} | {doubtful} |",
        f"| chosen | {counts['chosen', True]} | {counts['chosen', False]} | - |",
        "",
        *(f"- {answer.what}: {answer.words}" for answer in wrong),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=40, help="so many of them, spread over all")
    parser.add_argument("--write", type=Path, help="folder for plan_refusals.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cast_as_cuda()
    compute_as_cuda()
    group_as_cuda()
    every, begin = list(networks()), time.perf_counter()
    chosen = [every[place * len(every) // arguments.networks] for place in range(arguments.networks)]
    found, weights = [], []
    with tempfile.TemporaryDirectory() as folder:
        for network in chosen:
            traced = Traced(network, Path(folder))
            weights.append(traced.weights_bytes)
            at_once = [[card] for card in CARDS] if traced.weights_bytes < ALONE_BYTES else [list(CARDS)]
            asked = [(images_px, cards) for images_px in IMAGES_PX for cards in at_once]
            of_network = [answer for images_px, cards in asked for answer in answers(traced, images_px, cards)]
            found += of_network
            refused = sum(answer.what == "refused" for answer in of_network)
            wrong = sum(not answer.is_right for answer in of_network)
            print(f"{_name(traced)}: {len(of_network)} answers, {refused} refusals, {wrong} wrong", flush=True)
    text = page(found, weights, time.perf_counter() - begin)
    print(text)
    if arguments.write:
        (arguments.write / "plan_refusals.md").write_text(text)
    return (
        1 if any(answer.what == "refused" and not (answer.is_right or answer.within_doubt) for answer in found) else 0
    )


if __name__ == "__main__":
    sys.exit(main())
