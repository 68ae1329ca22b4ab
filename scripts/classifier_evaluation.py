"""What a classifier makes of recorded batches, per run and per family, beside rules that know less."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from classifier_data import Bools, Rows, cleaned
from classifier_training import folds, learned
from numpy.typing import NDArray

from trainauto.core.errors import InputError
from trainauto.tasks.text.costs import FORMS
from trainauto.tasks.text.spike_classifier import SpikeClassifier

THRESHOLDS = (0.01, 0.025, 0.1)
Learner = Callable[[Rows], SpikeClassifier]


@dataclass(frozen=True)
class Outcome:
    """Of an admission.

    Attributes:
        rows: batches.
        admitted: of them.
        spikes_admitted: of those.
        spikes: of all.
        texts: mean number of texts of the admitted, over that of the first batch.
    """

    rows: int
    admitted: int
    spikes_admitted: int
    spikes: int
    texts: float

    @property
    def share_of_spikes(self) -> float:
        """Among the admitted."""
        return self.spikes_admitted / self.admitted if self.admitted else 0.0

    @property
    def calm_admitted(self) -> int:
        """Admitted batches that do not spike."""
        return self.admitted - self.spikes_admitted

    @property
    def coverage(self) -> float:
        """Share of the batches that do not spike that are admitted."""
        calm = self.rows - self.spikes
        return self.calm_admitted / calm if calm else 0.0


def outcome(rows: Rows, admitted: Bools, of: Bools | None = None) -> Outcome:
    """Say what became of rows, or of some of them."""
    chosen = np.ones(len(rows), bool) if of is None else of
    taken, spikes = admitted & chosen, rows.spikes
    growth = (rows.batches.samples / rows.first.samples)[taken]
    return Outcome(
        int(chosen.sum()),
        int(taken.sum()),
        int((taken & spikes).sum()),
        int((chosen & spikes).sum()),
        float(growth.mean()) if len(growth) else 0.0,
    )


def admitted_by(classifier: SpikeClassifier, rows: Rows, threshold: float) -> Bools:
    """Return which rows a classifier admits; an abstention admits nothing."""
    return classifier.admits(rows.first, rows.batches, rows.max_input_length, threshold)


def is_known(classifier: SpikeClassifier, rows: Rows) -> Bools:
    """Return on which rows it does not abstain."""
    return classifier.range.holds(rows.first, rows.batches)


def relative_cost_admits(rows: Rows, threshold: float) -> Bools:
    """Return which rows the loader's relative cost admits: fitted to all recordings, these among them."""
    form = FORMS[threshold]
    x, y = rows.first, rows.batches
    relative = (
        y.samples * (form.tokens + y.longest) ** form.power / (x.samples * (form.tokens + x.longest) ** form.power)
    )
    return relative * form.margin <= 1


def best_token_rule(rows: Rows, share_of_spikes: float) -> Outcome:
    """Return the best of the rules "at most so many times the first batch's padded tokens", no more of which spike.

    The factor is chosen on the rows themselves, which is in the rule's favour.
    """
    relative = rows.batches.samples * rows.batches.longest / (rows.first.samples * rows.first.longest)
    order = np.argsort(relative, kind="stable")
    spikes, counts = np.cumsum(rows.spikes[order]), np.arange(1, len(rows) + 1)
    last_of_equals = np.append(np.diff(relative[order]) > 0, True)
    allowed = last_of_equals & (spikes / counts <= share_of_spikes)
    if not allowed.any():
        return outcome(rows, np.zeros(len(rows), bool))
    return outcome(rows, relative <= relative[order][np.flatnonzero(allowed)[-1]])


@dataclass(frozen=True, eq=False)
class KeptOut:
    """What classifiers made of rows that they had not learned from.

    Attributes:
        admitted: by threshold, shape (rows,).
        known: on which rows they did not abstain, shape (rows,).
        probabilities: of a spike, shape (rows,).
    """

    admitted: dict[float, Bools]
    known: Bools
    probabilities: NDArray[np.float64]


def kept_out(rows: Rows, parts: Iterator[Bools], learn: Learner = learned) -> KeptOut:
    """Learn from all runs but a part's, cleaned, and judge all rows of that part, for every part."""
    admitted = {threshold: np.zeros(len(rows), bool) for threshold in THRESHOLDS}
    known, probabilities = np.zeros(len(rows), bool), np.zeros(len(rows))
    for part in parts:
        classifier, judged = learn(cleaned(rows.where(~part))), rows.where(part)
        for threshold in THRESHOLDS:
            admitted[threshold][part] = admitted_by(classifier, judged, threshold)
        known[part] = is_known(classifier, judged)
        probabilities[part] = classifier.probability(judged.first, judged.batches, judged.max_input_length)
    return KeptOut(admitted, known, probabilities)


FIRST_SEED = 100
"""Of the divisions that the page tells of; others show what choices made by looking at these are worth."""


PARTS = 5
"""Of a division of the runs."""


def splits(
    rows: Rows,
    repeats: int,
    learn: Learner = learned,
    first_seed: int = FIRST_SEED,
    units: NDArray[np.str_] | None = None,
) -> list[KeptOut]:
    """Return what comes of random divisions of the runs into parts.

    Args:
        rows: of all runs.
        repeats: how many divisions.
        learn: makes a classifier of cleaned rows.
        first_seed: of the first division; each has the next one.
        units: which rows stay together, shape (rows,); by default those of runs that share measurements.

    Raises:
        InputError: there are too few runs.
    """
    units = rows.groups if units is None else units
    if len(np.unique(units)) < PARTS:
        raise InputError(f"{PARTS} runs that share no measurements are needed to keep some out, and many more to learn")
    return [kept_out(rows, folds(units, PARTS, first_seed + each), learn) for each in range(repeats)]


def families_kept_out(rows: Rows, learn: Learner = learned) -> KeptOut:
    """Return what comes of learning without one kind of model, and judging it."""
    return kept_out(rows, (rows.families == family for family in sorted(set(rows.families.tolist()))), learn)


def cell(of: Outcome) -> str:
    """Return what was admitted at a threshold."""
    if not of.admitted:
        return "none"
    share = f"{of.share_of_spikes:.1%} ({of.spikes_admitted}/{of.admitted})"
    return f"{share}, {of.coverage:.1%}, {of.texts:.2f}"


def table(rows: Rows, admitted: dict[float, Bools], each: Sequence[str] = ("family", "run")) -> Iterator[str]:
    """Yield a table of all rows, of each family and of each run."""
    yield "Cells: spikes among the admitted, admitted share of the non-spikes, mean texts over the first batch's.\n"
    yield f"| rows of | rows | spikes | {' | '.join(f'at {threshold}' for threshold in admitted)} |"
    yield f"|---|---:|---:|{'---|' * len(admitted)}"
    parts: list[tuple[str, Bools]] = [("all", np.ones(len(rows), bool))]
    if "family" in each:
        parts += [(family, rows.families == family) for family in sorted(set(rows.families.tolist()))]
    if "run" in each:
        parts += [(run, rows.runs == run) for run in dict.fromkeys(rows.runs.tolist())]
    for name, part in parts:
        made = [outcome(rows, admitted[threshold], part) for threshold in admitted]
        yield f"| {name} | {made[0].rows} | {made[0].spikes} | {' | '.join(map(cell, made))} |"
