"""The figures that a page begins with: how far, how well, how full, how fast."""

from collections.abc import Iterator

from trainauto.core.units import size_text
from trainauto.core.words import counted, visible
from trainauto.reporting.dashboard.blocks import Block, tile
from trainauto.reporting.dashboard.run_history import FAILURES, About, RunHistory
from trainauto.reporting.formatting import duration, metric_text, plan_text
from trainauto.reporting.runs.course import NO_END, RUNNING
from trainauto.reporting.runs.validation_totals import Metric
from trainauto.reporting.step_stats import gain

_LONG_WAIT = 0.05
"""Share of the time waited for data from which on the loader slows the run."""


def status_of(history: RunHistory) -> Block:
    """Return how the run stands, for the head of the page."""
    if history.status == NO_END:
        return {"word": "no end yet", "tone": "neutral", "text": history.reason}
    tones = {RUNNING: "neutral", "completed": "good", "stopped": "good", "interrupted": "warn"}
    tone = "bad" if history.status in FAILURES else tones.get(history.status, "warn")
    return {"word": history.status, "tone": tone, "text": history.reason}


def tiles_of(history: RunHistory, about: About) -> list[Block]:
    """Return the figures; unknown ones are left out."""
    if history.course.last is None:
        return [tile("progress", "no step yet")]
    return [*_progress(history, about), *_quality(history), *_memory(history, about), *_speed(history), *_plan(history)]


def _progress(history: RunHistory, about: About) -> Iterator[Block]:
    course, done = history.course, history.done
    if not about.total:
        yield tile("progress", f"{done:,} {about.unit}", f"{duration(course.seconds)} of training")
        return
    notes = [f"{done / about.total:.0%}"]
    if history.left_s is not None:
        notes.append(f"{duration(history.left_s)} left")
    yield tile("progress", f"{done:,} of {about.total:,} {about.unit}", ", ".join(notes))
    since = f"; started {about.started}" if about.started else ""
    yield tile("time", duration(course.seconds), f"of training{since}")


def _quality(history: RunHistory) -> Iterator[Block]:
    loss = history.course.latest_loss
    if loss is not None:
        yield tile("training loss", f"{loss:.4g}", f"mean of the last {counted(history.course.recent_steps, 'step')}")
    for (dataset, name), metric in list(history.metrics.items())[:1]:
        yield _metric(dataset, name, metric)


def _metric(dataset: str, name: str, metric: Metric) -> Block:
    shown = metric.best or metric.last
    notes = [f"{'best, ' if metric.best else ''}after step {shown.step}", dataset]
    better_by = gain(shown.value, shown.baseline, metric.better_is_higher)
    if better_by is None:
        return tile(visible(name, 60), metric_text(shown.value), "; ".join(notes))
    # As on the console: more is better, whichever way the metric points.
    notes.insert(0, f"gain over {metric.baseline_name} {better_by:+.4g}")
    return tile(visible(name, 60), metric_text(shown.value), "; ".join(notes), "good" if better_by > 0 else "warn")


def _memory(history: RunHistory, about: About) -> Iterator[Block]:
    course = history.course
    limit, typical = course.limit_bytes or about.limit_bytes, course.typical_bytes
    if typical is not None:
        note = f"typical peak {size_text(typical)}"
        if limit:
            yield tile("memory", f"{typical / limit:.1%} of the limit", f"{note} of {size_text(limit)}")
        else:
            yield tile("memory", size_text(typical), "typical peak; no limit is known")
    ooms, has_failed = course.ooms + history.validation_ooms, history.status in FAILURES
    if ooms:
        yield tile(
            "out of memory",
            counted(ooms, "time"),
            "" if has_failed else "the run continued in smaller micro-batches",
            "warn",
        )
    elif has_failed:
        yield tile("out of memory", "in no step")  # why it failed stands above
    else:
        yield tile("out of memory", "never", tone="good")


def _speed(history: RunHistory) -> Iterator[Block]:
    course = history.course
    if speed := course.speed:
        yield tile("speed", speed.in_samples, speed.in_steps)
        waiting = course.recent_waiting
        tone = "warn" if waiting >= _LONG_WAIT else ""
        yield tile("wait for data", f"{waiting:.0%}", "of the time of a step", tone)


def _plan(history: RunHistory) -> Iterator[Block]:
    last = history.course.last
    if last is not None:
        changes = history.events.count("plan")
        yield tile("plan", plan_text(last.plan), f"{last.plan}; {counted(changes, 'decision')} on it")
