"""Crops a second that one worker degrades, beside BasicSR's functions: from decoded pixels, and from files.

    python scripts/bench/degradations.py [--seconds 5] [--rounds 5] [--lq-size 64] [--peers FOLDER]

Scale 4, CPU time of one thread, photographs that ship with scikit-image, everything in turns: BasicSR's ranges with
sharpened input and target, and traiNNer-redux's template (`mild`). BasicSR is downloaded into ``--peers`` and degrades
400 px for each crop; ours degrades the crop and a margin, or as many pixels where the row says 400 px. Figures are
medians of the rounds, with the fastest round beside them: what other work on the machine takes only makes a round
slower. Exit code 1 where the fastest is below 40 and 200 crops a second from decoded pixels.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import skimage.data
import torch
import yaml
from degradations_published import RELEASE, Published, unpacked
from peers_env import ROOT

from trainauto.builders.degradations import degradation_settings, sharpening
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.options.load import load_options
from trainauto.tasks.sr.data.degraded_dataset import RealESRGANDataset
from trainauto.tasks.sr.data.image_io import read_image

SCALE = 4
PIXELS, FILES = "from decoded pixels", "from PNG files"
OURS: dict[str, tuple[dict[str, object], int]] = {
    "trainauto, BasicSR's ranges with USM, 400 px": ({"degradation_preset": "real-esrgan", "l1_gt_usm": True}, 92),
    "trainauto, BasicSR's ranges without USM, 400 px": ({"degradation_preset": "real-esrgan"}, 92),
    "trainauto, BasicSR's ranges with USM": ({"degradation_preset": "real-esrgan", "l1_gt_usm": True}, 0),
    "trainauto, traiNNer-redux's template": ({"degradation_preset": "mild"}, 0),
}
"""Keys of the option file, and the side of a low-quality crop: 92 px and its margin are 400 px of the image; 0 for that
of the command."""
LEAST = {"trainauto, BasicSR's ranges with USM": 40, "trainauto, traiNNer-redux's template": 200}


def dataset(keys: dict[str, object], folder: Path, lq_size: int) -> RealESRGANDataset:
    """Return the set of an option file."""
    options = {
        "name": "degradations",
        "scale": SCALE,
        "datasets": {"train": {"type": "RealESRGANDataset", "dataroot_gt": str(folder), "lq_size": lq_size}},
        "network_g": {"type": "compact"},
        "train": {"total_iter": 1, "losses": [{"type": "l1loss"}], "optim_g": {"type": "Adam"}},
        **keys,
    }
    file = folder / "options.yml"
    file.write_text(yaml.safe_dump(options), encoding="utf-8")
    read = load_options(file).options
    references = ("gt", "gt_usm") if "l1_gt_usm" in keys else ("gt",)
    return RealESRGANDataset(
        str(folder),
        scale=SCALE,
        degradations=degradation_settings(read),
        sharpening=sharpening(read),
        references=references,
    )


Row = dict[str, tuple[Callable[[int], object], int]]
"""What makes crops from decoded pixels and from files, and how many it makes at once."""


def our_row(keys: dict[str, object], folder: Path, lq_size: int) -> Row:
    """Return what makes single crops of an option file."""
    images = dataset(keys, folder, lq_size)
    decoded = [read_image(images.sample_name(index), 3) for index in range(len(images))]
    return {
        PIXELS: (lambda n: images._degraded.crop(decoded[n % len(decoded)], lq_size, n), 1),
        FILES: (lambda n: images[SampleKey(n % len(images), lq_size, n)], 1),
    }


def published_rows(peers: Path, folder: Path, lq_size: int) -> dict[str, Row]:
    """Return what makes batches by BasicSR's functions; nothing where pip cannot have them, which is said."""
    source = unpacked(peers)
    if source is None:
        print(f"BasicSR {RELEASE} is left out: pip cannot download basicsr=={RELEASE} here", flush=True)
        return {}
    decoded = {file.name: cv2.imread(str(file)) for file in sorted(folder.glob("*.png"))}
    published = Published(source, folder, decoded, SCALE, lq_size)
    cases = {
        f"BasicSR {RELEASE}, batch 1, 400 px": (1, True),
        f"BasicSR {RELEASE}, batch 8, 400 px": (8, True),
        f"BasicSR {RELEASE}, batch 8, 400 px, without USM": (8, False),
    }
    return {
        label: {
            where: (published.maker(batch, from_files=where == FILES, sharpens=sharpens), batch)
            for where in (PIXELS, FILES)
        }
        for label, (batch, sharpens) in cases.items()
    }


def crops_a_second(make: Callable[[int], object], each: int, seconds: float, first: int) -> float:
    """Return how many crops are made in a second of CPU time, of as many seconds."""
    count, start = 0, time.process_time()
    while (taken := time.process_time() - start) < seconds:
        make(first + count)
        count += 1
    return count * each / taken


def main() -> int:
    """Measure in turns, print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lq-size", type=int, default=64)
    parser.add_argument("--peers", type=Path, default=ROOT / "build" / "published", help="where BasicSR is unpacked")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    for seed in (random.seed, np.random.seed, torch.manual_seed):  # what BasicSR draws from
        seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for photograph in ("astronaut", "coffee", "chelsea"):
            image = getattr(skimage.data, photograph)()
            cv2.imwrite(str(folder / f"{photograph}.png"), cv2.resize(image, None, fx=3, fy=3)[:, :, ::-1])
        rows = published_rows(arguments.peers, folder, arguments.lq_size)
        rows |= {label: our_row(keys, folder, lq_size or arguments.lq_size) for label, (keys, lq_size) in OURS.items()}
        found: dict[tuple[str, str], list[float]] = {(label, where): [] for label in rows for where in (PIXELS, FILES)}
        for turn in range(arguments.rounds + 1):
            for (label, where), figures in found.items():
                make, each = rows[label][where]
                seconds = arguments.seconds if turn else 0.01  # the first turn fills tables and caches
                figures.append(crops_a_second(make, each, seconds, turn * 100_000))
    cells = {case: f"{statistics.median(turns[1:]):.3g} ({max(turns[1:]):.3g})" for case, turns in found.items()}
    print(f"| median (fastest) | {PIXELS} | {FILES} |\n|---|---:|---:|")
    for label in rows:
        print(f"| {label} | {cells[label, PIXELS]} | {cells[label, FILES]} |", flush=True)
    versions = {"torch": torch.__version__, "numpy": np.__version__, "OpenCV": cv2.__version__}
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    return int(any(max(found[label, PIXELS][1:]) < least for label, least in LEAST.items()))


if __name__ == "__main__":
    sys.exit(main())
