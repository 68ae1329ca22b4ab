"""Live bytes of steps with losses and discriminators: traces against what torch's profiler says of real steps.

    python scripts/bench/trace_gan.py

Each step trains Compact (8 channels) on 3 crops: the generator's pass, the discriminator's, Adam, clipping, an average.
Towers are seeded ones with an eighth of the channels. Exit code 1 if a peak is off by more than 0.1 %.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from trace_accuracy import measure
from trace_cases import option_case

from trainauto.core.plan import Plan
from trainauto.core.units import MIB
from trainauto.tasks.sr.towers.tower import DESIGNS

sys.path.append(str(Path(__file__).parents[1]))
from seeded_tower import write_seeded_tower

MOST_ERROR = 0.001
RECIPE = ("charbonnierloss", "mssimloss", "perceptualloss", "hsluvloss")
VGG_PX = 128
"""What ``vggstylediscriminator`` judges, at scale 4 of crops of 32 px."""

PAIRS: Sequence[tuple[Sequence[str], Mapping[str, Any]]] = (
    (RECIPE, {"type": "dunet", "num_feat": 8}),
    (RECIPE, {"type": "unetdiscriminatorsn", "num_feat": 8}),
    (RECIPE, {"type": "metagan"}),
    (RECIPE, {"type": "patchgandiscriminatorsn", "ndf": 8}),
    (RECIPE, {"type": "multiscalepatchgandiscriminatorsn", "ndf": 8}),
    (RECIPE, {"type": "vggstylediscriminator", "num_feat": 4, "input_size": VGG_PX}),
    (("l1loss", "lpipsloss"), {"type": "dunet", "num_feat": 8}),
    (("l1loss", "distsloss"), {"type": "dunet", "num_feat": 8}),
    (("l1loss", "ldlloss"), {"type": "unetdiscriminatorsn", "num_feat": 8}),
    (("l1loss", "ffloss"), {"type": "patchgandiscriminatorsn", "ndf": 8}),
)


def rows() -> Iterator[tuple[str, str, int, float]]:
    """Yield losses, discriminator, measured bytes and the error of the trace, pair by pair."""
    for losses, network_d in PAIRS:
        with tempfile.TemporaryDirectory() as folder:
            options = {
                "model_type": "SRGANModel",
                "network_g": {"type": "compact", "num_feat": 8, "num_conv": 1},
                "network_d": dict(network_d),
                "train": {
                    "losses": [*({"type": name} for name in losses), {"type": "ganloss", "loss_weight": 0.1}],
                    "optim_d": {"type": "Adam", "lr": 1e-4},
                    "ema_decay": 0.99,
                },
            }
            plan = Plan.of(batch_size=3, lq_size=VGG_PX // 4)
            (row,) = measure(option_case("pair", Path(folder), options, [plan]), torch.float32)["plans"]
            yield ", ".join(losses), network_d["type"], row["measured_bytes"], row["error"]


def main() -> int:
    """Measure, print."""
    torch.set_num_threads(1)
    worst = 0.0
    with tempfile.TemporaryDirectory() as home:
        os.environ["TORCH_HOME"] = home
        for design in DESIGNS.values():
            write_seeded_tower(design, Path(home, "hub", "checkpoints", design.file), 8)
        print("| losses, beside ganloss | discriminator | peak, MiB | error |\n|---|---|---:|---:|")
        for losses, judge, peak_bytes, error in rows():
            print(f"| {losses} | {judge} | {peak_bytes / MIB:.1f} | {error:+.4%} |", flush=True)
            worst = max(worst, abs(error))
    return int(worst > MOST_ERROR)


if __name__ == "__main__":
    sys.exit(main())
