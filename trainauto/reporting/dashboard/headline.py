"""The figures that a page begins with: how far, how well, how full, how fast."""

from collections.abc import Iterator

from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.reporting.dashboard.blocks import Block, tile
from trainauto.reporting.dashboard.run_history import FAILURES, About, RunHistory, baseline_name, baseline_of
from trainauto.reporting.formatting import duration, plan_text
from trainauto.reporting.run_course import RUNNING
from trainauto.reporting.run_figures import Metric, metrics_of

_LONG_WAIT = 0.05
"""Share of the time waited for data from which on the loader slows the run."""


def status_of(history: RunHistory) -> Block:
    """Return how the run stands, for the head of the page."""
    tones = {RUNNING: "neutral", "completed": "good", "stopped": "good", "interrupted": "warn"}
    tone = "bad" if history.status in FAILURES else tones.get(history.status, "warn")
    return {"word": history.status, "tone": tone, "text": history.reason}


def tiles_of(history: RunHistory, about: About) -> list[Block]:
    """Return the figures; what nobody knows is left out."""
    if history.course.last is None:
        return [tile("progress", "no step yet")]
    return [*_progress(history, about), *_quality(history), *_memory(history, about), *_speed(history), *_plan(history)]


def _progress(history: RunHistory, about: About) -> Iterator[Block]:
    course = history.course
    done = course.last.step if course.last is not None and about.unit == "steps" else course.samples
    if not about.total:
        yield tile("progress", f"{done:,} {about.unit}", f"{duration(course.seconds)} of training")
        return
    notes = [f"{done / about.total:.0%}"]
    rate = course.recent_rate(about.unit)
    if history.status == RUNNING and rate:
        notes.append(f"{duration((about.total - done) / rate)} left")
    yield tile("progress", f"{done:,} of {about.total:,} {about.unit}", ", ".join(notes))
    yield tile(
        "time", duration(course.seconds), f"of training; started {about.started}" if about.started else "trained"
    )


def _quality(history: RunHistory) -> Iterator[Block]:
    loss = history.course.latest_loss
    if loss is not None:
        yield tile("loss", f"{loss:.4g}", "mean of the last 50 steps")
    found = metrics_of(history.lines)
    if found:
        yield _metric(found[0], history)


def _metric(metric: Metric, history: RunHistory) -> Block:
    shown = metric.best or metric.last
    of_set = [line for line in history.lines if line.get("dataset") == metric.dataset]
    at_step = next((line for line in of_set if line.get("step") == shown.step), {})
    notes = [f"{'best, ' if metric.best else ''}after step {shown.step}", metric.dataset]
    costless = baseline_of(at_step).get(metric.name)
    if costless is not None:
        gain = shown.value - float(costless)
        notes.insert(0, f"{gain:+.4g} against {baseline_name(at_step)}")
        is_better = gain > 0 if metric.better_is_higher is not False else gain < 0
        return tile(metric.name, f"{shown.value:.4f}", "; ".join(notes), "good" if is_better else "warn")
    return tile(metric.name, f"{shown.value:.4f}", "; ".join(notes))


def _memory(history: RunHistory, about: About) -> Iterator[Block]:
    course = history.course
    limit, typical = course.limit_bytes or about.limit_bytes, course.typical_bytes
    if typical is not None:
        note = f"typical peak {size_text(typical)}"
        if limit:
            yield tile("memory", f"{typical / limit:.1%} of the limit", f"{note} of {size_text(limit)}")
        else:
            yield tile("memory", size_text(typical), "typical peak; no limit is known")
    shown = course.ooms + sum(line.get("ooms", 0) for line in history.lines)
    if shown:
        note = "" if history.status in FAILURES else "the run went on in smaller parts"
        yield tile("out of memory", counted(shown, "time"), note, "warn")
    else:
        yield tile("out of memory", "never", tone="good")


def _speed(history: RunHistory) -> Iterator[Block]:
    course = history.course
    rate = course.recent_rate("samples")
    if rate:
        yield tile("speed", f"{rate:.3g} samples/s", f"{course.recent_rate('steps'):.3g} steps/s")
        waiting = course.recent_waiting
        tone = "warn" if waiting >= _LONG_WAIT else ""
        yield tile("wait for data", f"{waiting:.0%}", "of the time of a step", tone)


def _plan(history: RunHistory) -> Iterator[Block]:
    last = history.course.last
    if last is not None:
        changes = history.events.count("plan")
        yield tile("plan", plan_text(last.plan), f"{last.plan}; {counted(changes, 'decision')} on it")
