"""How many crops a second the loader gives, against decoding the whole file with OpenCV for each crop.

    python scripts/bench/loader.py [--workers 2] [--repeats 5] [--json docs/benchmarks/loader.json] [--only-kept]

Both sides read the same pairs of PNGs (2040x1356 and 510x339, mosaics of photographs that ship with scikit-image), with
the same number of workers, the same batch and crop, the same flips, and the operating system's disk cache warm. They
take turns; each ratio is of two neighbouring runs. A ratio of the peer to itself shows the noise.

Then a set of fifty images that an option file without `cache_dir` names, from its second pass on, against our loader
where it decodes each file for each crop. Exit code 1 below ten times as many crops.
"""

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import skimage
import torch
import yaml
from torch.utils.data import DataLoader, Dataset

from trainauto.builders.data import build_train_set
from trainauto.builders.image_model import build_network
from trainauto.core.files import write_json_atomically
from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader, GTImageDataset, PairedImageDataset
from trainauto.data.dynamic_dataset import DynamicDataset
from trainauto.options.load import load_options
from trainauto.tasks.sr.data.reading import Reading

SCALE, LQ_SIZE, BATCH, IMAGES = 4, 48, 8, 8
KEPT_IMAGES, KEPT_PLAN, LEAST_RATIO = 50, Plan.of(batch_size=16, lq_size=64), 10
PHOTOGRAPHS = ["astronaut.png", "brick.png", "chelsea.png", "coffee.png", "grass.png", "ihc.png", "motorcycle_left.png"]


def write_pairs(folder: Path, images: int = IMAGES) -> tuple[str, str]:
    """Write mosaics of photographs and their shrunk copies; return both folders."""
    source = Path(skimage.__file__).parent / "data"
    photographs = [cv2.imread(str(source / name)) for name in PHOTOGRAPHS]
    generator = random.Random(0)
    for name in ("gt", "lq"):
        (folder / name).mkdir(parents=True)
    for number in range(images):
        rows = [np.hstack([generator.choice(photographs)[:300, :450] for _ in range(5)]) for _ in range(5)]
        gt = np.vstack(rows)[:1356, :2040]
        cv2.imwrite(str(folder / "gt" / f"{number}.png"), gt)
        cv2.imwrite(str(folder / "lq" / f"{number}.png"), cv2.resize(gt, (510, 339), interpolation=cv2.INTER_AREA))
    return str(folder / "gt"), str(folder / "lq")


class WholeFiles(Dataset[dict[str, torch.Tensor]]):
    """The peer: what a plain BasicSR-like dataset does, a decode of both whole files for each crop."""

    def __init__(self, gt: str, lq: str) -> None:
        self.gt, self.lq = sorted(Path(gt).iterdir()), sorted(Path(lq).iterdir())

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Decode, crop, flip."""
        generator = random.Random(index)
        number = index % len(self.gt)  # every file as often as ours, whose order is by epochs
        lq, gt = cv2.imread(str(self.lq[number])), cv2.imread(str(self.gt[number]))
        top, left = generator.randint(0, lq.shape[0] - LQ_SIZE), generator.randint(0, lq.shape[1] - LQ_SIZE)
        pair = {
            "lq": lq[top : top + LQ_SIZE, left : left + LQ_SIZE],
            "gt": gt[top * SCALE : (top + LQ_SIZE) * SCALE, left * SCALE : (left + LQ_SIZE) * SCALE],
        }
        flip, turn = generator.random() < 0.5, generator.random() < 0.5
        return {name: _tensor(image, flip=flip, turn=turn) for name, image in pair.items()}


def _tensor(image: np.ndarray, *, flip: bool, turn: bool) -> torch.Tensor:
    image = cv2.cvtColor(image[:, ::-1] if flip else image, cv2.COLOR_BGR2RGB)
    image = image.transpose(1, 0, 2) if turn else image
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


def _single_threaded(_worker: int) -> None:
    cv2.setNumThreads(0)


def crops_a_second(batches: Iterator[Any], count: int, batch: int = BATCH) -> float:
    """Time ``count`` batches after the workers have come up and their queues are in steady state."""
    for _ in islice(batches, 6):
        pass
    start = time.perf_counter()
    for _ in islice(batches, count):
        pass
    return count * batch / (time.perf_counter() - start)


def peer_run(roots: tuple[str, str], workers: int, count: int) -> float:
    """Run the peer once."""
    loader = DataLoader(
        WholeFiles(*roots), BATCH, num_workers=workers, prefetch_factor=4, worker_init_fn=_single_threaded
    )
    return crops_a_second(iter(loader), count)


def our_loader(roots: tuple[str, str], workers: int, cache: str | None) -> DynamicDataLoader:
    """Build our loader over the same files."""
    dataset = PairedImageDataset(*roots, scale=SCALE, reading=Reading(cache_dir=cache))
    return DynamicDataLoader(
        dataset, Plan.of(batch_size=BATCH, lq_size=LQ_SIZE), seed=0, num_workers=workers, lookahead=4 * workers
    )


def our_run(roots: tuple[str, str], workers: int, count: int, cache: str | None) -> float:
    """Run our loader once."""
    with our_loader(roots, workers, cache) as loader:
        return crops_a_second(iter(loader), count)


def plan_change_seconds(roots: tuple[str, str], workers: int, cache: str | None, plan: Plan) -> float:
    """Return the time from asking for a plan to the first batch under it, pulled as fast as they come."""
    with our_loader(roots, workers, cache) as loader:
        batches = iter(loader)
        for _ in islice(batches, 6):
            pass
        start = time.perf_counter()
        loader.update_plan(plan)
        while next(batches).plan != plan:
            pass
        return time.perf_counter() - start


def ratios(repeats: int, first_run: Callable[[], float], other: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Run both in turns; return the ratios of neighbours and the figures of the first."""
    quotients, figures = [], []
    for turn in range(repeats):
        first, second = (first_run(), other()) if turn % 2 == 0 else reversed((other(), first_run()))
        quotients.append(first / second)
        figures.append(first)
    return quotients, figures


def train_set(folder: str) -> DynamicDataset:
    """Return the set that a run builds for an option file that names a folder of images, and nothing else of it."""
    options = {
        "name": "loader",
        "scale": SCALE,
        "datasets": {"train": {"type": "GTImageDataset", "dataroot_gt": folder, "lq_size": KEPT_PLAN.size}},
        "network_g": {"type": "compact"},
        "train": {"total_iter": 1, "losses": [{"type": "l1loss"}], "optim_g": {"type": "Adam"}},
    }
    file = Path(folder).parent / "options.yml"
    file.write_text(yaml.safe_dump(options), encoding="utf-8")
    loaded = load_options(file)
    return build_train_set(loaded, build_network(loaded, pretrained=False))[0]


def kept_run(dataset: DynamicDataset, workers: int, count: int) -> float:
    """Run our loader over a set once."""
    with DynamicDataLoader(dataset, KEPT_PLAN, seed=0, num_workers=workers, lookahead=4 * workers) as loader:
        return crops_a_second(iter(loader), count, KEPT_PLAN.batch_size)


def kept_ratios(workers: int, repeats: int) -> list[float]:
    """Print and return how many times as many crops come of a set that stays decoded."""
    with tempfile.TemporaryDirectory() as name:
        gt, _ = write_pairs(Path(name), KEPT_IMAGES)
        kept, decoding = train_set(gt), GTImageDataset(gt, scale=SCALE)
        kept_run(kept, workers, 1)  # what comes before it is more than a pass
        quotients, figures = ratios(
            repeats, lambda: kept_run(kept, workers, 200), lambda: kept_run(decoding, workers, 6)
        )
    print(
        f"{KEPT_IMAGES} images, {workers} workers: {statistics.median(figures):.0f} crops/s from the second pass on, "
        f"{statistics.median(quotients):.1f} times those of decoding each time "
        f"(median of {repeats}, {min(quotients):.1f} to {max(quotients):.1f})"
    )
    return quotients


def main() -> int:
    """Measure, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only-kept", action="store_true", help="only the set that stays decoded")
    arguments = parser.parse_args()
    if not arguments.only_kept:
        against_the_peer(arguments.workers, arguments.repeats, arguments.json)
    return int(statistics.median(kept_ratios(arguments.workers, arguments.repeats)) < LEAST_RATIO)


def against_the_peer(workers: int, repeats: int, json_file: Path | None) -> None:
    """Measure against decoding whole files, print a table, write JSON if asked."""
    with tempfile.TemporaryDirectory() as name:
        roots, cache = write_pairs(Path(name)), str(Path(name) / "cache")

        def peer() -> float:
            return peer_run(roots, workers, 15)

        our_run(roots, workers, 20, cache)  # fills the cache and warms the disk
        cases = {
            "peer against itself": peer,
            "cache off": lambda: our_run(roots, workers, 15, None),
            "cache on": lambda: our_run(roots, workers, 400, cache),
        }
        rows = {}
        for label, run in cases.items():
            quotients, figures = ratios(repeats, run, peer)
            rows[label] = {
                "crops_per_s": statistics.median(figures),
                "ratio_median": statistics.median(quotients),
                "ratio_min": min(quotients),
                "ratio_max": max(quotients),
            }
        larger, smaller = Plan.of(batch_size=12, lq_size=64), Plan.of(batch_size=4, lq_size=32)
        changes = {
            f"{kind}, cache {'on' if where else 'off'}": statistics.median(
                plan_change_seconds(roots, workers, where, plan) for _ in range(repeats)
            )
            for where in (None, cache)
            for kind, plan in (("larger", larger), ("smaller", smaller))
        }
    print(f"{'':22}{'crops/s':>9}{'ratio':>8}{'min':>7}{'max':>7}   (ratio to the peer, median of {repeats})")
    for label, row in rows.items():
        figures = f"{row['crops_per_s']:9.1f}{row['ratio_median']:8.2f}{row['ratio_min']:7.2f}{row['ratio_max']:7.2f}"
        print(f"{label:22}{figures}")
    print("seconds until a plan takes effect:", {label: round(seconds, 4) for label, seconds in changes.items()})
    if json_file:
        machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        versions = {"torch": torch.__version__, "opencv": cv2.__version__}
        result = {"workers": workers, "repeats": repeats, "rows": rows, "plan_change_s": changes, **machine, **versions}
        write_json_atomically(json_file, json.loads(json.dumps(result)))


if __name__ == "__main__":
    sys.exit(main())
