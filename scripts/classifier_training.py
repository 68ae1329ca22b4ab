"""How the classifier of scripts/train_classifier.py learns: scikit-learn grows trees, which become plain arrays."""

from collections.abc import Iterator

import numpy as np
from classifier_data import Bools, Rows
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.isotonic import IsotonicRegression

from trainauto.tasks.text.batch_features import FEATURES
from trainauto.tasks.text.boosted_trees import BoostedTrees, in_fixed_point
from trainauto.tasks.text.spike_classifier import Calibration, SpikeClassifier, TrainingRange

SETTINGS = {"max_iter": 100, "learning_rate": 0.06, "max_leaf_nodes": 4, "min_samples_leaf": 100}
"""Small trees: 73 runs are few, and rows of a run are alike (docs/classifier.md has what others gave)."""

STEP_ROWS = 500
"""Of a step of the calibration, at least: few rows without a spike say nothing of runs that were kept out. Of little
data it is a twentieth."""

UNSEEN_RUNS = 0.25
"""So many runs, half of whose rows spike, are added to each step of the calibration."""

INNER_FOLDS = 10

LENGTH_RATIOS = (*(2 ** (-step / 2) for step in range(12, 0, -1)), float(np.nextafter(1, 2)))
"""Ends of the bins in which runs are counted that had a batch of so many more texts than the first; the last bin is of
batches longer than the first, which nothing is learned of."""
FEW_RUNS = 3
"""So many runs (of different first batches) must have had as many texts at such a length; fewer say nothing."""
ROOM = 1.5
"""What lies this factor beyond those runs, or beyond the first batches of all runs, is still taken to be like them."""


def grown(rows: Rows) -> HistGradientBoostingClassifier:
    """Return scikit-learn's model of the rows."""
    model = HistGradientBoostingClassifier(
        **SETTINGS, monotonic_cst=[follows for _, follows in FEATURES], early_stopping=False, random_state=0
    )
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


def calibrated(scores: NDArray[np.int64], spikes: Bools, groups: NDArray[np.str_]) -> Calibration:
    """Return the rising staircase nearest to what spiked, of steps of at least :data:`STEP_ROWS` rows.

    Rows of a run spike together, and a step has rows of few runs: that none spiked in those says little of the next
    run. So :data:`UNSEEN_RUNS` are counted as well, as long as the others are on average.
    """
    order = np.argsort(scores, kind="stable")
    scores, spikes, groups = scores[order], spikes[order], groups[order]
    last_of_equals = np.append(np.flatnonzero(np.diff(scores) > 0), len(scores) - 1)
    least, ends = min(STEP_ROWS, len(scores) // 20), list[int]()
    for end in (last_of_equals + 1).tolist():
        if end - (ends[-1] if ends else 0) >= least or end == len(scores):
            ends.append(end)
    if len(ends) > 1 and ends[-1] - ends[-2] < least:
        del ends[-2]
    counts = np.diff(ends, prepend=0)
    steps = [slice(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]
    runs = np.array([len(np.unique(groups[step])) for step in steps])
    shares = (np.array([spikes[step].mean() for step in steps]) * runs + UNSEEN_RUNS / 2) / (runs + UNSEEN_RUNS)
    fitted = IsotonicRegression(y_min=0, y_max=1).fit_transform(np.arange(len(ends)), shares, sample_weight=counts)
    last_of_step = np.flatnonzero(np.diff(fitted) > 0)
    return Calibration(scores[np.array(ends)[last_of_step] - 1], np.append(fitted[last_of_step], fitted[-1]))


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


def learned(rows: Rows, seed: int = 0) -> SpikeClassifier:
    """Return a classifier of cleaned rows, calibrated on runs that were kept out in turn.

    Raises:
        ValueError: rows are of traces and of measurements; of one outcome alone; or of too few runs.
    """
    if len(rows.kinds) > 1:
        raise ValueError("some runs are traced and others measured: learn from one kind, not from both together")
    groups = rows.groups
    if len(np.unique(groups)) < INNER_FOLDS or rows.spikes.all() or not rows.spikes.any():
        raise ValueError(f"{INNER_FOLDS} runs of different first batches are needed, with spikes and without")
    kept_out = np.zeros(len(rows), np.int64)
    features = rows.features()
    for fold in folds(groups, INNER_FOLDS, seed):
        kept_out[fold] = as_arrays(grown(rows.where(~fold))).scores(features[:, fold])
    calibration = calibrated(kept_out, rows.spikes, groups)
    return SpikeClassifier(
        as_arrays(grown(rows)), calibration, training_range(rows), tuple(sorted(set(rows.runs.tolist())))
    )
