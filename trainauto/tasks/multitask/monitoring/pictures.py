"""The pictures of a run: its curves, and its tasks side by side.

They are made by matplotlib's objects alone, without pyplot: no window, no figure that other code may be drawing.
"""

import io
import math
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from trainauto.core.files import write_atomically
from trainauto.core.words import counted
from trainauto.tasks.multitask.monitoring import batch_sums as tags
from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics, EpochMetrics
from trainauto.tasks.multitask.monitoring.metric_curves import smoothed
from trainauto.tasks.multitask.monitoring.metrics_history import MetricsHistory

MOST_TASKS = 10
"""Tasks that are drawn: as many colours can be told apart. Of more, those with the most samples are."""

MOST_EPOCH_LINES = 40
SMOOTHED_FROM_POINTS = 50
MARKED_TO_POINTS = 40
LOG_FROM_RATIO = 20
"""Losses and rates whose largest is more than so many times the smallest are shown on a logarithmic axis."""

MOST_LABELLED_RATIO = 500
"""Of logarithmic axes that reach less far, 2 and 5 are labelled as well."""

LONGEST_NAME = 24
RESOLUTION_DPI = 100
MIB_PER_GIB = 1024
BLUE, ORANGE, GREY, RED = "#1f77b4", "#ff7f0e", "#7f7f7f", "#d62728"


def draw_training_curves(path: Path, history: MetricsHistory) -> None:
    """Draw the curves of a run: loss, loss by task, memory, samples, speed, rate, gradient norm, tasks.

    Args:
        path: PNG file to write.
        history: the run; it holds a batch at least.
    """
    _save(_training_curves(history), path)


@cache
def warm_up() -> None:
    """Draw once in a process, to nowhere, and keep what libraries take for it: 40 MiB of private memory.

    Taken by the first picture in mid-training, they would be lacking in a budget that was measured without them.
    """
    history = MetricsHistory()
    history.start()
    for number in range(2):
        history.add(BatchMetrics(number, 0.0, ["1", "2"], 2, 1.0, {"1": 1.0, "2": 1.0}, 1.0, 1.0, 1.0, 1.0, 1.0))
    _write(_training_curves(history), io.BytesIO())


def _training_curves(history: MetricsHistory) -> Figure:
    curves = _Curves(history)
    figure = Figure(figsize=(14, 17))
    figure.subplots_adjust(left=0.07, right=0.98, bottom=0.04, top=0.94, wspace=0.18, hspace=0.32)
    panels = list(figure.subplots(4, 2).flat)
    figure.suptitle(_title(history), fontsize=13)
    _draw_figure(panels[0], curves, tags.LOSS, "Loss, mean over samples", "loss", "all tasks, as minimised")
    _draw_task_losses(panels[1], curves)
    _draw_memory(panels[2], curves)
    _draw_figure(panels[3], curves, tags.BATCH_SIZE, "Batch size", "samples", "samples of a batch")
    _draw_figure(panels[4], curves, tags.SPEED, "Speed", "samples / s")
    _draw_shares(panels[5], curves)
    _draw_figure(panels[6], curves, tags.RATE, "Learning rate of the first group", "learning rate")
    _draw_figure(panels[7], curves, tags.NORM, "Gradient norm before clipping", "gradient norm")
    for panel in panels:
        panel.set_xlabel("batch (optimizer step)")
        panel.set_xlim(curves.x[0] - 0.5, curves.x[-1] + 0.5)
        panel.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        _draw_epochs(panel, history)
    return figure


def draw_task_comparison(path: Path, history: MetricsHistory, so_far: EpochMetrics | None) -> None:
    """Draw the tasks side by side: their losses by epoch, how far these fell, and their samples.

    Args:
        path: PNG file to write.
        history: the run; it holds a batch at least.
        so_far: the epoch on its way, drawn where none has ended.
    """
    tasks = _shown_tasks(history)
    colours = _colours(tasks)
    figure = Figure(figsize=(17, max(5.0, 2.0 + 0.45 * len(tasks))), layout="constrained")
    by_epoch, fallen, samples = figure.subplots(1, 3)
    figure.suptitle(f"Tasks: {_title(history, points=False)}", fontsize=13)
    epochs = history.epochs or ([so_far] if so_far is not None else [])
    _draw_epoch_losses(by_epoch, epochs, tasks, colours)
    relative = history.curves.relative_losses()
    _draw_bars(fallen, {task: relative[task] for task in tasks if task in relative}, colours, "{:.3g}")
    fallen.set_title("Loss, last tenth over first tenth", loc="left")
    fallen.set_xlabel("ratio of mean losses (below 1 the task was learned)")
    if relative:
        fallen.axvline(1.0, color=GREY, linewidth=1, linestyle="--")
    counts = {task: float(history.run.task_samples[task]) for task in tasks}
    _draw_bars(samples, counts, colours, "{:,.0f}", total=float(history.run.samples))
    samples.set_title("Samples trained", loc="left")
    samples.set_xlabel("samples (share of all)")
    _save(figure, path)


class _Curves:
    """Points of a run as lists of numbers; NaN, which leaves a gap, where nothing was measured."""

    def __init__(self, history: MetricsHistory) -> None:
        self.of = history.curves.of
        self.x = history.curves.positions
        self.tasks = _shown_tasks(history)
        self.colours = _colours(self.tasks)
        self.recoveries = history.run.oom_recoveries


def _draw_figure(axes: Axes, curves: _Curves, tag: str, title: str, unit: str, label: str = "") -> None:
    values = curves.of(tag)
    _draw_line(axes, curves.x, values, label or unit, BLUE, smooth=tag not in (tags.BATCH_SIZE, tags.RATE))
    if tag == tags.BATCH_SIZE:
        _mark_recoveries(axes, curves, values)
    may_be_log, from_zero = tag in (tags.LOSS, tags.RATE), tag in (tags.BATCH_SIZE, tags.SPEED)
    _finish(axes, title, unit, [values], may_be_log=may_be_log, from_zero=from_zero)


def _draw_task_losses(axes: Axes, curves: _Curves) -> None:
    drawn = []
    for task in curves.tasks:
        losses = curves.of(f"{tags.TASK_LOSS}{task}")
        if any(map(math.isfinite, losses)):
            _draw_line(axes, curves.x, losses, _name(task), curves.colours[task], thin=False)
            drawn.append(losses)
    _finish(axes, "Loss by task, mean over its samples", "loss", drawn, may_be_log=True)


def _draw_memory(axes: Axes, curves: _Curves) -> None:
    allocated, reserved = curves.of(tags.ALLOCATED), curves.of(tags.RESERVED)
    highest = max(filter(math.isfinite, [*allocated, *reserved]), default=0.0)
    scale, unit = (MIB_PER_GIB, "GiB") if highest >= MIB_PER_GIB else (1, "MiB")
    allocated, reserved = ([value / scale for value in values] for values in (allocated, reserved))
    _draw_line(axes, curves.x, allocated, "highest of the step", BLUE, smooth=False)
    if any(map(math.isfinite, reserved)):
        _draw_line(axes, curves.x, reserved, "reserved", ORANGE, smooth=False)
    _mark_recoveries(axes, curves, allocated)
    _finish(axes, "Memory", f"memory / {unit}", [allocated, reserved], from_zero=True)


def _draw_shares(axes: Axes, curves: _Curves) -> None:
    shares = [curves.of(f"{tags.TASK_SHARE}{task}") for task in curves.tasks]
    if len(curves.x) >= SMOOTHED_FROM_POINTS:
        shares = [smoothed(values, len(values) / 20) for values in shares]
    if shares and len(curves.x) > 1:
        colours = [curves.colours[task] for task in curves.tasks]
        axes.stackplot(curves.x, *shares, labels=list(map(_name, curves.tasks)), colors=colours, alpha=0.8)
    below = 0.0
    for task, values in zip(curves.tasks, shares, strict=True):
        if len(curves.x) == 1:
            axes.bar(curves.x, values, bottom=below, width=1.0, label=_name(task), color=curves.colours[task])
            below += values[0]
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    _finish(axes, "Samples by task", "share of the samples", shares)


def _draw_epoch_losses(
    axes: Axes, epochs: Sequence[EpochMetrics], tasks: Sequence[str], colours: dict[str, Any]
) -> None:
    if len(epochs) <= 1:
        losses = epochs[0].per_task_avg_loss if epochs else {}
        _draw_bars(axes, {task: losses[task] for task in tasks if task in losses}, colours, "{:.4g}")
        axes.set_title(f"Mean loss by task, epoch {epochs[0].epoch if epochs else 0}", loc="left")
        axes.set_xlabel("loss, mean over samples")
        return
    drawn = []
    for task in tasks:
        values = [epoch.per_task_avg_loss.get(task, math.nan) for epoch in epochs]
        axes.plot([epoch.epoch for epoch in epochs], values, marker="o", label=_name(task), color=colours[task])
        drawn.append(values)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    axes.set_xlabel("epoch (the first is 0)")
    _finish(axes, "Mean loss by task", "loss, mean over samples", drawn, may_be_log=True)


def _draw_bars(
    axes: Axes, values: dict[str, float], colours: dict[str, Any], form: str, total: float | None = None
) -> None:
    """Draw a bar a task, from the top down, with its figure at its end."""
    shown = {task: value for task, value in values.items() if math.isfinite(value)}
    bars = axes.barh(range(len(shown)), list(shown.values()), color=[colours[task] for task in shown])
    axes.set_yticks(range(len(shown)), [_name(task) for task in shown])
    axes.invert_yaxis()
    shares = [f" ({value / total:.1%})" if total else "" for value in shown.values()]
    axes.bar_label(
        bars, [form.format(value) + share for value, share in zip(shown.values(), shares, strict=True)], padding=3
    )
    axes.margins(x=0.35)
    axes.grid(axis="x", alpha=0.3)
    if not shown:
        _say_nothing_measured(axes)


def _draw_line(
    axes: Axes,
    x: Sequence[int],
    values: Sequence[float],
    label: str,
    colour: Any,
    *,
    smooth: bool = True,
    thin: bool = True,
) -> None:
    """Draw a line: where there are many points a thin one of all beside a thick one of their running mean."""
    if smooth and len(x) >= SMOOTHED_FROM_POINTS:
        if thin:
            axes.plot(x, values, color=colour, linewidth=0.7, alpha=0.35)
        axes.plot(x, smoothed(values, len(x) / 20), color=colour, linewidth=1.8, label=label)
        return
    marker = "o" if len(x) <= MARKED_TO_POINTS else None
    axes.plot(x, values, color=colour, linewidth=1.3, marker=marker, markersize=3, label=label)


def _mark_recoveries(axes: Axes, curves: _Curves, values: Sequence[float]) -> None:
    times = curves.of(tags.RECOVERIES)
    marked = [(x, y) for x, y, count in zip(curves.x, values, times, strict=True) if count and math.isfinite(y)]
    if marked:
        label = f"ran out of memory, recovered ({counted(curves.recoveries, 'batch')})"
        axes.plot(*zip(*marked, strict=True), "v", color=RED, markersize=8, zorder=4, label=label)


def _draw_epochs(axes: Axes, history: MetricsHistory) -> None:
    """Draw where epochs begin, but the first; not where they are too many to be told apart."""
    if len(history.epoch_positions) <= MOST_EPOCH_LINES:
        for position in history.epoch_positions[1:]:
            axes.axvline(position - 0.5, color=GREY, linewidth=0.8, linestyle=":", zorder=0)


def _finish(
    axes: Axes,
    title: str,
    unit: str,
    drawn: Sequence[Sequence[float]],
    *,
    may_be_log: bool = False,
    from_zero: bool = False,
) -> None:
    """Name a panel and its axis, and add a grid and a legend."""
    values = [value for line in drawn for value in line if math.isfinite(value)]
    axes.set_title(title, loc="left")
    axes.set_ylabel(unit)
    axes.grid(alpha=0.3)
    if not values:
        _say_nothing_measured(axes)
        return
    if may_be_log and min(values) > 0 and max(values) > LOG_FROM_RATIO * min(values):
        axes.set_yscale("log")
        if max(values) < MOST_LABELLED_RATIO * min(values):
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylabel(f"{unit} (logarithmic)")
    elif from_zero:
        axes.set_ylim(0, max(values) * 1.15 or 1)
    axes.legend(loc="lower right" if from_zero else "upper right", fontsize=9, ncols=2 if len(drawn) > 5 else 1)


def _say_nothing_measured(axes: Axes) -> None:
    axes.set_yticks([])
    axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color=GREY)


def _title(history: MetricsHistory, *, points: bool = True) -> str:
    run = history.run
    parts = [counted(run.batches, "batch"), counted(run.samples, "sample"), counted(len(history.epochs), "whole epoch")]
    hidden = len(run.task_samples) - MOST_TASKS
    if hidden > 0:
        parts.append(f"the {MOST_TASKS} tasks with the most samples of {len(run.task_samples)}")
    if points and len(history.curves.positions) >= SMOOTHED_FROM_POINTS:
        parts.append("thick lines are running means")
    if points and history.curves.batches_a_point > 1:
        parts.append(f"a point stands for {history.curves.batches_a_point} batches")
    if points and 1 < len(history.epoch_positions) <= MOST_EPOCH_LINES:
        parts.append("dotted: an epoch begins")
    return ", ".join(parts)


def _shown_tasks(history: MetricsHistory) -> list[str]:
    samples = history.run.task_samples
    most = sorted(samples, key=lambda task: (-samples[task], task))[:MOST_TASKS]
    return sorted(most)


def _colours(tasks: Sequence[str]) -> dict[str, Any]:
    palette = mpl.colormaps["tab10"]
    return {task: palette(number % 10) for number, task in enumerate(tasks)}


def _name(task: str) -> str:
    """Return a task's name as text is drawn: ``$`` would begin a formula, a leading ``_`` hide it from legends."""
    task = task.strip() or "(no name)"
    short = task if len(task) <= LONGEST_NAME else f"{task[: LONGEST_NAME - 1]}…"
    return (f" {short}" if short.startswith("_") else short).replace("$", r"\$")


def _save(figure: Figure, path: Path) -> None:
    write_atomically(path, lambda file: _write(figure, file))
    figure.clear()


def _write(figure: Figure, target: Path | io.BytesIO) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # of names in scripts that the font lacks
        figure.savefig(target, format="png", dpi=RESOLUTION_DPI)
