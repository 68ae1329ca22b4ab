"""Recorded batches of ``generate`` as scripts/train_classifier.py reads and cleans them.

A row is a batch of a run: its sizes, the memory it took (MiB above what was held before it), and the same of the run's
first batch. The family of the model is what ``run`` begins with behind its folder; recorded names are not reliable.
"""

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainauto.tasks.text.batch_features import BatchSizes, features_of

COLUMNS = (
    "run", "model_name", "max_input_length", "gpu_memory_mib", "total_tokens", "total_paddings",
    "inference_batch_size", "top_token_size", "first_gpu_memory_peak_mib", "first_batch_size", "first_total_tokens",
    "first_total_paddings", "first_top_token_size",
)  # fmt: skip

SPIKE = 0.9
"""A batch spikes if it takes more than this share of what its run's first batch took (B26)."""

HOLDS_WEIGHTS = 5.0
"""A run holds the weights if it takes so many times more a weighted token than its family does; see :func:`levels`."""

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
    """

    runs: NDArray[np.str_]
    first: BatchSizes
    batches: BatchSizes
    max_input_length: NDArray[np.int64]
    peaks_mib: NDArray[np.float64]
    first_peaks_mib: NDArray[np.float64]

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
        """Folders that runs lie in: ``traced``, ``measured``, or those of others, which are measured."""
        return {run.split("/")[0] if run.split("/")[0] == "traced" else "measured" for run in set(self.runs.tolist())}

    @property
    def groups(self) -> NDArray[np.str_]:
        """Runs that are kept together when runs are divided: one first batch, recorded under several names."""
        fields = zip(self.runs, self.first.samples, self.first.longest, self.first.tokens, strict=True)
        return np.array([f"{r.split('/')[0]}/{family_of(r)}/{s}/{longest}/{t}" for r, s, longest, t in fields])

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


def family_of(run: str) -> str:
    """Return the kind of model of a run."""
    return run.split("/")[-1].split("_")[0]


def read_rows(paths: Sequence[Path]) -> Rows:
    """Read tables of the columns above.

    Raises:
        ValueError: a column is missing, tokens and paddings are not samples x longest, or there are no rows.
    """
    lines: list[dict[str, str]] = []
    for path in paths:
        with gzip.open(path, "rt", newline="") as table:
            some = list(csv.DictReader(table))
        missing = [name for name in COLUMNS if some and name not in some[0]]
        if missing or not some:
            raise ValueError(f"{path}: no column {', '.join(missing)}" if missing else f"{path}: no rows")
        lines += some

    def numbers(name: str) -> NDArray[np.int64]:
        return np.array([int(line[name]) for line in lines])

    first = BatchSizes(*map(numbers, ("first_batch_size", "first_top_token_size", "first_total_tokens")))
    batches = BatchSizes(*map(numbers, ("inference_batch_size", "top_token_size", "total_tokens")))
    same = (first.paddings == numbers("first_total_paddings")) & (batches.paddings == numbers("total_paddings"))
    if not same.all():
        raise ValueError(f"row {int(np.argmin(same)) + 1}: tokens and paddings are not samples x longest")
    peaks, first_peaks = (
        np.array([float(line[name]) for line in lines]) for name in ("gpu_memory_mib", "first_gpu_memory_peak_mib")
    )
    runs = np.array([line["run"] for line in lines])
    return Rows(runs, first, batches, numbers("max_input_length"), peaks, first_peaks)


def cleaned(rows: Rows) -> Rows:
    """Return the rows that say something about a decision; see :func:`cleaning`."""
    return rows.where(cleaning(rows)[0])


def cleaning(rows: Rows) -> tuple[Bools, list[Dropped]]:
    """Return which rows say something about a decision, and what is dropped; no label is looked at."""
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


def levels(rows: Rows) -> dict[str, float]:
    """Return for each run how many times more it takes a weighted token than the median run of its family.

    A weighted token is one of samples x (96 + longest) ** 0.7, which memory of batches alone follows to a factor of 2.
    """
    each = rows.peaks_mib / rows.batches.samples / (96 + rows.batches.longest) ** 0.7
    level = {run: float(np.median(each[rows.runs == run])) for run in dict.fromkeys(rows.runs.tolist())}
    usual = {
        kind: float(np.median([level[run] for run in level if _kind(run) == kind])) for kind in set(map(_kind, level))
    }
    return {run: value / usual[_kind(run)] for run, value in level.items()}


def holds_weights(rows: Rows) -> Bools:
    """Return which rows are of runs whose memory holds more than batches: there it does not fall as they get smaller.

    Such runs must not be mixed with others: relative to a first batch that holds the weights, nothing spikes.
    """
    level = levels(rows)
    return np.array([level[run] > HOLDS_WEIGHTS for run in rows.runs.tolist()])


def _kind(run: str) -> str:
    return run.rsplit("/", 1)[0] + "/" + family_of(run)


def _repeated(rows: Rows) -> Bools:
    columns = [*rows.first, *rows.batches, rows.first_peaks_mib, rows.peaks_mib]
    _, firsts = np.unique(np.stack(columns, axis=1), axis=0, return_index=True)
    repeated = np.ones(len(rows), bool)
    repeated[firsts] = False
    return repeated
