"""A comparison of runs as people and machines read it."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainauto.core.json_text import to_json
from trainauto.core.units import size_text
from trainauto.core.words import counted, visible
from trainauto.reporting.formatting import MARK, WIDTH, duration, metric_text, wrapped
from trainauto.reporting.runs.comparison import ComparedMetric, Comparison
from trainauto.reporting.runs.comparison_layout import Row, longest_name, tables
from trainauto.reporting.runs.figures import RunFigures
from trainauto.reporting.runs.names import names_of
from trainauto.reporting.runs.validation_totals import Value

NONE = "-"
"""Stands where a run has none of what another has."""

_COMPLETED = "completed"


def as_json(comparison: Comparison) -> str:
    """Return a comparison as JSON: sizes in bytes, times in seconds, lists in the order of the runs."""
    names = names_in(comparison)
    runs = [{"name": name, **_course(run)} for name, run in zip(names, comparison.runs, strict=True)]
    metrics = [
        {
            **asdict(metric),
            "best_last": [names[number] for number in metric.best_last],
            "best_best": [names[number] for number in metric.best_best],
        }
        for metric in comparison.metrics
    ]
    return to_json({"runs": runs, "options": comparison.options, "metrics": metrics})


def _course(run: RunFigures) -> dict[str, Any]:
    """Return the figures of a run but those that are told run beside run."""
    return {name: value for name, value in vars(run).items() if name not in ("options", "metrics")}


def names_in(comparison: Comparison) -> list[str]:
    """Return a short name for each run, which no other has."""
    paths = [run.path for run in comparison.runs]
    return list(map(visible, names_of(paths, longest_name(len(paths)))))


def as_text(comparison: Comparison) -> str:
    """Return a comparison in lines of at most 80 columns; only a path may make a longer one."""
    options = [Row(visible(key), list(map(option_text, values))) for key, values in comparison.options.items()]
    course = list(course_rows(comparison.runs))
    metrics = [row for metric in comparison.metrics for row in metric_rows(metric)]
    names = names_in(comparison)
    option_lines, course_lines, metric_lines = tables(names, [options, course, metrics])
    head = f"{counted(len(names), 'run')} compared; {NONE} stands where a run has none"
    blocks = [
        [head, *_paths(names, comparison.runs)],
        ["options that differ", *option_lines] if options else ["no option differs"],
        ["how they went", *course_lines, *_ends(names, comparison.runs)],
        [*_metric_head(comparison), *metric_lines, *_doubts(comparison)] if metrics else ["no run was validated yet"],
    ]
    return "\n\n".join("\n".join(block) for block in blocks)


def _paths(names: Sequence[str], runs: Sequence[RunFigures]) -> Iterator[str]:
    widest = max(map(len, names))
    for name, run in zip(names, runs, strict=True):
        path = _from_here(run.path)
        if len(line := f"  {name.ljust(widest)}  {path}") <= WIDTH:
            yield line
        else:
            yield from (f"  {name}", f"    {path}")


def _from_here(path: str) -> str:
    """Return a path as seen from the working directory, where it lies below that."""
    is_below = Path(path).is_relative_to(Path.cwd())
    return visible(str(Path(path).relative_to(Path.cwd())) if is_below else path)


def option_text(value: Any) -> str:
    """Return the value of an option as a table has it."""
    if value is None:
        return NONE
    return visible(value if isinstance(value, str) and value.isprintable() else json.dumps(value, ensure_ascii=False))


def course_rows(runs: Sequence[RunFigures]) -> Iterator[Row]:
    """Yield how runs went, a row a figure."""
    yield Row("status", [run.status for run in runs])
    yield Row("of its length", [_known(run.share_done, "{:.0%}".format) for run in runs])
    yield Row("steps", [str(run.steps) for run in runs])
    yield Row("samples trained", [str(run.samples) for run in runs])
    yield Row("time trained", [duration(run.seconds) for run in runs])
    yield from _rate_rows(runs)
    yield Row("training loss", [_known(run.training_loss, "{:.4g}".format) for run in runs])
    yield Row("out of memory", [str(run.ooms) for run in runs])
    if any(run.validation_ooms for run in runs):
        yield Row("out of memory, validation", [str(run.validation_ooms) for run in runs])
    yield Row("memory peak", [_known(run.memory_bytes, size_text) for run in runs])
    if any(run.limit_bytes for run in runs):
        yield Row("of its limit", [_known(run.share_of_limit, "{:.0%}".format) for run in runs])


def _rate_rows(runs: Sequence[RunFigures]) -> Iterator[Row]:
    """Yield the learning rate; one of each optimizer where a run has several."""
    if all(len(run.learning_rates) <= 1 for run in runs):
        rates = [next(iter(run.learning_rates.values()), None) for run in runs]
        yield Row("learning rate", [_known(rate, "{:.4g}".format) for rate in rates])
        return
    for name in dict.fromkeys(name for run in runs for name in run.learning_rates):
        yield Row(f"learning rate of {name}", [_known(run.learning_rates.get(name), "{:.4g}".format) for run in runs])


def _known(value: float | None, text: Callable[[float], str]) -> str:
    return NONE if value is None else text(value)


def _ends(names: Sequence[str], runs: Sequence[RunFigures]) -> Iterator[str]:
    for name, run in zip(names, runs, strict=True):
        if run.status != _COMPLETED and run.reason:
            yield from wrapped(f"{name}: {run.reason}", WIDTH)


def metric_rows(metric: ComparedMetric) -> Iterator[Row]:
    """Yield what validations found of a metric, the best marked."""
    label = visible(f"{metric.dataset} {metric.name}")
    direction = {True: ", higher is better", False: ", lower is better", None: ""}[metric.better_is_higher]
    yield Row(f"{label}{direction}", list(_values(metric.last, metric.best_last)))
    if any(best is not None for best in metric.best):
        yield Row(f"{label}, best", list(_values(metric.best, metric.best_best)))
        steps = [best.step if best is not None else None for best in metric.best]
        yield Row(f"{label}, best after step", [_known(step, str) for step in steps])


def _values(values: Sequence[Value | None], won: Sequence[int]) -> Iterator[str]:
    for number, value in enumerate(values):
        yield NONE if value is None else f"{MARK if number in won else ''}{metric_text(value.value)}"


def _metric_head(comparison: Comparison) -> Iterator[str]:
    is_marked = any(metric.best_last or metric.best_best for metric in comparison.metrics)
    yield "validation: the last value of each metric, and the best" + (f"; {MARK}the best run" if is_marked else "")


def _doubts(comparison: Comparison) -> Iterator[str]:
    """Yield which figures may not be of the same samples."""
    doubtful = dict.fromkeys(metric.dataset for metric in comparison.metrics if metric.is_of_other_data)
    for dataset in doubtful:
        text = f"options of {dataset} or of its metrics differ, see above: its figures may not be comparable"
        yield from wrapped(text, WIDTH)
