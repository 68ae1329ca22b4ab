"""What a run believes before it has measured anything, fitted to peaks of real cards.

The result stands in ``trainauto/memory/cost/ratio_prior.py``.

    python scripts/bench/fit_belief.py [--write FOLDER]

The ratio of what was measured to what was predicted is taken as exp of Student's t with 4 degrees of freedom through
two figures of a sample, the median and the 95th percentile: rare large ratios are what memory runs out of, and a fit
to all of the sample would follow its many small ones. The samples:

BENCHMARKED, for convolutions where cuDNN's benchmark mode is on (that they work in room of their own there was read off
these very peaks, so that their spread says little of other kinds of networks):

- 88 published peaks of segmentation networks over what ``published_gpu.py`` predicts;
- of 43 published batches that did not fit a card of which 22.6 GiB were left, those which the simulated allocator
  would have fitted in there: they needed so much more than predicted, or yet more.

ALLOCATED, for everything else: judgement rather than a fit, since no table here holds such peaks. What there is:

- eight recorded runs of a transformer, whose blocks are predicted to 0.1 % (``recorded_steps.py``): 1 each;
- 29 peaks of training with benchmark mode off, of which only a summary is known to us: 23 lie 10 to 48 MiB above what
  was predicted without cuBLAS's workspaces, all between 0.987 and 1.079 times that. The 23 count as 1 with a constant,
  the other six as spread evenly between both ends.

PLAIN, where no kernel is known to take memory for itself, is judgement as well: the 28 recorded steps of transformers
in docs/benchmarks/recorded_gpu.md and h100_steps.md lie within 0.1 %, and versions of a model's library differ by more.

Whole families are kept out in turn, and counted against the fit to the rest. Then every row of both tables is held
against the quantile. Exit code 1 where ``belief.py`` says something else than the fit, or a row too many lies above.
"""

import argparse
import ast
import csv
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from published_gpu import Peak, peaks

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from trainauto.core.units import GIB, MIB  # noqa: E402
from trainauto.forecast.plan_memory import likely  # noqa: E402
from trainauto.memory.cost.ratio_prior import ALLOCATED, BENCHMARKED, UPPER, RatioPrior, student4  # noqa: E402

BATCHES = Path(__file__).parent / "data" / "published_timm_batches.csv"
LEFT_GIB = "22.6"
LEFT_BYTES = int(float(LEFT_GIB) * GIB)
"""Of an RTX 3090's 24 GiB, what context, neighbours and headroom are taken to leave: nobody wrote it down."""

OTHERS_LEFT = ("22.0", "23.2")
"""GiB for which the table says as well what the simulated allocator did."""

TAIL = 0.95
"""The quantile of a sample that its tail is taken from: the highest that a sample of some ninety tells."""

RECORDED = 8
UNLISTED = (23, 6, 0.987, 1.079)
"""Peaks with benchmark mode off: so many a constant above, so many others, least and most of all ratios."""

CONSTANTS_BYTES = (10 * MIB, 48 * MIB)
"""What the first of these lie above, cuBLAS's two workspaces of 8.125 MiB included, which traces count."""

HEAD = (
    "# Expected memory before any measurement",
    "",
    f"`python scripts/bench/fit_belief.py`, torch {torch.__version__}. We measured nothing on a GPU: the",
    "measurements are other people's, the predictions are ours.",
    "",
    "A ratio is measured over predicted memory. Its distribution is exp of Student's t with 4 degrees of freedom,",
    "through the median and the 95th percentile of a sample. A run uses that curve's 99 % quantile. `BENCHMARKED`",
    "applies to convolutions with cuDNN's benchmark mode on (it is off unless your code switches it on). `PLAIN`",
    "applies where no kernel is known to allocate memory for itself, and `ALLOCATED` to everything else. The",
    "tables contain only peaks with benchmark mode on. For others only a summary is known, and the values based",
    "on it are our judgement. The top of the script describes each sample.",
    "",
    "Each family was held out in turn. Its ratios above the quantile of the others show what to expect of an",
    "unseen family.",
)

MOST_ABOVE, LEAST_SHARE, MOST_REFUSED = 1, 0.88, 4
SAME = 0.003


@dataclass(frozen=True)
class Batch:
    """A published batch that fitted a card, and the next one of its ladder, which did not."""

    name: str
    fitted_bytes: int
    failed_bytes: int
    allocator_fits: bool
    allocator_fails: bool


def batches(left_gib: str = LEFT_GIB) -> list[Batch]:
    """Return the published batches, with what is predicted of both and what the allocator did with so much left."""
    with BATCHES.open(newline="") as lines:
        return [
            Batch(
                row["id"].split("/")[-1],
                int(row["live_fit"]),
                int(row["live_oom"]),
                ast.literal_eval(row["fits_all"])[left_gib],
                not ast.literal_eval(row["oom_all"])[left_gib],
            )
            for row in csv.DictReader(lines)
        ]


def fitted(ratios: Sequence[float]) -> tuple[float, float]:
    """Return median and 99 % quantile of Student's t through the median and the tail of a sample."""
    middle, tail = float(np.quantile(ratios, 0.5)), float(np.quantile(ratios, TAIL))
    scale = math.log(tail / middle) / student4(TAIL)
    return middle, middle * math.exp(scale * student4(UPPER))


def benchmarked_sample(peaks: Sequence[Peak], failed: Sequence[Batch]) -> dict[str, list[float]]:
    """Return ratios by family."""
    sample: dict[str, list[float]] = {}
    for peak in peaks:
        sample.setdefault(peak.family, []).append(peak.ratio)
    sample["batches that did not fit"] = [
        LEFT_BYTES / batch.failed_bytes for batch in failed if not batch.allocator_fails
    ]
    return sample


def allocated_sample() -> dict[str, list[float]]:
    """Return ratios by where they are from."""
    constant, others, least, most = UNLISTED
    return {
        "recorded transformers": [1.0] * RECORDED,
        "unlisted, a constant above": [1.0] * constant,
        "unlisted, others": [float(ratio) for ratio in np.linspace(least, most, others)],
    }


def kept_out(sample: dict[str, list[float]]) -> list[str]:
    """Return lines: each family against what the others tell."""
    lines, every, surprises = [], 0, 0
    for family, ratios in sample.items():
        rest = [ratio for other, ratios in sample.items() if other != family for ratio in ratios]
        _, upper = fitted(rest)
        above = sum(ratio > upper for ratio in ratios)
        lines.append(f"| {family} | {len(ratios)} | {max(ratios):.3f} | {upper:.3f} | {above} |")
        every, surprises = every + len(ratios), surprises + above
    return [*lines, f"| all | {every} | | | {surprises} |"]


def constant() -> tuple[float, float]:
    """Return the constant that traces do not know, and its scale: middle and half width of 23 of 29."""
    low, high = (size - 2 * 8.125 * MIB for size in CONSTANTS_BYTES)
    share = (1 + UNLISTED[0] / (UNLISTED[0] + UNLISTED[1])) / 2
    return (low + high) / 2, (high - low) / 2 / student4(share)


def judged(left_gib: str) -> tuple[list[str], list[str]]:
    """Return the fitting batches that are refused, and the others that are admitted, with so much left.

    The peak's quantile must stay within it, and the simulated allocator fit in it. A run asks for more: that the peak
    stays below its target, and that steps need not flush.
    """
    left_bytes, ladder = int(float(left_gib) * GIB), batches(left_gib)

    def admits(live_bytes: int, allocator_fits: bool) -> bool:
        return allocator_fits and likely(live_bytes, BENCHMARKED).most_bytes <= left_bytes

    refused = [batch.name for batch in ladder if not admits(batch.fitted_bytes, batch.allocator_fits)]
    return refused, [batch.name for batch in ladder if admits(batch.failed_bytes, not batch.allocator_fails)]


def _sections(samples: Mapping[str, tuple[RatioPrior, dict[str, list[float]]]]) -> tuple[list[str], bool]:
    """Return the page's section of every prior, and whether all of them are what their samples give."""
    lines: list[str] = []
    met = True
    for name, (belief, sample) in samples.items():
        middle, upper = fitted([ratio for ratios in sample.values() for ratio in ratios])
        met = met and abs(belief.median_ratio - middle) <= SAME and abs(belief.upper_ratio - upper) <= SAME
        lines += [
            f"`{name}`: median {middle:.4f}, 99 % quantile {upper:.4f} of {sum(map(len, sample.values()))} ratios; "
            f"`belief.py` has {belief.median_ratio} and {belief.upper_ratio}.",
            "",
            "| held out | ratios | largest | 99 % quantile of the others | above it |",
            "|---|---:|---:|---:|---:|",
            *kept_out(sample),
            "",
        ]
    return lines, met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="folder for belief.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    published, ladder = peaks(), batches()
    samples: dict[str, tuple[RatioPrior, dict[str, list[float]]]] = {
        "BENCHMARKED": (BENCHMARKED, benchmarked_sample(published, ladder)),
        "ALLOCATED": (ALLOCATED, allocated_sample()),
    }
    sections, met = _sections(samples)
    lines = [*HEAD, "", *sections]
    middle_bytes, scale_bytes = constant()
    met = met and abs(ALLOCATED.constant_bytes - middle_bytes) < MIB
    met = met and abs(ALLOCATED.constant_scale_bytes - scale_bytes) < MIB
    lines += [
        f"Constant in addition to `ALLOCATED`: {middle_bytes / MIB:.1f} MiB, scale {scale_bytes / MIB:.1f} MiB.",
        "",
    ]
    shares = [peak.of_most for peak in published]
    above = sum(share > 1 for share in shares)
    refused, admitted = judged(LEFT_GIB)
    lines += [
        f"- {above} of {len(shares)} published peaks lie above the 99 % quantile; of it they are {median(shares):.1%} "
        "(median).",
        f"- Of {len(ladder)} published batches that fitted an RTX 3090, {len(refused)} are refused by the peak's 99 % "
        f"quantile and the simulated allocator with {LEFT_GIB} GiB left ({', '.join(refused)}); of as many that did "
        f"not fit, {len(admitted)} are admitted.",
    ]
    for left_gib in OTHERS_LEFT:
        others = judged(left_gib)
        lines.append(f"- With {left_gib} GiB left: {len(others[0])} refused, {len(others[1])} admitted.")
    lines.append("- A run is stricter: the quantile has to stay below its target, and steps must not need a flush.")
    met = met and above <= MOST_ABOVE and median(shares) >= LEAST_SHARE
    met = met and len(refused) <= MOST_REFUSED and not admitted
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.write:
        (arguments.write / "belief.md").write_text(text)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
