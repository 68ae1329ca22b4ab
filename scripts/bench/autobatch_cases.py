"""What the comparison of batch finders runs on: networks, budgets, seeds, images and option files."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import skimage
import yaml

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20
SCALE = 2
FIRST_BATCH, LARGEST_BATCH = 4, 256
RATE = 1e-4
TARGET, MARGIN = 0.85, 0.05
PERIOD_STEPS, LOOKAHEAD, STEADY_STEPS = 4, 4, 50
"""A period of our controllers, how far the loader runs ahead, and what follows once a method has settled."""

WALKED_STEPS = 8
"""Steps under each plan of a walk along the frontier."""

ENOUGH_STEPS = 3
"""Steps of training after which a plan counts as found where a method measures nothing before, and where all methods
are held against each other."""

IMAGES, IMAGE_PX = 8, 288

CROPS_PX: dict[str, tuple[int, int]] = {"compact": (32, 96), "span": (16, 64), "rrdbnet": (24, 80), "swinir": (16, 64)}
"""The fixed crop, chosen for a sample to take 1.5 to 3 MiB, and the largest one where the crop is free."""

NETWORKS: dict[str, dict[str, Any]] = {
    "compact": {"type": "compact", "num_feat": 24, "num_conv": 6},
    "span": {"type": "span", "feature_channels": 12},
    "rrdbnet": {"type": "rrdbnet", "num_feat": 16, "num_block": 2, "num_grow_ch": 8},
    "swinir": {
        "type": "swinir_light",
        "embed_dim": 24,
        "depths": [2, 2],
        "num_heads": [2, 2],
        "window_size": 8,
        "img_size": 16,
    },
}
BUDGETS_MIB = (40, 64, 96)
SEEDS = (1, 2)


@dataclass(frozen=True)
class Case:
    """One network with one budget and one seed.

    Attributes:
        network: a name in :data:`NETWORKS`.
        budget_mib: memory of a step beyond what the process held before.
        seed: of weights and samples.
    """

    network: str
    budget_mib: int
    seed: int

    @property
    def name(self) -> str:
        """Words that tell it from the others."""
        return f"{self.network} {self.budget_mib} MiB seed {self.seed}"

    @property
    def lq_size(self) -> int:
        """The crop of every method, in low-quality pixels; the first one where the crop is free."""
        return CROPS_PX[self.network][0]

    @property
    def limit_bytes(self) -> int:
        """The budget in bytes."""
        return self.budget_mib * MIB

    @property
    def target_bytes(self) -> int:
        """What our controllers steer to."""
        return int(TARGET * self.limit_bytes)


def cases(small: bool) -> list[Case]:
    """Return the cases of a run; one in a small one."""
    if small:
        return [Case("compact", 40, 1)]
    return [Case(network, budget, seed) for network in NETWORKS for budget in BUDGETS_MIB for seed in SEEDS]


def write_images(folder: Path) -> Path:
    """Write cuts of a photograph that ships with scikit-image; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    photograph = cv2.imread(str(Path(skimage.__file__).parent / "data" / "coffee.png"))
    for number in range(IMAGES):
        top, left = 13 * number, 37 * number
        cv2.imwrite(str(folder / f"{number}.png"), photograph[top : top + IMAGE_PX, left : left + IMAGE_PX])
    return folder


def write_options(folder: Path, case: Case, images: Path, steps: int, automations: dict[str, Any]) -> Path:
    """Write the option file of a run under a case; return it."""
    options = {
        "name": "run",
        "scale": SCALE,
        "device": "cpu",
        "num_threads": 1,
        "manual_seed": case.seed,
        "datasets": {
            "train": {
                "type": "GTImageDataset",
                "dataroot_gt": str(images),
                "lq_size": case.lq_size,
                "batch_size_per_gpu": FIRST_BATCH,
                "num_worker_per_gpu": 0,
                "lookahead": LOOKAHEAD,
                "cache_dir": str(images.parent / "cache"),
            }
        },
        "network_g": NETWORKS[case.network],
        "train": {
            "total_iter": steps,
            "losses": [{"type": "l1loss"}],
            "optim_g": {"type": "Adam", "lr": RATE},
        },
        "logger": {"print_freq": 50, "save_checkpoint_freq": 100_000, "use_tb_logger": False},
        "memory": {"cpu_budget": f"{case.budget_mib}MiB", "calibration": False},  # every case learns for itself
        "training_automations": automations,
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "run.yml"
    file.write_text(yaml.safe_dump(options, sort_keys=False))
    return file


def controller(policy: str, crops_px: tuple[int, int], target: float = TARGET) -> dict[str, Any]:
    """Return our controller's options; the crop is fixed where the largest size is the smallest, too."""
    return {
        "DynamicBatchSizeOptimizer": {
            "policy": policy,
            "target_vram_usage": target,
            "safety_margin": MARGIN,
            "adjustment_frequency": PERIOD_STEPS,
            "min_batch_size": 2,
            "max_batch_size": LARGEST_BATCH,
            "min_lq_size": crops_px[0],
            "max_lq_size": crops_px[1],
        }
    }


def child_environment() -> dict[str, str]:
    """Return the environment of every measured process: one thread, this repository's package first."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
        "PYTHONUNBUFFERED": "1",
    }
