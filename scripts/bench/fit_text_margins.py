"""How a generated batch's memory follows samples and length where nothing is known of the model: constants and margins.

    python scripts/bench/fit_text_margins.py [--page docs/benchmarks/text_margins.md]

The recordings are of others (``scripts/data_of_others.py`` says where they lie): peaks of ``generate`` on GPUs, batch
by batch. A cost is samples x (c + length)^p. A batch is admitted under a margin if it holds more samples than the run's
first one and costs at most that one's cost divided by the margin; it fails if its peak is above the first one's.
Margins are the smallest under which the share of failures among admitted batches is at most the probability, and c and
p, for each probability, those under which batches then grow most. All are chosen on two thirds of the runs, every third
of a family being held out; what they are worth is read off those.

Every family (``run`` begins with it) weighs the same, and every run within it. Runs with the same first batch are one
run measured more than once, and kept together. Rows longer than the first batch's are left out: ours begin with the
longest texts. Whether the recorded memory holds the model's weights is looked at first: rows that do not grow with the
batch would.
"""

import argparse
import csv
import gzip
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainauto.core.files import write_text_atomically

sys.path.append(str(Path(__file__).parents[1]))

from data_of_others import GENERATE_RUNS as DATA

PROBABILITIES = (0.01, 0.025, 0.1)
SAMPLE_TOKENS = (16, 24, 32, 48, 64, 96, 128, 192, 256)  # none: a text of two tokens would cost next to nothing
POWERS = (0.7, 0.85, 1.0)
MARGINS = 1.02 ** np.arange(0, 150)
LEAST_ADMITTED = 0.02  # share of all rows; fewer tell nothing

TITLE = """# Batches for generation with an unknown model

`python scripts/bench/fit_text_margins.py --page docs/benchmarks/text_margins.md`, on recordings of others
(`scripts/bench/data/README.md`). A batch's cost is samples x (c + tokens of its longest text)^p. It is admitted if it
has more samples than the first batch, its longest text is no longer, and its cost times the margin is at most the
first one's. "Above the first peak" is the share of admitted batches whose recorded memory is above that of the first.
Families of models have equal weight, and so have runs within a family.

No row includes the model's weights: in float16 they are about 13,000 MiB (alma), 1,200 (nllb) and 140 (nmt), and
every family has rows far below that. Runs of one text at a time and runs of hundreds use the same memory per weighted
token within a factor of 2. Weights would make it a factor of tens.

"""

AGAINST_THE_FIRST = """## What the number of tokens predicts

The table counts all batches after the first in all 73 runs, with equal weight, including longer ones. A batch with no
more padded tokens than the first can still exceed its peak, and most of those that did had far fewer. Nor is a peak
exact: even batches of exactly the first one's shape exceed it, as often as the last row shows.
"""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Recording:
    """Batches of a run after its first one, relative to that.

    Attributes:
        name: of the run.
        first: samples, tokens of the longest text, MiB.
        samples: of every batch.
        tokens: of every batch's longest text.
        peaks_mib: of every batch.
    """

    name: str
    first: tuple[float, float, float]
    samples: Floats
    tokens: Floats
    peaks_mib: Floats

    @property
    def family(self) -> str:
        """Which kind of model it was; the recorded names of models are not reliable."""
        return self.name.split("/")[1].split("_")[0]

    def relative_costs(self, constant: float, power: float) -> Floats:
        """Return the costs of batches over that of the first."""
        samples, tokens, _ = self.first
        costs: Floats = self.samples * (constant + self.tokens) ** power / (samples * (constant + tokens) ** power)
        return costs


@dataclass(frozen=True)
class Outcome:
    """Of a cost under a margin.

    Attributes:
        admitted: share of recorded batches.
        failed: share of those.
        growth: mean factor by which samples could grow over the first batch's, at the lengths that were recorded.
    """

    admitted: float
    failed: float
    growth: float


def recordings(path: Path = DATA) -> list[Recording]:
    """Read the runs; those with fewer than five rows no longer than their first batch's are left out."""
    runs = []
    for name, of_run in _rows_by_run(path).items():
        begin = of_run[0]
        first = tuple(
            float(begin[key]) for key in ("first_batch_size", "first_top_token_size", "first_gpu_memory_peak_mib")
        )
        later = [row for row in of_run[1:] if float(row["top_token_size"]) <= first[1]]
        if len(later) >= 5:
            columns = (
                np.array([float(row[key]) for row in later])
                for key in ("inference_batch_size", "top_token_size", "gpu_memory_mib")
            )
            runs.append(Recording(name, (first[0], first[1], first[2]), *columns))
    return runs


def _rows_by_run(path: Path) -> dict[str, list[dict[str, str]]]:
    rows: dict[str, list[dict[str, str]]] = {}
    with gzip.open(path, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            rows.setdefault(row["run"], []).append(row)
    return rows


@dataclass(frozen=True)
class LaterBatches:
    """Of some kind, in all runs after their first batches, those longer than it too; each batch weighs the same.

    Attributes:
        number: of them.
        above: how many took more memory than their run's first.
        above_near: of those above, how many had at least 0.9 of its padded tokens, and at most as many.
    """

    number: int
    above: int
    above_near: int

    @property
    def share_above(self) -> float:
        """Of the number."""
        return self.above / self.number


def later_batches(path: Path = DATA) -> dict[str, LaterBatches]:
    """Count the batches that should not take more than the first one of their run, by what they share with it."""
    later = [row for of_run in _rows_by_run(path).values() for row in of_run[1:]]

    def column(name: str) -> Floats:
        return np.array([float(row[name]) for row in later])

    samples, tokens, mib = column("inference_batch_size"), column("top_token_size"), column("gpu_memory_mib")
    first_samples, first_tokens = column("first_batch_size"), column("first_top_token_size")
    first_mib = column("first_gpu_memory_peak_mib")
    above, padded = mib > first_mib, samples * tokens / (first_samples * first_tokens)
    repeats = (samples == first_samples) & (tokens == first_tokens)
    within = (samples <= first_samples) & (tokens <= first_tokens)
    kinds = {
        "no more padded tokens, not its shape": (padded <= 1) & ~repeats,
        "no more samples and no longer, not its shape": within & ~repeats,
        "no more samples and no longer, its shape too": within,
        "exactly its shape": repeats,
    }
    near = (padded >= 0.9) & (padded <= 1)
    return {
        name: LaterBatches(int(kind.sum()), int((kind & above).sum()), int((kind & above & near).sum()))
        for name, kind in kinds.items()
    }


def halves(runs: Sequence[Recording]) -> tuple[list[Recording], list[Recording]]:
    """Return the runs to fit, and those that are held out: every third kind of first batch in a family."""
    kept_out = set()
    for family in {run.family for run in runs}:
        kept_out |= {(family, first) for first in sorted({run.first for run in runs if run.family == family})[1::3]}
    kept = [run for run in runs if (run.family, run.first) in kept_out]
    return [run for run in runs if run not in kept], kept


def least_mib(runs: Iterable[Recording]) -> dict[str, float]:
    """Return the smallest peak by family: below what weights take, no row of a family of like levels can hold them."""
    least: dict[str, float] = {}
    for run in runs:
        least[run.family] = min(least.get(run.family, np.inf), float(run.peaks_mib.min()))
    return least


def level_spread(runs: Sequence[Recording]) -> dict[str, float]:
    """Return by family and version how far MiB a weighted token differ between the runs of least and most samples.

    Weights in the rows of some runs would show as a level that falls as batches grow.
    """
    spreads = {}
    for kind in sorted({run.name.rsplit("/", 1)[0] + "/" + run.family for run in runs}):
        same = [run for run in runs if run.name.rsplit("/", 1)[0] + "/" + run.family == kind]
        levels = [
            (run.first[0], float(np.median(run.peaks_mib / run.samples / (96 + run.tokens) ** 0.7))) for run in same
        ]
        spreads[kind] = min(levels)[1] / max(levels)[1]
    return spreads


def outcome(runs: Sequence[Recording], constant: float, power: float, margin: float) -> Outcome:
    """Say what a cost does with recorded runs under a margin."""
    families = Counter(run.family for run in runs)
    admitted = failed = growth = total = 0.0
    for run in runs:
        weight = 1 / families[run.family] / len(run.samples)
        relative = run.relative_costs(constant, power)
        is_admitted = (relative * margin <= 1) & (run.samples > run.first[0])
        admitted += weight * is_admitted.sum()
        failed += weight * (is_admitted & (run.peaks_mib > run.first[2])).sum()
        could = run.samples / run.first[0] / relative / margin
        growth += weight * np.maximum(1.0, could).sum()
        total += weight * len(run.samples)
    return Outcome(admitted / total, failed / admitted if admitted else 0.0, growth / total)


def margin_for(runs: Sequence[Recording], constant: float, power: float, probability: float) -> float:
    """Return the smallest margin from which on no more than the probability fails, at any larger one either."""
    least = float(MARGINS[-1])
    for margin in MARGINS[::-1].tolist():
        judged = outcome(runs, constant, power, margin)
        if judged.admitted >= LEAST_ADMITTED and judged.failed > probability:
            return least
        least = margin
    return least


def chosen(runs: Sequence[Recording], probability: float) -> tuple[int, float]:
    """Return the constant and the power under which batches grow most at a probability."""

    def growth(form: tuple[int, float]) -> float:
        return outcome(runs, *form, margin_for(runs, *form, probability)).growth

    return max(((constant, power) for constant in SAMPLE_TOKENS for power in POWERS), key=growth)


def report(runs: Sequence[Recording]) -> Iterator[str]:
    """Yield the lines of the page."""
    fitted, kept = halves(runs)
    groups = [("fitted", fitted), ("held out", kept)]
    groups += [
        (f"held out: {name}", [r for r in kept if r.family == name]) for name in sorted({r.family for r in kept})
    ]
    least = ", ".join(f"{family} {mib:.0f}" for family, mib in least_mib(runs).items())
    levels = ", ".join(f"{kind} {ratio:.2f}" for kind, ratio in level_spread(runs).items())
    yield from (
        f"{len(fitted)} runs fitted, {len(kept)} held out. Least MiB of a row: {least}.",
        f"Ratio of MiB per weighted token, run of fewest samples over run of most: {levels}.",
        "",
        "| probability | c | p | margin | runs | admitted | above the first peak | samples grow by |",
        "|---:|---:|---:|---:|---|---:|---:|---:|",
    )
    for probability in PROBABILITIES:
        form = chosen(fitted, probability)
        margin = margin_for(fitted, *form, probability)
        for name, group in groups:
            judged = outcome(group, *form, margin)
            yield (
                f"| {probability:.1%} | {form[0]} | {form[1]} | {margin:.3f} | {name} ({len(group)}) | "
                f"{judged.admitted:.1%} | {judged.failed:.1%} | {judged.growth:.2f} |"
            )


def report_of_later_batches(kinds: Mapping[str, LaterBatches]) -> Iterator[str]:
    """Yield the lines of the page's second part."""
    yield from (
        "",
        AGAINST_THE_FIRST,
        "| later batches, against their run's first | number | above its peak | of these at 0.9 to 1.0 of its tokens |",
        "|---|---:|---:|---:|",
    )
    for name, kind in kinds.items():
        yield f"| {name} | {kind.number:,} | {kind.share_above:.1%} | {kind.above_near / kind.above:.1%} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--page", type=Path, help="where the figures are written, as Markdown")
    page = parser.parse_args().page
    text = "\n".join([*report(recordings()), *report_of_later_batches(later_batches())])
    print(text)
    if page:
        write_text_atomically(page, TITLE + text + "\n")


if __name__ == "__main__":
    main()
