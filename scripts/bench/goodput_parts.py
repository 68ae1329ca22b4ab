"""What ``objective: goodput`` goes by, each part by itself: what sampling costs, and how well other plans are timed.

    python scripts/bench/goodput_parts.py [--write docs/benchmarks]

Steps of three networks run in turns in this process, on one thread: whole ones, whole ones whose gradients are looked
at (what ranks do), and those that run in two parts (what one process does every 16 steps or so). Then steps of several
batches, in turns, and from some of them what ``StepSpeeds`` says of the others.
"""

import argparse
import platform
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from trainauto.control.step_speeds import StepSpeeds  # noqa: E402
from trainauto.core.batch import Batch  # noqa: E402
from trainauto.core.plan import BatchShape, Plan  # noqa: E402
from trainauto.engine import gradients  # noqa: E402
from trainauto.engine.snapshot import StepSnapshot  # noqa: E402
from trainauto.engine.step import StepSettings, optimize_parameters  # noqa: E402
from trainauto.models import SRModel  # noqa: E402
from trainauto.optim.precision import Precision  # noqa: E402
from trainauto.tasks.sr.archs import ARCHS  # noqa: E402
from trainauto.tasks.sr.data.image_crops import ImageCrops  # noqa: E402

NETWORKS: dict[str, dict[str, Any]] = {
    "compact": {"num_feat": 24, "num_conv": 6},
    "rrdbnet": {"num_feat": 16, "num_grow_ch": 8, "num_block": 3},
    "swinir_light": {"embed_dim": 24, "depths": [2, 2], "num_heads": [2, 2], "img_size": 32},
}
BATCH, SIDE, STEPS = 8, 32, 150
TIMED, ASKED = (4, 8, 16), (5, 6, 10, 12, 20, 24, 32)


def batch_of(samples: int) -> Batch:
    """Return a batch of noise."""
    tensors = {
        "lq": torch.randint(0, 256, (samples, 3, SIDE, SIDE), dtype=torch.uint8),
        "gt": torch.randint(0, 256, (samples, 3, 2 * SIDE, 2 * SIDE), dtype=torch.uint8),
    }
    plan = Plan.of(batch_size=samples, lq_size=SIDE)
    crops = ImageCrops(3, 2)
    return Batch(tensors, crops, ("",) * samples, 0, plan, plan, BatchShape(samples, SIDE), crops.units(tensors))


class Timed:
    """A network whose steps are timed."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        network = ARCHS.get(name)(scale=2, **NETWORKS[name])
        fp32 = Precision(torch.device("cpu"), torch.float32)
        self.model = SRModel(network, {"l1": nn.L1Loss()}, lambda p: torch.optim.Adam(p, lr=1e-4), fp32)
        self.snapshot = StepSnapshot.of(self.model)

    def step(self, batch: Batch, *, measures_noise: bool = False) -> float:
        """Return the seconds of a step."""
        start = time.perf_counter()
        optimize_parameters(self.model, batch, StepSettings(measures_noise=measures_noise), snapshot=self.snapshot)
        return time.perf_counter() - start


def overhead(name: str) -> tuple[float, float]:
    """Return what a step takes more that is looked at, and one that runs in two parts, as shares of a whole one."""
    timed, batch = Timed(name), batch_of(BATCH)
    seconds: dict[str, list[float]] = {"whole": [], "seen": [], "divided": []}
    divided = gradients.divided
    for _ in range(STEPS):
        seconds["whole"].append(timed.step(batch))
        seconds["divided"].append(timed.step(batch, measures_noise=True))
        _set_divided(lambda _objective, planned, *_: planned)
        try:
            seconds["seen"].append(timed.step(batch, measures_noise=True))
        finally:
            _set_divided(divided)
    pairs = {
        name: [one / whole - 1 for one, whole in zip(seconds[name], seconds["whole"], strict=True)] for name in seconds
    }
    return median(pairs["seen"][5:]), median(pairs["divided"][5:])


def _set_divided(function: Any) -> None:
    from trainauto.engine import step

    vars(step)["divided"] = function


def timing(name: str) -> tuple[float, float]:
    """Return the median and the largest error of what is said of batches that were not timed."""
    timed, batches = Timed(name), {batch: batch_of(batch) for batch in (*TIMED, *ASKED)}
    seconds: dict[int, list[float]] = {batch: [] for batch in batches}
    for _ in range(12):
        for size, batch in batches.items():
            seconds[size].append(timed.step(batch))
    speeds = StepSpeeds()
    for size in TIMED:
        speeds.observe(size, median(seconds[size][2:]))
    errors = [abs(speeds.predict(size).expected / median(seconds[size][2:]) - 1) for size in ASKED]
    return median(errors), max(errors)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write goodput_parts.md there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [(name, *overhead(name), *timing(name)) for name in NETWORKS]
    asked = ", ".join(map(str, ASKED))
    text = "\n".join(
        [
            "# What goodput goes by, each part by itself",
            "",
            f"`python scripts/bench/goodput_parts.py`, torch {torch.__version__}, {platform.machine()}, one thread.",
            f"Batches of {BATCH} crops of {SIDE} px; steps in turns in one process, medians.",
            "",
            "Seen: the norms of a step's gradients are taken, as ranks do in one step of eight. Divided: the step runs",
            "in two parts, as a single process does in one of 16 or so. Off by: what is said of the seconds of batches",
            f"{asked} by those of 4, 8 and 16, median and most.",
            "",
            "| network | seen | divided | of all time, one in 16 | off by |",
            "|---|---:|---:|---:|---:|",
            *(
                f"| {name} | {seen:+.1%} | {divided:+.1%} | {divided / 16:+.2%} | {off:.1%} ({most:.1%}) |"
                for name, seen, divided, off, most in rows
            ),
            "",
        ]
    )
    print(text)
    if arguments.write:
        (arguments.write / "goodput_parts.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
