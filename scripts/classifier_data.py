"""Recorded batches of ``generate`` as scripts/train_classifier.py cleans and divides them.

A row is a batch of a run: its sizes, the memory it took (MiB above what was held before it), and the same of the run's
first batch. The family of the model is what ``run`` begins with behind its folder; recorded names are not reliable.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainauto.tasks.text.batch_features import BatchSizes, features_of

SPIKE = 0.9
"""A batch spikes if it takes more than this share of what its run's first batch took."""

SHARED = 0.05
"""Runs of which more than this share of one's batches are batches of the other are never divided: texts that both have,
cut to two lengths, are measured once and recorded twice."""

WEIGHTS_MIB = {"alma": 12_852, "nllb": 1_173, "nmt": 147}
"""What weights of these families take in float16: of 6.74, 0.615 and 0.077 thousand million."""
NOTICEABLE_WEIGHTS = 0.25
"""Weights of a smaller share of a run's median batch cannot be told from batches that take more."""
OFF_FAMILY = 5.0
"""A run of another family holds them if it takes so many times more a weighted token than its family does."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Rows:
    """Recorded batches; every field has one entry a batch.

    Attributes:
        runs: names of their runs.
        first: the first batch of the run.
        batches: the batch.
        max_input_length: to which its texts were cut.
        peaks_mib: what the batch took.
        first_peaks_mib: what the first one took.
        groups: runs that are kept together when runs are divided, see :func:`groups_of`.
    """

    runs: NDArray[np.str_]
    first: BatchSizes
    batches: BatchSizes
    max_input_length: NDArray[np.int64]
    peaks_mib: NDArray[np.float64]
    first_peaks_mib: NDArray[np.float64]
    groups: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def spikes(self) -> Bools:
        """Whether each took more than its share of the first batch's peak."""
        return self.peaks_mib / self.first_peaks_mib > SPIKE

    @property
    def families(self) -> NDArray[np.str_]:
        """The kind of model of each."""
        return np.array([family_of(run) for run in self.runs])

    @property
    def kinds(self) -> set[str]:
        """Of runs: ``traced``, or ``measured`` as those of others are."""
        return {kind_of(run) for run in set(self.runs.tolist())}

    @property
    def recordings(self) -> NDArray[np.str_]:
        """Runs, of which those of one first batch are one, recorded under several names."""
        return recordings_of(self.runs, self.first)

    def features(self) -> NDArray[np.float64]:
        """Return what the classifier looks at, shape (features, rows)."""
        return features_of(self.first, self.batches, self.max_input_length)

    def where(self, kept: Bools) -> "Rows":
        """Return some of the rows."""
        return Rows(
            self.runs[kept],
            BatchSizes(*(field[kept] for field in self.first)),
            BatchSizes(*(field[kept] for field in self.batches)),
            self.max_input_length[kept],
            self.peaks_mib[kept],
            self.first_peaks_mib[kept],
            self.groups[kept],
        )


class Dropped(NamedTuple):
    """Rows that are left out.

    Attributes:
        why: the reason.
        rows: how many.
        runs: of how many runs.
    """

    why: str
    rows: int
    runs: int


def kind_of(run: str) -> str:
    """Return how a run came to be: ``traced``, or ``measured``, as those of others were."""
    return "traced" if run.split("/")[0] == "traced" else "measured"


def recordings_of(runs: NDArray[np.str_], first: BatchSizes) -> NDArray[np.str_]:
    """Return names that are equal where the first batch is: one run, recorded under several names."""
    fields = zip(runs.tolist(), *(field.tolist() for field in first), strict=True)
    return np.array(["/".join([folder_of(run), family_of(run), *map(str, sizes)]) for run, *sizes in fields])


def groups_of(
    runs: NDArray[np.str_], recordings: NDArray[np.str_], batches: BatchSizes, peaks_mib: NDArray[np.float64]
) -> NDArray[np.str_]:
    """Return names of groups of runs that must not be divided: of one first batch, or that share measurements.

    Args:
        runs: shape (rows,), as are all.
        recordings: equal for runs of one first batch.
        batches: sizes; a measurement is these and the peak.
        peaks_mib: what they took.
    """
    group = dict(zip(runs.tolist(), recordings.tolist(), strict=True))
    measured: dict[str, set[tuple[float, ...]]] = {run: set() for run in group}
    for run, *measurement in zip(runs.tolist(), *(field.tolist() for field in (*batches, peaks_mib)), strict=True):
        measured[run].add(tuple(measurement))
    for run, other in combinations(sorted(group), 2):
        shared = len(measured[run] & measured[other])
        if shared > SHARED * min(len(measured[run]), len(measured[other])):
            joined, into = group[other], group[run]
            group = {name: into if of == joined else of for name, of in group.items()}
    return np.array([group[run] for run in runs.tolist()])


def family_of(run: str) -> str:
    """Return the kind of model of a run."""
    return run.split("/")[-1].split("_")[0]


def folder_of(run: str) -> str:
    """Return what stands before the name of a run, such as ``traced`` or ``v1``; empty where nothing does."""
    return run.rpartition("/")[0]


def cleaned(rows: Rows) -> Rows:
    """Return the rows that say something about a decision; see :func:`cleaning`."""
    return rows.where(cleaning(rows)[0])


def cleaning(rows: Rows) -> tuple[Bools, list[Dropped]]:
    """Return which rows say something about a decision, and what is dropped.

    Whether a batch spiked plays no part. Peaks do where weights are looked for, and where the first batch is told from
    others of its sizes; another batch than the first is never dropped for its own.
    """
    first, batches = rows.first, rows.batches
    same_sizes = np.all([x == y for x, y in zip(first, batches, strict=True)], axis=0)
    reasons = {
        "the run's memory holds the model's weights": holds_weights(rows),
        "longer than the run's first batch: ours begin with the longest texts": batches.longest > first.longest,
        "the first batch itself, which is not predicted": same_sizes & (rows.peaks_mib == rows.first_peaks_mib),
        "recorded twice: equal in all but the length that texts are cut to": _repeated(rows),
    }
    kept, dropped = np.ones(len(rows), bool), []
    for why, is_so in reasons.items():
        now = kept & is_so
        dropped.append(Dropped(why, int(now.sum()), len(set(rows.runs[now].tolist()))))
        kept &= ~is_so
    return kept, dropped


def holds_weights(rows: Rows) -> Bools:
    """Return which rows are of runs whose memory holds the model's weights, as far as that can be seen.

    Such runs must not be mixed with others: relative to a first batch that holds the weights, little spikes. A run
    of which some batch takes less than the weights does not hold them. Of the others those are taken to, of which the
    weights would be a noticeable part and which take that much more a weighted token than their family does.
    """
    level, may_hold = levels(rows), not_below_weights(rows)

    def holds(run: str) -> bool:
        if level[run] > OFF_FAMILY:
            return True
        share = _weights_mib(run) / float(np.median(rows.peaks_mib[rows.runs == run]))
        return run in may_hold and share > NOTICEABLE_WEIGHTS and level[run] > 1 + NOTICEABLE_WEIGHTS

    of_run = {run: holds(run) for run in level}
    return np.array([of_run[run] for run in rows.runs.tolist()])


def not_below_weights(rows: Rows) -> list[str]:
    """Return the runs all of whose batches take as much as the weights would, or more."""
    runs = dict.fromkeys(rows.runs.tolist())
    return [run for run in runs if rows.peaks_mib[rows.runs == run].min() >= _weights_mib(run)]


def _weights_mib(run: str) -> float:
    """Return what the weights take; infinitely much where that is not known, or known to be left out: in own tables."""
    is_own = run.split("/")[0] in ("traced", "measured")
    return np.inf if is_own else WEIGHTS_MIB.get(family_of(run), np.inf)


def levels(rows: Rows) -> dict[str, float]:
    """Return for each run how many times more it takes a weighted token than the median run of its family.

    A weighted token is one of samples x (96 + longest) ** 0.7, which memory of batches alone follows to a factor of 2.
    """
    each = rows.peaks_mib / rows.batches.samples / (96 + rows.batches.longest) ** 0.7
    level = {run: float(np.median(each[rows.runs == run])) for run in dict.fromkeys(rows.runs.tolist())}
    kind = {run: (folder_of(run), family_of(run)) for run in level}
    usual = {of: float(np.median([level[run] for run in level if kind[run] == of])) for of in set(kind.values())}
    return {run: value / usual[kind[run]] for run, value in level.items()}


def _repeated(rows: Rows) -> Bools:
    columns = [*rows.first, *rows.batches, rows.first_peaks_mib, rows.peaks_mib]
    _, firsts = np.unique(np.stack(columns, axis=1), axis=0, return_index=True)
    repeated = np.ones(len(rows), bool)
    repeated[firsts] = False
    return repeated
