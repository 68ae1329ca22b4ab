"""The page of several runs: what differs, curves over each other, figures side by side."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Generic, TypeVar

import numpy as np

from trainauto.core.masking import without_secret_value
from trainauto.core.words import counted, visible
from trainauto.reporting.dashboard import run_history as names
from trainauto.reporting.dashboard.blocks import LONGEST_TEXT, Block, chart, line, pairs, points, section, table, tile
from trainauto.reporting.dashboard.bounded_curves import Curves
from trainauto.reporting.dashboard.run_history import RunHistory
from trainauto.reporting.dashboard.shared_pictures import shared_pictures
from trainauto.reporting.formatting import MARK, metric_text
from trainauto.reporting.runs.comparison import Comparison
from trainauto.reporting.runs.comparison_layout import Row
from trainauto.reporting.runs.comparison_text import course_rows, metric_rows, names_in, option_text

Key = TypeVar("Key")


class InCommon(Generic[Key]):
    """Tells what at least two runs have from what only one has. Runs that have nothing yet do not count.

    Args:
        found: what each run has.

    Attributes:
        shared: what is compared; all of it where a single run has anything.
        alone: what only one run has, by the number of the run.
        is_all: whether all have the same.
    """

    def __init__(self, found: Sequence[Collection[Key]]) -> None:
        times = [key for keys in found for key in dict.fromkeys(keys)]
        having = sum(bool(keys) for keys in found)
        self.is_all = len({frozenset(keys) for keys in found if keys}) <= 1
        self.shared = [key for key in dict.fromkeys(times) if times.count(key) > 1 or having == 1]
        alone = [[key for key in keys if key not in self.shared] for keys in found]
        self.alone = {number: keys for number, keys in enumerate(alone) if keys}


def alone_words(noun: str, alone: Mapping[int, Sequence[str]], called: Sequence[str]) -> Iterator[str]:
    """Yield what only one run has, each with its noun and the name of the run.

    Args:
        noun: what it is.
        alone: its names by the number of the run.
        called: the names of the runs.
    """
    for number, lacking in alone.items():
        yield from (f"{noun} {name} ({called[number]})" for name in lacking)


_MOST_METRICS = 24
_MOST_RATES = 2
"""Learning rates of each run that are shown."""


def comparison_page(
    comparison: Comparison, histories: Sequence[RunHistory], pictures: Sequence[Sequence[Block]], written_s: float
) -> dict[str, Any]:
    """Return the page of several runs as page.js takes it.

    It compares what at least two runs have: losses, metrics and crops. What only one has is named, and left out.

    Args:
        comparison: their figures.
        histories: their courses, in the same order.
        pictures: the blocks of pictures of their own pages.
        written_s: the time of day, in seconds since 1970.
    """
    called = names_in(comparison)
    course = _Course(histories, called)
    terms = InCommon([sorted(history.terms) for history in histories])
    metrics = InCommon([[(one.dataset, one.name) for one in run.metrics] for run in comparison.runs])
    comparison = replace(
        comparison, metrics=[one for one in comparison.metrics if (one.dataset, one.name) in metrics.shared]
    )
    subtitle = f"{counted(len(called), 'run')} compared"
    if course.is_over_samples:
        subtitle += "; over samples, since their batches differ, and so does what a step is worth"
    folders = [(name, run.path) for name, run in zip(called, comparison.runs, strict=True)]
    return {
        "title": visible(" against ".join(called), LONGEST_TEXT),
        "subtitle": subtitle,
        "x_name": "sample" if course.is_over_samples else "step",
        "status": {"word": "comparison", "tone": "neutral", "text": ""},
        "written": round(written_s, 3),
        "tiles": list(_tiles(comparison, called)),
        "grid": [],
        "sections": [
            *section(
                "well",
                "Which goes better?",
                _metric_table(comparison, called),
                shared_pictures(pictures, called),
                _learning(course, terms, metrics),
                lead=_left_out(terms, metrics, called),
            ),
            *section("machine", "Which uses the machine better?", _machine(course)),
            *section("why", "How did they go?", _outcome(comparison, called)),
            *section("what", "What differs?", _options(comparison, called), pairs("folders", "Folders", folders)),
        ],
    }


def _tiles(comparison: Comparison, called: Sequence[str]) -> Iterator[Block]:
    for metric in comparison.metrics[:6]:
        won = ", ".join(called[number] for number in metric.best_best)
        if won:
            best = next(value for number, value in enumerate(metric.best) if number in metric.best_best)
            note = f"{metric.dataset} {metric.name}: {metric_text(best.value)}" if best is not None else ""
            yield tile("best", won, note, "good")
    yield tile("options that differ", str(len(comparison.options)))


def _metric_table(comparison: Comparison, called: Sequence[str]) -> list[Block]:
    rows = [row for metric in comparison.metrics for row in metric_rows(metric)]
    return _rows("metrics", "Validation in figures", "metric", rows, called)


def _outcome(comparison: Comparison, called: Sequence[str]) -> list[Block]:
    rows = list(course_rows(comparison.runs))
    rows += [Row("ended", [run.reason or "-" for run in comparison.runs])]
    return _rows("course", "How they went", "figure", rows, called)


def _options(comparison: Comparison, called: Sequence[str]) -> list[Block]:
    rows = [
        Row(key, [option_text(without_secret_value(key, value)) for value in values])
        for key, values in comparison.options.items()
    ]
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


class _Course:
    """The curves of runs over what they have in common: steps, or samples where a step is not worth the same in all."""

    def __init__(self, histories: Sequence[RunHistory], called: Sequence[str]) -> None:
        self.histories, self._called = histories, called
        batches = {frozenset(history.curves.ratio(names.SAMPLES, names.STEPS)) for history in histories}
        self.is_over_samples = len(batches) > 1

    def of_all(self, curve: str, *, highest: bool = False) -> list[Block]:
        """Return a curve of each run."""
        return [
            self._line(number, name, history.curves, curve, highest=highest) for number, name, history in self._each()
        ]

    def term(self, term: str) -> list[Block]:
        """Return a loss of each run that has it."""
        return [
            self._line(number, name, history.curves, history.curve_of(term))
            for number, name, history in self._each()
            if term in history.terms
        ]

    def rates(self) -> list[Block]:
        """Return the learning rates of each run."""
        return [
            self._line(number, f"{name}, {curve.removeprefix(names.RATE)}", history.curves, curve)
            for number, name, history in self._each()
            for curve in [curve for curve in history.curves.names if curve.startswith(names.RATE)][:_MOST_RATES]
        ]

    def metric(self, dataset: str, metric: str) -> list[Block]:
        """Return what validations of a set found of a metric, in each run that has it."""
        return [
            self._line(number, name, history.validations[dataset], metric)
            for number, name, history in self._each()
            if dataset in history.validations
        ]

    def speed(self) -> list[Block]:
        """Return samples a second of each run."""
        return [
            self._of_run(number, {"name": visible(name), "style": "line", "x": list(history.curves.steps),
                                  "y": history.curves.ratio(names.SAMPLES, names.SECONDS)})
            for number, name, history in self._each()
        ]  # fmt: skip

    def plan(self, axis: str) -> list[Block]:
        """Return the plans of each run on an axis."""
        return [
            self._of_run(number, points(name, *history.plan[axis].points(), "steps"))
            for number, name, history in self._each()
            if axis in history.plan
        ]

    def _each(self) -> Iterator[tuple[int, str, RunHistory]]:
        for number, (name, history) in enumerate(zip(self._called, self.histories, strict=True)):
            yield number, name, history

    def _line(self, number: int, name: str, curves: Curves, curve: str, *, highest: bool = False) -> Block:
        return self._of_run(number, line(name, curves, curve, x=list(curves.steps), highest=highest))

    def _of_run(self, number: int, series: Block) -> Block:
        x = _samples_until(self.histories[number], series["x"]) if self.is_over_samples else series["x"]
        return {**series, "x": x, "run": number}


def _learning(course: _Course, terms: InCommon[str], metrics: InCommon[tuple[str, str]]) -> list[Block]:
    blocks = chart("loss", "Loss", course.of_all(names.LOSS), axis="auto") if terms.is_all else []
    for number, term in enumerate(terms.shared):
        if not terms.is_all or len(terms.shared) > 1:  # a single loss is the sum
            blocks += chart(f"term-{number}", f"Loss: {term}", course.term(term), axis="auto")
    for number, (dataset, metric) in enumerate(metrics.shared[:_MOST_METRICS]):
        blocks += chart(f"metric-{number}", f"Validation: {dataset} {metric}", course.metric(dataset, metric))
    return blocks + chart("rate", "Learning rate", course.rates(), axis="log", from_zero=True)


def _left_out(terms: InCommon[str], metrics: InCommon[tuple[str, str]], called: Sequence[str]) -> str:
    """Return what is left out because only one run has it, in words."""
    named = {number: [" ".join(one) for one in alone] for number, alone in metrics.alone.items()}
    items = [*alone_words("loss", terms.alone, called), *alone_words("metric", named, called)]
    sentences = [f"Not compared, since only one run has it: {', '.join(items)}."] if items else []
    if not terms.is_all:
        sentences.append("The sum of the losses is not compared: it is not of the same losses in all runs.")
    return " ".join(sentences)


def _machine(course: _Course) -> list[Block]:
    peaks, waits = course.of_all(names.PEAK, highest=True), course.of_all(names.DATA)
    blocks = chart("memory", "Memory peak", peaks, unit="bytes", from_zero=True)
    blocks += chart("speed", "Samples per second", course.speed(), unit="rate", from_zero=True)
    blocks += chart("data", "Wait for data", waits, unit="seconds", from_zero=True)
    for axis in dict.fromkeys(axis for history in course.histories for axis in history.plan):
        series = course.plan(axis)
        if any(value != 1 for one in series for value in one["y"]):
            blocks += chart(f"plan-{axis}", f"Plan: {axis}", series, unit="count", from_zero=True)
    return blocks


def _samples_until(history: RunHistory, steps: Sequence[int]) -> list[int]:
    """Return how many samples were trained until each step; within a range of steps they grow evenly."""
    totals = list(accumulate(history.curves.sums(names.SAMPLES)))
    known = np.interp(steps, [0, *history.curves.steps], [0, *totals])
    return [round(float(total)) for total in known]
