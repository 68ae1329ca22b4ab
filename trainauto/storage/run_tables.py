"""The logs of a run as tables for numpy and pandas."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainauto.core.json_text import read_lines
from trainauto.storage.run_directory import RunDirectory

NUMBERS_AS_TEXT = ("nan", "inf", "-inf")
"""What JSON has no numbers for; the logs hold it as text."""


class Table(dict[str, NDArray[Any]]):
    """Columns by name, all of the same length; what is nested in a record is ``plan.lq_size``, ``losses.l1loss``.

    Whole numbers are int64, others float64 with NaN where a record holds none; text is text, and lists stay objects.
    """

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` of the columns.

        Raises:
            ImportError: pandas is not installed.
        """
        return import_module("pandas").DataFrame(dict(self))


@dataclass(frozen=True)
class RunTables:
    """What a run has logged. Bytes, seconds and units of work are those of the log.

    Attributes:
        steps: one row a trained step.
        decisions: one row a decision of an automation, with its reason.
        validations: one row a validated set.
    """

    steps: Table
    decisions: Table
    validations: Table


def read_records(run: str | Path) -> RunTables:
    """Read what a run has logged; it may still be running.

    Args:
        run: its folder, or ``experiments/NAME`` for the newest run of that name.

    Raises:
        InputError: there is no run, or a log cannot be read.
    """
    directory = RunDirectory.find(Path(run))
    lines = list(read_lines(directory.records))
    return RunTables(
        table_of(_as_named_now(line) for line in lines if "step_s" in line),
        table_of(read_lines(directory.decisions)),
        table_of(read_lines(directory.validations)),
    )


def table_of(lines: Iterable[Mapping[str, Any]]) -> Table:
    """Return JSON objects as columns, in the order in which their keys first come."""
    rows = [_flat(line) for line in lines]
    names = dict.fromkeys(name for row in rows for name in row)
    return Table({name: _column([row.get(name) for row in rows]) for name in names})


def _as_named_now(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a logged step under the names of today, so that a run resumed by this version has one column of each."""
    return {"units" if name == "pixels" else name: value for name, value in step.items()}


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested values under names joined by dots; what is ``None`` is left out."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{name}.")
        elif value is not None:
            flat[f"{above}{name}"] = value
    return flat


def _column(values: list[Any]) -> NDArray[Any]:
    there = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in there) and len(there) == len(values):
        return np.array(values, dtype=bool)
    if all(isinstance(value, int) for value in there) and len(there) == len(values):
        return np.array(values, dtype=np.int64)
    if all(isinstance(value, int | float) or value in NUMBERS_AS_TEXT for value in there):
        return np.array([np.nan if value is None else float(value) for value in values])
    if all(isinstance(value, str) for value in there):
        return np.array(["" if value is None else value for value in values])
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
