"""Crops a second that one worker degrades: from decoded pixels, and from files.

    python scripts/bench/degradations.py [--seconds 5] [--lq-size 64]

Two settings at scale 4: BasicSR's ranges with sharpened input and target, and traiNNer-redux's template (`mild`). One
thread, photographs that ship with scikit-image. Exit code 1 below 40 and 200 crops a second from decoded pixels.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import skimage.data
import torch
import yaml

from trainauto.builders.degradations import degradation_settings, sharpening
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.options.load import load_options
from trainauto.tasks.sr.data.degraded_dataset import RealESRGANDataset
from trainauto.tasks.sr.data.image_io import read_image

LEAST = {"BasicSR's ranges with USM": 40, "traiNNer-redux's template": 200}
KEYS = {
    "BasicSR's ranges with USM": {"degradation_preset": "real-esrgan", "l1_gt_usm": True},
    "traiNNer-redux's template": {"degradation_preset": "mild"},
}


def dataset(keys: dict[str, object], folder: Path, lq_size: int) -> RealESRGANDataset:
    """Return the set of an option file."""
    options = {
        "name": "degradations",
        "scale": 4,
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
        scale=4,
        degradations=degradation_settings(read),
        sharpening=sharpening(read),
        references=references,
    )


def crops_a_second(make: Callable[[int], object], seconds: float) -> float:
    """Return how often something is made in a second, of as many seconds."""
    make(0)
    count, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < seconds:
        count += 1
        make(count)
    return count / taken


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--lq-size", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    too_slow = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for photograph in ("astronaut", "coffee", "chelsea"):
            image = getattr(skimage.data, photograph)()
            cv2.imwrite(str(folder / f"{photograph}.png"), cv2.resize(image, None, fx=3, fy=3)[:, :, ::-1])
        print("| | from decoded pixels | from PNG files |\n|---|---:|---:|")
        for label, keys in KEYS.items():
            images = dataset(keys, folder, arguments.lq_size)
            decoded = [read_image(images.sample_name(index), 3) for index in range(len(images))]
            pixels = crops_a_second(
                lambda n, i=images, d=decoded: i._crops.crop(d[n % len(d)], arguments.lq_size, n),  # type: ignore[misc]
                arguments.seconds,
            )
            files = crops_a_second(
                lambda n, i=images: i[SampleKey(n % len(i), arguments.lq_size, n)],  # type: ignore[misc]
                arguments.seconds,
            )
            print(f"| {label} | {pixels:.0f} | {files:.0f} |", flush=True)
            too_slow |= pixels < LEAST[label]
    return int(too_slow)


if __name__ == "__main__":
    sys.exit(main())
