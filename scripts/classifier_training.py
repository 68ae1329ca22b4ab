"""How the classifier of scripts/train_classifier.py learns: scikit-learn grows trees, which become plain arrays."""

from collections.abc import Iterator

import numpy as np
from classifier_data import Bools, Rows
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from trainauto.core.errors import InputError
from trainauto.tasks.text.batch_features import FEATURES
from trainauto.tasks.text.boosted_trees import BoostedTrees, Floats, from_fixed_point, in_fixed_point
from trainauto.tasks.text.spike_classifier import Calibration, SpikeClassifier, TrainingRange

SETTINGS = {"max_iter": 100, "learning_rate": 0.06, "max_leaf_nodes": 4, "min_samples_leaf": 100}
"""Small trees: 73 runs are few, and rows of a run are alike (docs/benchmarks/classifier.md has others)."""

PRIOR_RUNS = 50
"""How strongly the calibration is drawn to the trees' own probabilities: of some 50 runs, few have rows near any one
score, and a freer curve follows those few (docs/benchmarks/classifier.md has others)."""

PROBABILITIES = 1000
"""Steps of the staircase that stands for the calibration's curve; each has the probability of its upper end."""

INNER_FOLDS = 10

LENGTH_RATIOS = (*(2 ** (-step / 2) for step in range(12, 0, -1)), float(np.nextafter(1, 2)))
"""Ends of the bins in which runs are counted that had a batch of so many more texts than the first; the last bin is of
batches longer than the first, which nothing is learned of."""
FEW_RUNS = 3
"""So many runs (that share no measurements) must have had as many texts at such a length; fewer say nothing."""
ROOM = 1.5
"""What lies this factor beyond those runs, or beyond the first batches of all runs, is still taken to be like them."""


def grown(rows: Rows) -> HistGradientBoostingClassifier:
    """Return scikit-learn's model of the rows."""
    model = HistGradientBoostingClassifier(
        **SETTINGS, monotonic_cst=[follows for _, follows in FEATURES], early_stopping=False, random_state=0
    )
    with threadpool_limits(1, user_api="openmp"):  # trees are small: threads wait longer than they work
        return model.fit(rows.features().T, rows.spikes)


def as_arrays(model: HistGradientBoostingClassifier) -> BoostedTrees:
    """Return the trees of scikit-learn's model as arrays."""
    tables = [trees[0].nodes for trees in model._predictors]
    roots = np.cumsum([0, *(len(table) for table in tables[:-1])])
    starts = np.repeat(roots, [len(table) for table in tables])
    nodes = np.concatenate(tables)
    is_leaf = nodes["is_leaf"].astype(bool)
    own = np.arange(len(nodes))
    children = np.stack([nodes["left"] + starts, nodes["right"] + starts], axis=1).astype(np.int64)
    children[is_leaf] = own[is_leaf, None]
    return BoostedTrees(
        roots=roots.astype(np.int64),
        features=np.where(is_leaf, 0, nodes["feature_idx"]).astype(np.int64),
        thresholds=np.where(is_leaf, 0.0, nodes["num_threshold"]).astype(np.float64),
        children=children,
        values=np.where(is_leaf, in_fixed_point(nodes["value"]), 0),
        baseline=int(in_fixed_point(np.asarray(model._baseline_prediction).reshape(-1))[0]),
        depth=int(nodes["depth"].max()),
    )


def folds(groups: NDArray[np.str_], count: int, seed: int) -> Iterator[Bools]:
    """Yield for each fold which rows are kept out; a group is kept out whole."""
    names = np.unique(groups)
    fold_of = dict(
        zip(np.random.default_rng(seed).permutation(names).tolist(), np.arange(len(names)) % count, strict=True)
    )
    fold = np.array([fold_of[group] for group in groups.tolist()])
    for number in range(count):
        yield fold == number


def calibrated(
    scores: NDArray[np.int64], spikes: Bools, groups: NDArray[np.str_], prior_runs: float = PRIOR_RUNS
) -> Calibration:
    """Return what scores of runs that were kept out mean: a logistic curve (Platt, 1999), each run counting as one.

    No probability is below 1 / (runs + 1): that none of so many runs spiked at a score says no more of the next one
    (the bound of conformal risk control, Angelopoulos et al., 2022).

    Args:
        scores: of rows, each by trees that learned nothing from its run; shape (rows,).
        spikes: what became of them, shape (rows,).
        groups: their runs, shape (rows,).
        prior_runs: how strongly it is drawn to the trees' own probabilities.

    Raises:
        InputError: the higher the scores, the fewer spikes.
    """
    runs, run_of, rows_of = np.unique(groups, return_inverse=True, return_counts=True)
    offset, slope = logistic_curve(from_fixed_point(scores), spikes, 1 / rows_of[run_of], prior_runs)
    if slope <= 0:
        raise InputError("in runs that were kept out, batches of higher scores spike less: nothing was learned")
    steps = np.arange(-(-PROBABILITIES // (len(runs) + 1)), PROBABILITIES)
    ends = (np.log(steps / (PROBABILITIES - steps)) - offset) / slope
    return Calibration(in_fixed_point(ends), np.append(steps, PROBABILITIES) / PROBABILITIES)


def logistic_curve(scores: Floats, spikes: Bools, weights: Floats, prior_runs: float) -> tuple[float, float]:
    """Return offset and slope of the log-odds by score, by Newton's method; drawn to (0, 1), the scores themselves."""
    design = np.stack([np.ones_like(scores), scores])
    drawn_to = np.array([0.0, 1.0])
    curve = drawn_to.copy()
    for _ in range(_NEWTON_STEPS):
        likely = 1 / (1 + np.exp(-(curve @ design)))
        gradient = design @ (weights * (likely - spikes)) + 2 * prior_runs * (curve - drawn_to)
        curvature = (design * (weights * likely * (1 - likely))) @ design.T + 2 * prior_runs * np.eye(2)
        curve = curve - np.linalg.solve(curvature, gradient)
    return float(curve[0]), float(curve[1])


_NEWTON_STEPS = 20
"""Far more than it takes: the penalty makes each step small and safe."""


def training_range(rows: Rows) -> TrainingRange:
    """Return what the rows tell something about, by their sizes alone."""
    groups = rows.groups
    ratios = rows.batches.longest / rows.first.longest
    growth = rows.batches.samples / rows.first.samples
    bins = np.searchsorted(LENGTH_RATIOS, ratios, side="right")
    most = []
    for number in range(len(LENGTH_RATIOS) + 1):
        near = (np.abs(bins - number) <= 1) & (number < len(LENGTH_RATIOS))
        largest = sorted(
            (float(growth[near & (groups == group)].max()) for group in np.unique(groups[near]).tolist()), reverse=True
        )
        most.append(ROOM * largest[FEW_RUNS - 1] if len(largest) >= FEW_RUNS else 0.0)
    first = np.stack([rows.first.samples, rows.first.longest]).astype(np.float64)
    return TrainingRange(np.array(LENGTH_RATIOS), np.array(most), first.min(axis=1) / ROOM, first.max(axis=1) * ROOM)


def scores_kept_out(rows: Rows, seed: int = 0) -> NDArray[np.int64]:
    """Return the score of each row by trees that learned from the other inner folds."""
    scores, features = np.zeros(len(rows), np.int64), rows.features()
    for fold in folds(rows.groups, INNER_FOLDS, seed):
        scores[fold] = as_arrays(grown(rows.where(~fold))).scores(features[:, fold])
    return scores


def learned(rows: Rows, seed: int = 0) -> SpikeClassifier:
    """Return a classifier of cleaned rows, calibrated on runs that were kept out in turn.

    Raises:
        InputError: rows are of traces and of measurements; of one outcome alone; or of too few runs.
    """
    if len(rows.kinds) > 1:
        raise InputError("some runs are traced and others measured: learn from one kind, not from both together")
    groups = rows.groups
    if len(np.unique(groups)) < INNER_FOLDS or rows.spikes.all() or not rows.spikes.any():
        raise InputError(f"{INNER_FOLDS} runs that share no measurements are needed, with spikes and without")
    calibration = calibrated(scores_kept_out(rows, seed), rows.spikes, groups)
    return SpikeClassifier(
        as_arrays(grown(rows)), calibration, training_range(rows), tuple(sorted(set(rows.runs.tolist())))
    )
