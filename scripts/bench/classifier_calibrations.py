"""Ways to calibrate the memory classifier, beside the one it has: the tables of docs/benchmarks/classifier.md.

    python scripts/bench/classifier_calibrations.py [--repeats 10] [--first-seed 100]

Every way is given the same scores of the inner folds, and judged by the same divisions of the runs, as
``scripts/train_classifier.py --cross-validate`` makes them. Prints three tables: of probabilities; of thresholds of
scores that are learned in place of probabilities; and what the order of scores allows at best, with the threshold
chosen on the very rows that are judged. Takes a few minutes.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

sys.path.append(str(Path(__file__).parents[1]))
from classifier_data import Bools, Rows, cleaned
from classifier_evaluation import FIRST_SEED, THRESHOLDS, outcome
from classifier_tables import read_rows
from classifier_training import PRIOR_RUNS, as_arrays, calibrated, folds, grown, scores_kept_out, training_range
from data_of_others import GENERATE_RUNS

from trainauto.tasks.text.boosted_trees import from_fixed_point, in_fixed_point

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the runs that is kept out, and what is learned from without it.

    Attributes:
        rows: which are kept out, shape (all rows,).
        scores: theirs, shape (rows kept out,).
        known: on which of them the classifier does not abstain.
        inner: scores of what is learned from, each run kept out in turn; shape (learned from,).
        spikes: what became of those.
        run_of: number of the run of each.
    """

    rows: Bools
    scores: Floats
    known: Bools
    inner: Floats
    spikes: Bools
    run_of: NDArray[np.int64]

    @property
    def runs(self) -> int:
        """How many were learned from."""
        return int(self.run_of.max()) + 1

    @property
    def by_run(self) -> Floats:
        """Weights by which each run counts as one."""
        return 1 / np.bincount(self.run_of)[self.run_of]


def part_of(rows: Rows, kept_out: Bools) -> Part:
    """Learn from all runs but a part's."""
    learned_from, judged = cleaned(rows.where(~kept_out)), rows.where(kept_out)
    scores = as_arrays(grown(learned_from)).scores(judged.features())
    known = training_range(learned_from).holds(judged.first, judged.batches)
    inner = from_fixed_point(scores_kept_out(learned_from))
    run_of = np.unique(learned_from.groups, return_inverse=True)[1]
    return Part(kept_out, from_fixed_point(scores), known, inner, learned_from.spikes, run_of)


Curve = Callable[[Floats], Floats]


def own(scores: Floats) -> Floats:
    """Return the trees' own probabilities."""
    return 1 / (1 + np.exp(-scores))


def shipped(part: Part, prior_runs: float = PRIOR_RUNS) -> Curve:
    """Return the calibration that the classifier has, or one drawn otherwise to the trees' own probabilities."""
    calibration = calibrated(in_fixed_point(part.inner), part.spikes, part.run_of.astype(str), prior_runs)
    return lambda scores: calibration.probability(in_fixed_point(scores))


def floored(part: Part) -> Curve:
    """Return the trees' own probabilities, as far as the runs can vouch for them."""
    return lambda scores: np.maximum(own(scores), 1 / (part.runs + 1))


def logistic(part: Part, *, by_run: bool, beta: bool = False) -> Curve:
    """Return Platt's calibration, or beta calibration (Kull, Silva Filho & Flach, 2017)."""

    def design(scores: Floats) -> Floats:
        likely = own(scores)
        return np.stack([np.log(likely), -np.log1p(-likely)], axis=1) if beta else scores[:, None]

    weights = 1000 * part.by_run if by_run else None
    model = LogisticRegression(C=1e6).fit(design(part.inner), part.spikes, weights)
    return lambda scores: model.predict_proba(design(scores))[:, 1]


def isotonic(part: Part, *, by_run: bool) -> Curve:
    """Return the rising steps nearest to what spiked."""
    model = IsotonicRegression(out_of_bounds="clip")
    model.fit(part.inner, part.spikes, part.by_run if by_run else None)
    return lambda scores: model.predict(scores)


CURVES: Mapping[str, Callable[[Part], Curve]] = {
    "**logistic, by run, drawn to the trees' (shipped)**": shipped,
    "the same, drawn as 5 runs would": partial(shipped, prior_runs=5),
    "as 20": partial(shipped, prior_runs=20),
    "as 200": partial(shipped, prior_runs=200),
    "the trees' own probabilities, none below 1 / (runs + 1)": floored,
    "the trees' own probabilities": lambda _: own,
    "logistic, by run (Platt)": partial(logistic, by_run=True),
    "logistic, by row": partial(logistic, by_run=False),
    "beta, by run": partial(logistic, by_run=True, beta=True),
    "isotonic, by run": partial(isotonic, by_run=True),
    "isotonic, by row": partial(isotonic, by_run=False),
}


def largest_share(part: Part, threshold: float, *, by_run: bool) -> float:
    """Return the largest score up to which the share of spikes is at most the threshold."""
    order = np.argsort(part.inner, kind="stable")
    weights = part.by_run[order] if by_run else np.ones(len(order))
    shares = np.cumsum(weights * part.spikes[order]) / np.cumsum(weights)
    allowed = np.flatnonzero(shares <= threshold)
    return float(part.inner[order[allowed[-1]]]) if len(allowed) else -np.inf


def largest_risk(part: Part, threshold: float, is_allowed: Callable[[Floats, Floats, Floats, float], bool]) -> float:
    """Return the largest of 200 scores that is allowed, by admitted spikes, admitted rows and rows of each run."""
    best, rows = -np.inf, np.bincount(part.run_of, minlength=part.runs)
    for score in np.quantile(part.inner, np.linspace(0, 1, 201), method="lower"):
        is_admitted = part.inner <= score
        spikes = np.bincount(part.run_of[is_admitted & part.spikes], minlength=part.runs)
        if is_allowed(spikes, np.bincount(part.run_of[is_admitted], minlength=part.runs), rows, threshold):
            best = float(score)
    return best


def conformal(of: str) -> Callable[[Floats, Floats, Floats, float], bool]:
    """Return conformal risk control: the mean risk of the runs, one more counted with the risk 1."""

    def is_allowed(spikes: Floats, admitted: Floats, rows: Floats, threshold: float) -> bool:
        risk = spikes / np.maximum(admitted if of == "admitted" else rows, 1)
        return float((risk.sum() + 1) / (len(risk) + 1)) <= threshold

    return is_allowed


def most_runs(spikes: Floats, admitted: Floats, _: Floats, threshold: float) -> bool:
    """Return whether nine of ten runs have at most that share, of three that admit any at least."""
    shares = (spikes / np.maximum(admitted, 1))[admitted > 0]
    return len(shares) >= 3 and float(np.quantile(shares, 0.9)) <= threshold


SCORES: Mapping[str, Callable[[Part, float], float]] = {
    "largest whose share of spikes is at most the threshold, by row": partial(largest_share, by_run=False),
    "the same, each run counting as one": partial(largest_share, by_run=True),
    "conformal risk control, admitted spikes of a run's rows": partial(largest_risk, is_allowed=conformal("rows")),
    "conformal risk control, spikes among a run's admitted": partial(largest_risk, is_allowed=conformal("admitted")),
    "nine of ten runs have at most that share": partial(largest_risk, is_allowed=most_runs),
}

Division = list[Part]


def in_medians(rows: Rows, admitted: list[Bools]) -> str:
    """Return share of spikes and coverage in the median of the divisions."""
    made = [outcome(rows, each) for each in admitted]
    share, coverage = (float(np.median([getattr(of, name) for of in made])) for name in ("share_of_spikes", "coverage"))
    return f"{share:.1%}, {coverage:.1%}" if coverage else "none admitted"


def of_probabilities(rows: Rows, divisions: list[Division]) -> Iterator[str]:
    """Yield the table of calibrations."""
    yield "| calibration | 0.01 | 0.025 | 0.1 | Brier score | gap |"
    yield "|---|---|---|---|---:|---:|"
    known = [joined(division, lambda part: part.known) for division in divisions]
    for name, fit in CURVES.items():
        foretold = [joined(division, lambda part, fit=fit: fit(part)(part.scores)) for division in divisions]
        both = list(zip(foretold, known, strict=True))
        cells = [in_medians(rows, [(said <= threshold) & of for said, of in both]) for threshold in THRESHOLDS]
        brier = np.mean([((said - rows.spikes)[of] ** 2).mean() for said, of in both])
        gap = np.mean([gap_in_the_middle(said[of], rows.spikes[of]) for said, of in both])
        yield f"| {name} | {' | '.join(cells)} | {brier:.4f} | {gap:.1%} |"


def gap_in_the_middle(foretold: Floats, spikes: Bools) -> float:
    """Return the mean distance between foretold and seen, over rows of which 10 to 90 % was foretold."""
    middle = (foretold >= 0.1) & (foretold < 0.9)
    foretold, spikes = foretold[middle], spikes[middle]
    bins = np.searchsorted((0.2, 0.4, 0.6, 0.8), foretold, side="right")
    rows = np.bincount(bins)
    off = np.abs(np.bincount(bins, foretold) - np.bincount(bins, spikes))
    return float(off.sum() / rows.sum())


def of_scores(rows: Rows, divisions: list[Division]) -> Iterator[str]:
    """Yield the table of learned thresholds."""
    yield "| threshold of scores | 0.01 | 0.025 | 0.1 |"
    yield "|---|---|---|---|"
    for name, pick in SCORES.items():
        cells = []
        for threshold in THRESHOLDS:

            def admitted(part: Part, pick: Callable[..., float] = pick, threshold: float = threshold) -> Bools:
                return (part.scores <= pick(part, threshold)) & part.known

            cells.append(in_medians(rows, [joined(division, admitted) for division in divisions]))
        yield f"| {name} | {' | '.join(cells)} |"


def of_order(rows: Rows, divisions: list[Division]) -> Iterator[str]:
    """Yield the table of what the order of scores allows, where first batches of few texts are left out."""
    yield "| texts of the first batch, at least | admitted at 0.01 at best | at 0.025 |"
    yield "|---:|---:|---:|"
    for least in (1, 2, 4, 8, 16):
        shares = []
        for threshold in THRESHOLDS[:2]:
            best = []
            for division in divisions:
                scores = joined(division, lambda part: part.scores)
                among = joined(division, lambda part: part.known) & (rows.first.samples >= least)
                order = np.flatnonzero(among)[np.argsort(scores[among], kind="stable")]
                spikes = np.cumsum(rows.spikes[order])
                counts = np.arange(1, len(order) + 1)
                best.append(int(np.max((counts - spikes)[spikes <= threshold * counts], initial=0)))
            shares.append(f"{np.median(best) / (~rows.spikes).sum():.1%}")
        yield f"| {least} | {' | '.join(shares)} |"


def joined(division: Division, of: Callable[[Part], NDArray[np.generic]]) -> NDArray[np.generic]:
    """Return values of all rows from those of each part."""
    values = [of(part) for part in division]
    result = np.zeros(len(division[0].rows), values[0].dtype)
    for part, some in zip(division, values, strict=True):
        result[part.rows] = some
    return result


def tables(repeats: int, first_seed: int = FIRST_SEED) -> tuple[Iterator[str], ...]:
    """Learn from parts of the runs, and return the three tables."""
    rows = read_rows([GENERATE_RUNS])
    seeds = range(first_seed, first_seed + repeats)
    divisions = [[part_of(rows, kept_out) for kept_out in folds(rows.groups, 5, seed)] for seed in seeds]
    return of_probabilities(rows, divisions), of_scores(rows, divisions), of_order(rows, divisions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10, help="divisions of the runs into five parts")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the divisions; each has the next one")
    asked = parser.parse_args()
    print("\n\n".join("\n".join(table) for table in tables(asked.repeats, asked.first_seed)))


if __name__ == "__main__":
    main()
