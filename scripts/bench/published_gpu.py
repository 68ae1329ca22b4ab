"""Peaks that others measured on real cards and published, against what traces of the same networks predict.

    python scripts/bench/published_gpu.py [--networks WORDS] [--write FOLDER]

The 88 peaks are of segmentation networks (``scripts/bench/data/README.md``). FCN, PSPNet, DeepLabV3, DeepLabV3+ and
UPerNet on ResNet are written in ``published_networks.py`` and traced here, as torch 1.x trained them, whose cuBLAS took
its workspaces elsewhere; of the others (UNet, Semantic FPN, half precision) the file's own prediction is taken. What is
predicted is the peak of the trace in bytes asked for, which counts the room that convolutions work in where
cuDNN's benchmark mode is on (it was), and DDP's buckets. Quantiles are of ``BENCHMARKED``, what a run in that mode
believes before its first step.

Exit code 1 where a trace that does not count that room differs from the file's prediction by more than 0.1 %.
"""

import argparse
import csv
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from published_networks import Segmenter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from trainauto.core.units import MIB  # noqa: E402
from trainauto.forecast.plan_memory import likely  # noqa: E402
from trainauto.memory.cost.ratio_prior import BENCHMARKED, UPPER  # noqa: E402
from trainauto.memory.tracing.fake_tensors import fake_world  # noqa: E402
from trainauto.memory.tracing.libraries import Libraries  # noqa: E402
from trainauto.memory.tracing.trace import trace  # noqa: E402

DATA = Path(__file__).parent / "data" / "published_gpu_memory.csv"
TRACED = ("fcn", "pspnet", "deeplabv3", "deeplabv3plus", "upernet")
CLASSES = {"cityscapes": 19, "ade20k": 150, "voc12aug": 21, "pascal_context": 60}
SAME = 0.001


@dataclass(frozen=True)
class Peak:
    """One published peak.

    Attributes:
        name: of the configuration.
        family: of networks.
        measured: bytes, as published.
        predicted: bytes at the peak, DDP's buckets among them.
        tensors: the same without what convolutions work in.
        filed: that as the file has it.
        traced: it was traced here.
    """

    name: str
    family: str
    measured: int
    predicted: int
    tensors: int
    filed: int
    traced: bool

    @property
    def ratio(self) -> float:
        """Measured over predicted bytes."""
        return self.measured / self.predicted

    @property
    def of_most(self) -> float:
        """Measured bytes over what the run would have thought to stay within."""
        return self.measured / likely(self.predicted, BENCHMARKED).most_bytes


def traced_bytes(row: Mapping[str, str]) -> tuple[int, int] | None:
    """Trace a row's network with and without what convolutions work in; ``None`` where it is not written here."""
    family = row["family"].split()[-1]
    name = row["id"].split("/")[-1]
    match = re.search(r"_r(\d+)(b?)[-_]", name)
    if family not in TRACED or match is None:
        return None
    classes = next(number for dataset, number in CLASSES.items() if dataset in name)
    batch, height, width = (int(row[key]) for key in ("batch", "height", "width"))
    with fake_world():
        network = Segmenter(family, int(match[1]), classes, plain_stem=bool(match[2]))
        weights = sum(weight.numel() for weight in network.parameters())
        if weights != int(row["params"]):
            raise SystemExit(f"{name}: {weights} weights are not {row['params']}")
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
        images, labels = torch.empty(batch, 3, height, width), torch.empty(batch, height, width, dtype=torch.long)

        def step() -> None:
            optimizer.zero_grad(set_to_none=False)  # what torch 1.x did
            network(images, labels).backward()
            optimizer.step()

        held, buckets = [network, optimizer, images, labels], int(row["ddp_bucket_bytes"])
        predicted, tensors = (trace(step, held=held, libraries=Libraries(0, benchmark=on)) for on in (True, False))
    return predicted.peak_bytes + buckets, tensors.peak_bytes + buckets


def peaks(words: Sequence[str] = ()) -> list[Peak]:
    """Return the published peaks whose names hold one of these words, all without any."""
    rows = []
    with DATA.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if words and not any(word in row["id"] for word in words):
                continue
            filed, traced = int(row["predicted_live_bytes"]), traced_bytes(row)
            name = row["id"].split("/")[-1].split("_20")[0]
            measured = int(float(row["measured_bytes"]))
            rows.append(Peak(name, row["family"], measured, *(traced or (filed, filed)), filed, traced is not None))
    return rows


def page(rows: Sequence[Peak]) -> str:
    """Return the tables in Markdown."""
    lines = [
        "# Published peaks of real GPUs compared with traces",
        "",
        f"`python scripts/bench/published_gpu.py`: {len(rows)} peaks of training steps, "
        f"{sum(peak.traced for peak in rows)} of them traced here, torch {torch.__version__}.",
        "`scripts/bench/data/README.md` lists the sources of the figures. We measured nothing on a GPU. Expected",
        "is what `plan` prints: predicted times the median of `BENCHMARKED`, which was fitted to the same peaks.",
        "",
        "| networks | peaks | measured / predicted, median | least | most | within 5 % | within 5 % of the expected "
        f"| above the {UPPER:.0%} quantile | measured / quantile, median |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    families = {family: [peak for peak in rows if peak.family == family] for family in {peak.family for peak in rows}}
    lines += [_row(name, families[name]) for name in sorted(families)]
    lines += [
        _row("all", rows),
        "",
        "| network | measured | predicted | measured / predicted | |",
        "|---|---:|---:|---:|---|",
    ]
    lines += [
        f"| {peak.name} | {peak.measured / MIB:.0f} MiB | {peak.predicted / MIB:.0f} MiB | {peak.ratio:.3f} | "
        f"{'traced' if peak.traced else 'from the file'} |"
        for peak in rows
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, rows: Sequence[Peak]) -> str:
    ratios = [peak.ratio for peak in rows]
    shares = [peak.of_most for peak in rows]
    near, expected = (
        sum(abs(ratio / middle - 1) <= 0.05 for ratio in ratios) for middle in (1, BENCHMARKED.median_ratio)
    )
    return (
        f"| {name} | {len(rows)} | {median(ratios):.3f} | {min(ratios):.3f} | {max(ratios):.3f} | {near} | {expected} "
        f"| {sum(share > 1 for share in shares)} | {median(shares):.1%} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=[], metavar="WORD", help="only names that hold one of these")
    parser.add_argument("--write", type=Path, help="folder for published_gpu.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not (rows := peaks(arguments.networks)):
        raise SystemExit(f"no published peak is called like {' or '.join(arguments.networks)}")
    text = page(rows)
    print(text)
    if arguments.write:
        (arguments.write / "published_gpu.md").write_text(text)
    return 0 if all(abs(peak.tensors / peak.filed - 1) <= SAME for peak in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
