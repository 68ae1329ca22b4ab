"""Tables that set runs beside each other in 80 columns: a column a run for up to three, a line a run for more."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainauto.reporting.formatting import WIDTH, table
from trainauto.reporting.runs.names import same_start

MOST_COLUMNS = 3
"""Runs that get a column each: of four, it would be too narrow for most values."""

_INDENT, _GAP = 2, 2
_WIDEST_LABEL = 34
"""Columns of a label; longer ones, such as keys of options, get a line of their own."""
_WIDEST_VALUE = 24
"""Columns of a value where runs have a line each, unless its label is wider."""
_CUT = ".."


@dataclass(frozen=True)
class Row:
    """One figure of all runs: what it is, and a text for each run."""

    label: str
    cells: Sequence[str]


def longest_name(runs: int) -> int:
    """Return how many characters a run's name may have in a table of so many runs."""
    return _room(runs, _WIDEST_LABEL) if runs <= MOST_COLUMNS else _WIDEST_VALUE


def tables(names: Sequence[str], blocks: Sequence[Sequence[Row]]) -> list[list[str]]:
    """Return each block as lines, under the names of the runs; columns are the same in all blocks."""
    if len(names) > MOST_COLUMNS:
        return [_line_a_run(names, rows) for rows in blocks]
    return _column_a_run(names, blocks)


def _column_a_run(names: Sequence[str], blocks: Sequence[Sequence[Row]]) -> list[list[str]]:
    labels = [len(row.label) for rows in blocks for row in rows if len(row.label) <= _WIDEST_LABEL]
    label_width = max(labels, default=0)
    room = _room(len(names), label_width)
    told = [[Row(row.label, told_apart(row.cells, room)) for row in rows] for rows in blocks]
    shown = [names, *(row.cells for rows in told for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]

    def line(label: str, cells: Sequence[str]) -> str:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        return " " * _INDENT + (" " * _GAP).join([label.ljust(label_width), *padded])

    def lines(rows: Sequence[Row]) -> Iterator[str]:
        yield line("", names)
        for row in rows:
            is_beside = len(row.label) <= label_width
            if not is_beside:
                yield " " * _INDENT + _end_of(row.label, WIDTH - _INDENT)
            yield line(row.label if is_beside else "", row.cells)

    return [list(lines(rows)) for rows in told]


def _line_a_run(names: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return as many tables below each other as it takes, a line a run in each."""
    first = ["", *names]
    left = WIDTH - _INDENT - max(map(len, first))
    groups: list[list[list[str]]] = []
    room = 0
    for row in rows:
        label = _end_of(row.label, left - _GAP)
        column = [label, *told_apart(row.cells, min(left - _GAP, max(len(label), _WIDEST_VALUE)))]
        taken = _GAP + max(map(len, column))
        if taken > room:
            groups.append([first])
            room = left
        groups[-1].append(column)
        room -= taken
    lines: list[str] = []
    for group in groups:
        lines += [*([""] if lines else []), *table(list(zip(*group, strict=True)))]
    return lines


def _room(runs: int, label_width: int) -> int:
    """Return the columns that a value of each run may have beside a label."""
    return (WIDTH - _INDENT - label_width) // runs - _GAP


def told_apart(values: Sequence[str], width: int) -> list[str]:
    """Return values in at most ``width`` columns each; of longer ones the part in which they differ from the others."""
    return [
        value if len(value) <= width else _around(value, _first_difference(value, values), width) for value in values
    ]


def _first_difference(value: str, values: Sequence[str]) -> int:
    """Return the place at which a value is told apart from all others."""
    return max((same_start([value, other]) for other in values if other != value), default=0)


def _around(value: str, place: int, width: int) -> str:
    """Return ``width`` columns of a longer value that show what stands at a place."""
    inner = width - 2 * len(_CUT)
    if place < width - len(_CUT):
        return value[: width - len(_CUT)] + _CUT
    if len(value) - place <= inner:
        return _end_of(value, width)
    start = place - inner // 2
    return _CUT + value[start : start + inner] + _CUT


def _end_of(text: str, width: int) -> str:
    return text if len(text) <= width else _CUT + text[len(text) - width + len(_CUT) :]
