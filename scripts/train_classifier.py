"""Learn the memory classifier from recorded batches, or say what it makes of others.

    python scripts/train_classifier.py [--data FILE.csv.gz ... --out FILE.npz]
    python scripts/train_classifier.py --evaluate FILE.csv.gz [--classifier FILE.npz]
    python scripts/train_classifier.py --cross-validate [--data FILE.csv.gz ...] [--repeats 10] [--first-seed 100]
    python scripts/train_classifier.py --cross-validate --write

The first writes the classifier that the loader takes with ``classifier=FILE.npz``; without arguments, the one that is
part of the package. ``--evaluate`` prints, for any table of the same columns (scripts/generate_training_data.py makes
them), what the classifier would have admitted at .01, .025 and .10, of the rows as they are and of the cleaned ones.
Runs that it has learned from are judged, too, and said. ``--cross-validate`` learns anew from parts of the runs and
judges the others; ``--write`` puts that into docs/benchmarks/classifier.md, below its line of ``---``, and draws its
plot.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from classifier_calibration import calibration_plot, foretold_and_seen, reliability
from classifier_data import Bools, Rows, cleaned, cleaning, kind_of, not_below_weights
from classifier_evaluation import (
    FIRST_SEED,
    PARTS,
    THRESHOLDS,
    KeptOut,
    admitted_by,
    best_token_rule,
    families_kept_out,
    is_known,
    outcome,
    relative_cost_admits,
    splits,
    table,
)
from classifier_tables import read_rows
from classifier_training import learned
from data_of_others import GENERATE_RUNS, missing

from trainauto.core.errors import InputError
from trainauto.core.files import write_text_atomically
from trainauto.tasks.text.spike_classifier import SHIPPED, SpikeClassifier

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PLOT = DOCS / "benchmarks" / "classifier.md", DOCS / "images" / "classifier_calibration.svg"
BELOW = "\n---\n\n"
"""What the page says was measured stands below this, and nothing else does."""


def said_of_cleaning(rows: Rows) -> Iterator[str]:
    """Yield what is dropped, and why."""
    kept, dropped = cleaning(rows)
    yield f"{len(rows)} rows of {len(set(rows.runs.tolist()))} runs, {kept.sum()} when cleaned:"
    yield from (f"- {reason.why}: {reason.rows} rows of {reason.runs} runs dropped" for reason in dropped)
    if undecided := not_below_weights(rows):
        at_least = "no batch takes less than the weights in float16: the memory may hold weights there"
        yield f"- in {len(undecided)} other runs {at_least}"


def evaluation(classifier: SpikeClassifier, rows: Rows) -> Iterator[str]:
    """Yield what a classifier makes of recorded rows, as they are and cleaned."""
    yield from said_of_cleaning(rows)
    if known_runs := runs_known_to(classifier, rows):
        yield f"It has learned from {known_runs} of these runs, or from copies: no judgement of those."
        yield "(--cross-validate judges classifiers that have not.)"
    learned_of = {kind_of(run) for run in classifier.runs}
    if rows.kinds != learned_of:
        kinds = " and ".join(sorted(learned_of)), " and ".join(sorted(rows.kinds))
        yield f"It has learned from {kinds[0]} runs, and these are {kinds[1]}: their memory is of another kind."
    for name, some in (("as they are", rows), ("cleaned", cleaned(rows))):
        if not len(some):
            yield f"\nRows {name}: none."
            continue
        admitted = {threshold: admitted_by(classifier, some, threshold) for threshold in THRESHOLDS}
        yield f"\nRows {name}; abstained from {1 - is_known(classifier, some).mean():.1%}:\n"
        yield from table(some, admitted)


def runs_known_to(classifier: SpikeClassifier, rows: Rows) -> int:
    """Return of how many runs it has learned: their own rows, or rows that they share with others."""
    groups = set(rows.groups[np.isin(rows.runs, classifier.runs)].tolist())
    return len(set(rows.runs[np.isin(rows.groups, sorted(groups))].tolist()))


class Judged(NamedTuple):
    """Random divisions of the runs.

    Attributes:
        apart: runs that share measurements are never divided.
        by_run: they are; a run recorded under several names is one.
    """

    apart: Sequence[KeptOut]
    by_run: Sequence[KeptOut]

    @classmethod
    def of(cls, rows: Rows, repeats: int, first_seed: int = FIRST_SEED) -> "Judged":
        """Learn from parts of the runs, and judge the others."""
        return cls(
            splits(rows, repeats, first_seed=first_seed),
            splits(rows, repeats, first_seed=first_seed, units=rows.recordings),
        )


AGAINST_OTHERS = """The first has two other rules, on the rows as they are.
One is the best constant number of padded tokens at an equal share of spikes (chosen on the same rows). The other is the
loader's relative cost (fitted to many of these rows).
"""


def validation(rows: Rows, both: Judged) -> Iterator[str]:
    """Yield what classifiers make of runs that they have not learned from."""
    judged, repeats = both.apart, len(both.apart)
    yield from said_of_cleaning(rows)
    kept, _ = cleaning(rows)
    units = len(set(rows.groups.tolist())), len(set(rows.recordings.tolist()))
    yield f"\nMedians of {repeats} random divisions into {PARTS} parts. *Kept together* never divides the {units[0]}"
    yield f"groups of runs that share measurements. *By run* divides {units[1]} runs, whether they share any or not."
    for division, of_units in (("Kept together", judged), ("By run", both.by_run)):
        for name, of in (("as they are", np.ones(len(rows), bool)), ("cleaned", kept)):
            yield f"\n{division}, rows {name}:\n"
            yield "| threshold | spikes among admitted | range | non-spikes admitted | range | texts | abstained |"
            yield "|---:|---:|---|---:|---|---:|---:|"
            yield from (_medians(rows, of_units, threshold, of) for threshold in THRESHOLDS)
    yield "\nAll following tables keep them together. " + AGAINST_OTHERS
    yield from against_others(rows, judged)
    yield "\nEach run when it was held out (the first division), rows as they are:\n"
    yield from table(rows, judged[0].admitted)
    yield "\nEach family when all of its runs were held out, rows as they are:\n"
    yield from of_families(rows)
    yield "\nRuns with the most abstentions, as a share of their batches (the first division):\n"
    yield from abstentions(rows, judged[0])
    yield f"\nPredicted and observed: medians of the {repeats} divisions, without abstentions:\n"
    yield from reliability(foretold_and_seen(rows, judged))


def of_families(rows: Rows) -> Iterator[str]:
    """Yield the table of families kept out, or why there is none."""
    if len(set(rows.families.tolist())) == 1:
        yield "All runs are of one family."
        return
    try:
        yield from table(rows, families_kept_out(rows).admitted, each=("family",))
    except InputError as error:
        yield f"The families that are left are too few to learn from: {error}."


def _medians(rows: Rows, judged: Sequence[KeptOut], threshold: float, of: Bools) -> str:
    made = [outcome(rows, split.admitted[threshold], of) for split in judged]
    shares, coverages = (np.array([getattr(o, name) for o in made]) for name in ("share_of_spikes", "coverage"))
    abstained = np.median([1 - split.known[of].mean() for split in judged])
    cells = [
        f"{threshold}", f"{np.median(shares):.2%}", f"{shares.min():.2%} to {shares.max():.2%}",
        f"{np.median(coverages):.1%}", f"{coverages.min():.1%} to {coverages.max():.1%}",
        f"{np.median([o.texts for o in made]):.2f}", f"{abstained:.1%}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def against_others(rows: Rows, judged: Sequence[KeptOut]) -> Iterator[str]:
    """Yield how many batches without a spike the classifier admits for each that other rules do; medians."""
    yield "| threshold | classifier | constant tokens | times as many | relative cost: spikes, non-spikes, texts |"
    yield "|---:|---:|---:|---:|---|"
    for threshold in THRESHOLDS:
        made = [outcome(rows, split.admitted[threshold]) for split in judged]
        constant = [best_token_rule(rows, of.share_of_spikes).calm_admitted for of in made]
        times = np.median([of.calm_admitted / max(1, rule) for of, rule in zip(made, constant, strict=True)])
        rival = outcome(rows, relative_cost_admits(rows, threshold))
        ours = np.median([of.calm_admitted for of in made])
        yield (
            f"| {threshold} | {ours:.0f} | {np.median(constant):.0f} | {times:.1f} "
            f"| {rival.share_of_spikes:.1%}, {rival.coverage:.1%}, {rival.texts:.2f} |"
        )


def abstentions(rows: Rows, judged: KeptOut) -> Iterator[str]:
    """Yield the runs with most abstentions, if it abstained in any."""
    shares = {run: float((~judged.known[rows.runs == run]).mean()) for run in dict.fromkeys(rows.runs.tolist())}
    most = sorted(shares.items(), key=lambda item: -item[1])[:5]
    yield from (f"- {run}: {share:.1%}" for run, share in most if share)


def write_page(said: str, plot: str) -> None:
    """Replace what was measured: the page's part below the line, and the plot."""
    kept, line, _ = PAGE.read_text(encoding="utf-8").partition(BELOW)
    write_text_atomically(PAGE, f"{kept}{line}{said}\n")
    write_text_atomically(PLOT, plot)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", type=Path, help="what is learned from, the recordings by default")
    parser.add_argument("--out", type=Path, help="where the classifier is written; needed with --data")
    parser.add_argument("--evaluate", type=Path, metavar="FILE.csv.gz", help="judge a classifier by these rows")
    parser.add_argument("--classifier", type=Path, help="the one that --evaluate judges, the package's by default")
    parser.add_argument("--cross-validate", action="store_true", help="judge the way of learning by runs kept out")
    parser.add_argument("--repeats", type=int, help="divisions of the runs into five parts, 10 by default")
    parser.add_argument("--first-seed", type=int, help=f"of the divisions, {FIRST_SEED} by default; each has the next")
    parser.add_argument("--write", action="store_true", help="write what --cross-validate says into the docs")
    asked = parser.parse_args(arguments)
    if problem := what_is_wrong(asked):
        parser.error(problem)
    try:
        run(asked)
    except InputError as error:
        parser.exit(2, f"{error}\n")


MODES = {"evaluate": {"classifier"}, "cross_validate": {"data", "repeats", "first_seed", "write"}}
"""What an argument goes with; without either of these, --data and --out."""


def what_is_wrong(asked: argparse.Namespace) -> str | None:
    """Return which arguments do not go together; nothing that is asked for is passed over in silence."""
    given = {name for name, value in vars(asked).items() if value not in (None, False)}
    modes = [mode for mode in MODES if mode in given] or ["learning"]
    left = given - set(modes) - MODES.get(modes[0], {"data", "out"})
    if len(modes) > 1 or left:
        mode = "learning" if modes == ["learning"] else f"--{modes[-1]}"
        return f"{mode} does not go with --{', --'.join(sorted(left or modes[:1]))}".replace("_", "-")
    if asked.repeats is not None and asked.repeats < 1:
        return "--repeats must be 1 or more"
    if modes == ["learning"] and asked.data and not asked.out:
        return "--data needs --out: without, the package's own classifier would be overwritten"
    if asked.write and asked.data:
        return "--write is for the recordings: the page is about those, not about --data"
    return None


def run(asked: argparse.Namespace) -> None:
    """Do what is asked for.

    Raises:
        InputError: a file cannot be used.
    """
    if asked.evaluate:
        print("\n".join(evaluation(SpikeClassifier.load(asked.classifier or SHIPPED), read_rows([asked.evaluate]))))
        return
    if not asked.data and (reason := missing(GENERATE_RUNS)):
        raise InputError(reason)
    rows = read_rows(asked.data or [GENERATE_RUNS])
    if asked.cross_validate:
        judged = Judged.of(rows, asked.repeats or 10, FIRST_SEED if asked.first_seed is None else asked.first_seed)
        said = "\n".join(validation(rows, judged))
        print(said)
        if asked.write:
            write_page(said, calibration_plot(foretold_and_seen(rows, judged.apart)))
        return
    print("\n".join(said_of_cleaning(rows)))
    classifier, out = learned(cleaned(rows)), asked.out or SHIPPED
    classifier.save(out)
    print(f"{out}: {len(classifier.trees.roots)} trees, {len(classifier.calibration.probabilities)} steps")


if __name__ == "__main__":
    main()
