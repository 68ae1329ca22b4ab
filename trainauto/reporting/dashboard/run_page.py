"""The page of one run, in the order in which a person asks: is it going well, is the machine used, what did it do."""

from collections.abc import Sequence
from typing import Any

from trainauto.core.words import counted, visible
from trainauto.reporting.dashboard import run_history as names
from trainauto.reporting.dashboard.blocks import LONGEST_TEXT, Block, chart, line, pairs, points, ratio, section, table
from trainauto.reporting.dashboard.events import marks_of
from trainauto.reporting.dashboard.headline import status_of, tiles_of
from trainauto.reporting.dashboard.run_history import BASELINE, About, RunHistory
from trainauto.reporting.formatting import metric_text, prediction_cells

_MOST_METRICS, _MOST_SETS, _MOST_ROWS = 12, 6, 60
"""Charts of metrics, sets in each, and rows of the table of all: of more, the first."""

_MOST_PLANS = 40


def page_of(history: RunHistory, about: About, pictures: Sequence[Block], written_s: float) -> dict[str, Any]:
    """Return the page of a run as page.js takes it.

    Args:
        history: its course.
        about: what is known beside it.
        pictures: blocks of pictures.
        written_s: the time of day, in seconds since 1970.
    """
    status = status_of(history)
    return {
        "title": visible(about.name, LONGEST_TEXT),
        "subtitle": visible(about.folder, LONGEST_TEXT),
        "status": {**status, "text": visible(status["text"], LONGEST_TEXT)},
        "written": round(written_s, 3),
        "tiles": tiles_of(history, about),
        "grid": list(history.curves.steps),
        "sections": [
            *section("well", "Is it going well?", *_well(history, pictures)),
            *section("machine", "Is the machine used?", _memory(history, about), _speed(history), _plans(history)),
            *section("why", "What did it do, and why?", _plan(history), _events(history)),
            *section("what", "With what?", _what(about)),
        ],
    }


def _well(history: RunHistory, pictures: Sequence[Block]) -> Sequence[Sequence[Block]]:
    return _learning(history), _metrics(history), _metric_table(history), pictures, _rates(history)


def _learning(history: RunHistory) -> list[Block]:
    terms = _beginning(history, names.TERM)
    series = [line("sum" if terms else "loss", history.curves, names.LOSS)]
    series += [line(name.removeprefix(names.TERM), history.curves, name) for name in terms]
    marks = marks_of(history.events, ("resume", "rollback", "fail"))
    tasks = [line(name.removeprefix(names.TASK), history.curves, name) for name in _beginning(history, names.TASK)]
    return [
        *chart("loss", "Loss", series, axis="auto", marks=marks),
        *chart("tasks", "Loss by task", tasks, axis="auto", note="mean over its samples, without weights"),
    ]


def _metrics(history: RunHistory) -> list[Block]:
    blocks: list[Block] = []
    shown = list(dict.fromkeys(name for _, name in history.metrics))
    for number, name in enumerate(shown[:_MOST_METRICS]):
        series = []
        for dataset, curves in list(history.validations.items())[:_MOST_SETS]:
            known = history.metrics.get((dataset, name))
            if known is None:
                continue
            x = list(curves.steps)
            series.append(line(dataset, curves, name, x=x))
            costless = f"{dataset}, {known.baseline_name or BASELINE}"
            series.append(line(costless, curves, f"{name}/{BASELINE}", x=x, style="dash"))
        higher = next(metric.better_is_higher for (_, one), metric in history.metrics.items() if one == name)
        note = {True: "higher is better", False: "lower is better", None: ""}[higher]
        blocks += chart(f"metric-{number}", f"Validation: {name}", series, note=note)
    return blocks


def _metric_table(history: RunHistory) -> list[Block]:
    rows = []
    for (dataset, name), metric in list(history.metrics.items())[:_MOST_ROWS]:
        best = ["-", "-"] if metric.best is None else [metric_text(metric.best.value), str(metric.best.step)]
        baseline = (metric.best or metric.last).baseline
        costless = "-" if baseline is None else metric_text(baseline)
        left_out = history.left_out.get((dataset, name), 0)
        without = f" (without {counted(left_out, 'image')} of no finite value)" if left_out else ""
        rows.append([f"{dataset}: {name}{without}", metric_text(metric.last.value), *best, costless])
    named = {metric.baseline_name for metric in history.metrics.values() if metric.baseline_name}
    baselines = named.pop() if len(named) == 1 else BASELINE
    more = len(history.metrics) - len(rows)
    title = "Validation in figures" + (f"; {more} more are in validation.jsonl" if more else "")
    return table("metrics", title, ["set: metric", "last", "best", "after step", baselines], rows)


def _rates(history: RunHistory) -> list[Block]:
    rates = [line(name.removeprefix(names.RATE), history.curves, name) for name in _beginning(history, names.RATE)]
    norms = [line(name.removeprefix(names.NORM), history.curves, name) for name in _beginning(history, names.NORM)]
    noise = [line(name.removeprefix(names.NOISE), history.curves, name) for name in _beginning(history, names.NOISE)]
    changed = marks_of(history.events, ("rate", "resume", "rollback"))
    return [
        *chart("rate", "Learning rate", rates, axis="log", from_zero=True, marks=changed),
        *chart("norm", "Gradient norm", norms, axis="auto", note="before clipping", marks=changed),
        *chart(
            "noise",
            "Gradient noise scale",
            noise,
            axis="auto",
            note="in samples, or tokens: a step of many more learns little more",
            marks=marks_of(history.events, ("plan",)),
        ),
    ]


def _memory(history: RunHistory, about: About) -> list[Block]:
    curves = history.curves
    series = [
        line("peak", curves, names.PEAK, highest=True),
        line("predicted peak", curves, names.PREDICTED, style="steps"),
        line("reserved", curves, names.RESERVED, highest=True),
        line("current", curves, names.CURRENT, highest=True),
        line("in use on the device", curves, names.DEVICE, highest=True),
        line("limit", curves, names.LIMIT, style="dash"),
    ]
    if about.target_bytes and curves.steps:
        ends = [curves.steps[0], curves.steps[-1]]
        series.append(points("target", ends, [about.target_bytes] * 2, "dash"))
    marks = marks_of(history.events, ("plan", "oom", "resume", "rollback"))
    note = "of each step: the highest; lines across are plans, memory that ran out, resumes, rollbacks"
    return chart("memory", "Memory", series, unit="bytes", from_zero=True, note=note, marks=marks)


def _speed(history: RunHistory) -> list[Block]:
    curves = history.curves
    rates = [
        chart(f"{count}-rate", f"{count.capitalize()} per second", [ratio(f"{count}/s", curves, count, names.SECONDS)],
              unit="rate", from_zero=True)
        for count in (names.SAMPLES, names.TOKENS, names.STEPS)
    ]  # fmt: skip
    spent = [line("training", curves, names.COMPUTE), line("wait for data", curves, names.DATA)]
    most = curves.greatest(names.PADDING)
    # Where all tokens are counted as text, nobody has looked at padding.
    padding = [line("padding", curves, names.PADDING)] if any(most) else []
    return [
        *(block for blocks in rates for block in blocks),
        *chart("seconds", "Time of a step", spent, unit="seconds", axis="auto", from_zero=True),
        *chart("padding", "Padding", padding, unit="percent", from_zero=True, note="tokens that are no text"),
    ]


def _plans(history: RunHistory) -> list[Block]:
    rows = [prediction_cells(row) for row in history.plans.rows(_MOST_PLANS)[0]]
    heads = ["plan", "steps", "predicted", "typical peak", "highest peak", "error of the prediction"]
    return table("plans", "Memory by plan: predicted before its first step, measured in whole steps", heads, rows)


def _plan(history: RunHistory) -> list[Block]:
    marks = marks_of(history.events, ("plan", "oom"))
    steady = [name for name, changes in history.plan.items() if set(changes.points()[1]) == {1}]  # never in parts
    return [
        block
        for name, changes in history.plan.items()
        if name not in steady or name == "batch_size"
        for block in chart(
            f"plan-{name}", f"Plan: {name}", [points(name, *changes.points(), "steps")], unit="count", from_zero=True,
            marks=marks,
        )
    ]  # fmt: skip


def _events(history: RunHistory) -> list[Block]:
    items = [event.to_dict() for event in (*history.events, *history.ending())]
    head = {"type": "events", "id": "events", "title": "Decisions, failures, resumes"}
    return [{**head, "left_out": history.events.left_out, "items": items}] if items else []


def _what(about: About) -> list[Block]:
    heads = ["option", "value", "default"]
    changed = [[key, value, default] for key, value, default in about.changed]
    options = [(key, str(value)) for key, value in about.options.items()]
    return [
        *table("changed", "Options with other values than their defaults", heads, changed, has_figures=False),
        *pairs("facts", "The run", about.facts),
        *pairs("environment", "Environment", about.environment),
        *pairs("options", "All options", options, folded=bool(changed)),
    ]


def _beginning(history: RunHistory, start: str) -> list[str]:
    return [name for name in history.curves.names if name.startswith(start)]
