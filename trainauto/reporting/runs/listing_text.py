"""A listing of runs as people and machines read it: a row a run, under the name of its experiment, in 80 columns."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trainauto.core.json_text import to_json
from trainauto.core.words import counted, visible
from trainauto.reporting.formatting import WIDTH, duration, in_thousands, table, wrapped
from trainauto.reporting.runs.figures import RunFigures
from trainauto.reporting.runs.listing import ListedRun, runs_beside
from trainauto.reporting.runs.validation_totals import Metric

_HEAD = ("", "status", "steps", "metric", "best", "mem", "OOM", "time")
_METRIC = _HEAD.index("metric")
_GAP = 2
_LONGEST_FOLDER = 20
"""Columns of a folder's name: one more than 20250102_030405_999, which has them all."""
_NONE = "-"
_CUT = ".."
_WHAT = "mem: typical peak as a share of what it may use; OOM: times memory ran out; time: trained"


def as_json(runs: Sequence[ListedRun]) -> str:
    """Return a listing as JSON: sizes in bytes, times in seconds, ``started`` in seconds since 1970."""
    return to_json({"runs": [_entry(run) for run in runs]})


def _entry(run: ListedRun) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": str(run.path), "started": run.started, "trains": run.trains}
    if run.figures is None:
        return {**entry, "problem": run.problem}
    left_out = ("options", "path", "learning_rates", "training_loss", "metrics")  # the first, for they are long
    entry |= {name: value for name, value in vars(run.figures).items() if name not in left_out}
    return {**entry, "metrics": [_metric_entry(metric) for metric in run.figures.metrics]}


def _metric_entry(metric: Metric) -> dict[str, Any]:
    return {**vars(metric), "last": vars(metric.last), "best": None if metric.best is None else vars(metric.best)}


def as_text(runs: Sequence[ListedRun]) -> str:
    """Return a listing in lines of at most 80 columns; only the command at its end may be longer."""
    by_experiment: dict[Path, list[ListedRun]] = {}
    for run in runs:
        by_experiment.setdefault(run.path.parent, []).append(run)
    table_head, rows = _table([run for found in by_experiment.values() for run in found])
    several = f" of {counted(len(by_experiment), 'experiment')}" if len(by_experiment) > 1 else ""
    head = wrapped(f"{counted(len(runs), 'run')}{several}, the newest first; {_WHAT}", WIDTH, "")
    lines = [*head, "", *table_head]
    for folder, found in by_experiment.items():
        trains = f"  ({found[0].trains})" if found[0].trains else ""
        lines += [visible(f"{folder}{trains}", WIDTH), *(next(rows) for _ in found)]
    return "\n".join([*lines, "", *_ways_on(runs)])


def _table(runs: Sequence[ListedRun]) -> tuple[list[str], Iterator[str]]:
    """Return the head of the table, none where no run can be read, and the row of each run."""
    cells = {place: _cells(run.path.name, run.figures) for place, run in enumerate(runs) if run.figures is not None}
    head, *laid = table(_fitting([list(_HEAD), *cells.values()]))
    by_place = dict(zip(cells, laid, strict=True))
    return [head] if cells else [], (by_place.get(place, _in_words(run)) for place, run in enumerate(runs))


def _in_words(run: ListedRun) -> str:
    return visible(f"  {_cut(visible(run.path.name), _LONGEST_FOLDER)}  {run.problem}", WIDTH)


def _cells(folder: str, run: RunFigures) -> list[str]:
    share = run.share_of_limit
    return [
        _cut(visible(folder), _LONGEST_FOLDER),
        visible(run.status, len("interrupted")),
        f"{_short(run.steps)}{'' if run.share_done is None else f' {run.share_done:.0%}'}",
        *_best(run.metrics),
        _NONE if share is None else f"{share:.0%}",
        str(run.ooms + run.validation_ooms),
        duration(run.seconds),
    ]


def _best(metrics: Sequence[Metric]) -> tuple[str, str]:
    """Return the first metric and its best value, after which step; its last if the better direction is unknown."""
    if not metrics:
        return _NONE, _NONE
    value = metrics[0].best or metrics[0].last
    return visible(metrics[0].name), f"{value.value:.5g}" + ("" if value.step is None else f" @{_short(value.step)}")


def _fitting(rows: list[list[str]]) -> list[list[str]]:
    """Return rows whose metrics have lost of their names what there is no room for in 80 columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = max(len(_CUT), WIDTH - _GAP * len(_HEAD) - sum(widths) + widths[_METRIC])
    return [[*row[:_METRIC], _cut(row[_METRIC], room), *row[_METRIC + 1 :]] for row in rows]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - len(_CUT)] + _CUT


def _short(steps: int) -> str:
    return str(steps) if steps < 100_000 else in_thousands(steps).replace(" ", "")


def _ways_on(runs: Sequence[ListedRun]) -> list[str]:
    newest = next((run.path for run in runs if run.figures is not None), runs[0].path)
    return ["one of them, or several side by side:", f"    python -m trainauto report {_quoted(newest)}"]


def others_text(path: Path) -> str:
    """Return how to list the runs of an experiment of which the newest was shown; empty where there is no other."""
    number = runs_beside(path)
    if number < 2:
        return ""
    return f"\n\nthe newest of {number} runs; all of them: python -m trainauto report {_quoted(path)} --list"


def _quoted(path: Path) -> str:
    return visible(shlex.quote(str(path)))
