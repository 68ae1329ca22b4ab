"""The page of several runs: what differs, curves over each other, figures side by side."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from trainauto.core.words import counted, visible
from trainauto.reporting.comparison_layout import Row
from trainauto.reporting.comparison_text import course_rows, metric_rows, names_in, option_text
from trainauto.reporting.dashboard import run_history as names
from trainauto.reporting.dashboard.blocks import LONGEST_TEXT, Block, chart, line, pairs, points, section, table, tile
from trainauto.reporting.dashboard.curves import Curves
from trainauto.reporting.dashboard.run_history import RunHistory
from trainauto.reporting.formatting import MARK
from trainauto.reporting.run_comparison import Comparison


def comparison_page(comparison: Comparison, histories: Sequence[RunHistory], written_s: float) -> dict[str, Any]:
    """Return the page of several runs as page.js takes it.

    Args:
        comparison: their figures.
        histories: their courses, in the same order.
        written_s: the time of day, in seconds since 1970.
    """
    called = names_in(comparison)
    folders = [(name, run.path) for name, run in zip(called, comparison.runs, strict=True)]
    return {
        "title": visible(" against ".join(called), LONGEST_TEXT),
        "subtitle": f"{counted(len(called), 'run')} compared",
        "status": {"word": "comparison", "tone": "neutral", "text": ""},
        "written": round(written_s, 3),
        "tiles": list(_tiles(comparison, called)),
        "grid": [],
        "sections": [
            *section("well", "Which goes better?", _metric_table(comparison, called), _learning(histories, called)),
            *section("machine", "Which uses the machine better?", _machine(histories, called)),
            *section("why", "How did they go?", _course(comparison, called)),
            *section("what", "What differs?", _options(comparison, called), pairs("folders", "Folders", folders)),
        ],
    }


def _tiles(comparison: Comparison, called: Sequence[str]) -> Iterator[Block]:
    for metric in comparison.metrics[:6]:
        won = ", ".join(called[number] for number in metric.best_best)
        if won:
            best = next(value for number, value in enumerate(metric.best) if number in metric.best_best)
            note = f"{metric.dataset} {metric.name}: {best.value:.4f}" if best is not None else ""
            yield tile("best", won, note, "good")
    yield tile("options that differ", str(len(comparison.options)))


def _metric_table(comparison: Comparison, called: Sequence[str]) -> list[Block]:
    rows = [row for metric in comparison.metrics for row in metric_rows(metric)]
    return _rows("metrics", "Validation in figures", "metric", rows, called)


def _course(comparison: Comparison, called: Sequence[str]) -> list[Block]:
    rows = list(course_rows(comparison.runs))
    rows += [Row("ended", [run.reason or "-" for run in comparison.runs])]
    return _rows("course", "How they went", "figure", rows, called)


def _options(comparison: Comparison, called: Sequence[str]) -> list[Block]:
    rows = [Row(key, [option_text(value) for value in values]) for key, values in comparison.options.items()]
    return _rows("options", "Options that differ", "option", rows, called, has_figures=False)


def _rows(
    ident: str, title: str, first: str, rows: Sequence[Row], called: Sequence[str], *, has_figures: bool = True
) -> list[Block]:
    """Return rows as a table; cells that carry the mark of the best lose it, and are marked."""
    cells = [[row.label, *(cell.removeprefix(MARK) for cell in row.cells)] for row in rows]
    marked = [
        (number, column)
        for number, row in enumerate(rows)
        for column, cell in enumerate(row.cells, 1)
        if cell.startswith(MARK)
    ]
    return table(ident, title, [first, *called], cells, marked, has_figures=has_figures)


def _learning(histories: Sequence[RunHistory], called: Sequence[str]) -> list[Block]:
    losses = [_of_run(number, name, history.curves, names.LOSS) for number, name, history in _each(histories, called)]
    blocks = chart("loss", "Loss", losses, scale="auto")
    if len({tuple(history.curves.ratio(names.SAMPLES, names.STEPS)) for history in histories}) > 1:
        by_samples = [{**series, "x": _samples(history)} for series, history in zip(losses, histories, strict=True)]
        note = "batches differ, and so does what a step is worth"
        blocks += [
            {**block, "x_name": "samples"}
            for block in chart("loss-samples", "Loss over samples", by_samples, note=note, scale="auto")
        ]
    for dataset, metric in _metrics(histories):
        found = [
            _of_run(number, name, history.validations[dataset], metric)
            for number, name, history in _each(histories, called)
            if dataset in history.validations
        ]
        blocks += chart(f"metric-{dataset}-{metric}", f"Validation: {dataset} {metric}", found)
    rates = [
        _of_run(number, f"{name}, {curve.removeprefix(names.RATE)}", history.curves, curve)
        for number, name, history in _each(histories, called)
        for curve in [curve for curve in history.curves.names if curve.startswith(names.RATE)][:2]
    ]
    return blocks + chart("rate", "Learning rate", rates, from_zero=True)


def _machine(histories: Sequence[RunHistory], called: Sequence[str]) -> list[Block]:
    each = list(_each(histories, called))
    peaks = [_of_run(number, name, history.curves, names.PEAK, highest=True) for number, name, history in each]
    speeds, waits = [], []
    for number, name, history in each:
        curves = history.curves
        rate = curves.ratio(names.SAMPLES, names.SECONDS)
        speeds.append({"name": visible(name), "style": "line", "x": list(curves.steps), "y": rate, "run": number})
        waits.append(_of_run(number, name, curves, names.DATA))
    blocks = chart("memory", "Memory peak", peaks, unit="bytes", from_zero=True)
    blocks += chart("speed", "Samples a second", speeds, unit="rate", from_zero=True)
    blocks += chart("data", "Wait for data", waits, unit="seconds", from_zero=True)
    for axis in dict.fromkeys(axis for history in histories for axis in history.plan):
        series = [
            {**points(name, *history.plan[axis].points(), "steps"), "run": number}
            for number, name, history in each
            if axis in history.plan
        ]
        if any(value != 1 for one in series for value in one["y"]):
            blocks += chart(f"plan-{axis}", f"Plan: {axis}", series, unit="count", from_zero=True)
    return blocks


def _of_run(number: int, name: str, curves: Curves, curve: str, *, highest: bool = False) -> Block:
    return {**line(name, curves, curve, x=list(curves.steps), highest=highest), "run": number}


def _each(histories: Sequence[RunHistory], called: Sequence[str]) -> Iterator[tuple[int, str, RunHistory]]:
    for number, (name, history) in enumerate(zip(called, histories, strict=True)):
        yield number, name, history


def _metrics(histories: Sequence[RunHistory]) -> Mapping[tuple[str, str], None]:
    """Return set and metric of all validations, each once."""
    return dict.fromkeys(
        (dataset, metric)
        for history in histories
        for dataset, curves in history.validations.items()
        for metric in curves.names
        if not metric.endswith(f"/{names.BASELINE}")
    )


def _samples(history: RunHistory) -> list[int]:
    """Return how many samples were trained at the end of each range of steps."""
    return [round(total) for total in accumulate(history.curves.sums(names.SAMPLES))]
