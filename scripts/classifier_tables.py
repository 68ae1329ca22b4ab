"""Tables of recorded batches as scripts/train_classifier.py reads and scripts/generate_training_data.py writes them."""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from classifier_data import Rows, groups_of, recordings_of
from numpy.typing import NDArray

from trainauto.core.errors import InputError
from trainauto.core.files import write_atomically
from trainauto.tasks.text.batch_features import BatchSizes

COLUMNS = (
    "run", "model_name", "max_input_length", "gpu_memory_mib", "total_tokens", "total_paddings",
    "inference_batch_size", "top_token_size", "first_gpu_memory_peak_mib", "first_batch_size", "first_total_tokens",
    "first_total_paddings", "first_top_token_size",
)  # fmt: skip

Line = dict[str, Any]


def _whole(least: int) -> Callable[[str], int]:
    def parsed(cell: str) -> int:
        number = int(cell)
        if not least <= number < 2**31:
            raise ValueError
        return number

    return parsed


def _memory(cell: str) -> float:
    number = float(cell)
    if not (math.isfinite(number) and number > 0):
        raise ValueError
    return number


def _name(cell: str) -> str:
    if not cell:
        raise ValueError
    return cell


_SIZES = dict.fromkeys([name for name in COLUMNS if "size" in name or "length" in name], "a whole number from 1 on")
_TOKENS = dict.fromkeys([name for name in COLUMNS if "total" in name], "a whole number from 0 on")
_MEMORY = dict.fromkeys([name for name in COLUMNS if "memory" in name], "a finite number of MiB above 0")
_MEANINGS = {"run": "a name", "model_name": "a name", **_SIZES, **_TOKENS, **_MEMORY}
_PARSERS = {
    "a name": _name,
    "a whole number from 1 on": _whole(1),
    "a whole number from 0 on": _whole(0),
    "a finite number of MiB above 0": _memory,
}


def read_rows(paths: Sequence[Path]) -> Rows:
    """Read tables of the columns above.

    Raises:
        InputError: a file cannot be read; a column is missing; a cell holds something else than its column; tokens and
            paddings are not samples x longest; a run has several first batches; or there are no rows.
    """
    lines = [line for path in paths for line in _lines_of(path)]

    def numbers(name: str) -> NDArray[np.int64]:
        return np.array([line[name] for line in lines], np.int64)

    def peaks(name: str) -> NDArray[np.float64]:
        return np.array([line[name] for line in lines], np.float64)

    first = BatchSizes(*map(numbers, ("first_batch_size", "first_top_token_size", "first_total_tokens")))
    batches = BatchSizes(*map(numbers, ("inference_batch_size", "top_token_size", "total_tokens")))
    runs, peaks_mib, first_peaks_mib = (
        np.array([line["run"] for line in lines]), peaks("gpu_memory_mib"), peaks("first_gpu_memory_peak_mib")
    )  # fmt: skip
    _check_first_batches(runs, [*first, first_peaks_mib])
    groups = groups_of(runs, recordings_of(runs, first), batches, peaks_mib)
    return Rows(runs, first, batches, numbers("max_input_length"), peaks_mib, first_peaks_mib, groups)


def _check_first_batches(runs: NDArray[np.str_], firsts: Sequence[NDArray[Any]]) -> None:
    seen: dict[str, tuple[float, ...]] = {}
    for run, *first in zip(runs.tolist(), *(field.tolist() for field in firsts), strict=True):
        if seen.setdefault(run, tuple(first)) != tuple(first):
            raise InputError(f"run {run} has several first batches: runs of one name would be taken for one run")


def _lines_of(path: Path) -> Iterator[Line]:
    """Yield the rows of a table, checked."""
    try:
        with gzip.open(path, "rt", newline="", encoding="utf-8") as stream:
            table = csv.DictReader(stream)
            missing = [name for name in COLUMNS if name not in (table.fieldnames or ())]
            cells = [] if missing else list(table)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is no table of batches in .csv.gz: {error}") from error
    if missing or not cells:
        raise InputError(f"{path}: no column {', '.join(missing)}" if missing else f"{path}: no rows")
    for number, line in enumerate(cells, start=1):
        yield _checked(line, f"{path}, row {number}")


def _checked(cells: dict[str, str | None], where: str) -> Line:
    if None in cells:
        raise InputError(f"{where}: more cells than columns")
    line: Line = {}
    for name in COLUMNS:
        cell, meaning = cells[name], _MEANINGS[name]
        try:
            line[name] = _PARSERS[meaning](cell or "")
        except ValueError:
            raise InputError(f"{where}, column {name}: {meaning} is needed, not {cell!r}") from None
    for start, samples, longest in _PADDED:
        if line[f"{start}total_tokens"] + line[f"{start}total_paddings"] != line[samples] * line[longest]:
            raise InputError(f"{where}: {start}total_tokens and {start}total_paddings are not {samples} x {longest}")
    return line


_PADDED = (("", "inference_batch_size", "top_token_size"), ("first_", "first_batch_size", "first_top_token_size"))
"""What the names of totals begin with, and the columns that they are the product of."""


def write_rows(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Write a table that begins with its columns, gzipped, whole or not at all; equal rows make equal files."""
    lines = io.StringIO(newline="")
    csv.writer(lines, lineterminator="\n").writerows([COLUMNS, *rows])
    write_atomically(path, lambda file: file.write_bytes(gzip.compress(lines.getvalue().encode(), mtime=0)))
