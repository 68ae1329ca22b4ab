"""A run in lines of text: what console and training.log say. Pure functions; ASCII, at most ``width`` columns.

Only a single word longer than the width, such as a path, and the command that resumes make longer lines, so that they
can still be copied whole.
``width`` 0 never wraps.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from trainauto.core.decisions import (
    ClipAt,
    Decision,
    GiveUp,
    GoBack,
    KeepPlan,
    MissingSteps,
    PlanChange,
    RateFactor,
    Rollback,
    Stop,
)
from trainauto.core.plan import BATCH_SIZE, Plan
from trainauto.core.records import MicrobatchSplit, Progress, ValidationRecord
from trainauto.core.run_events import RunEnd, RunSummary
from trainauto.core.units import size_text
from trainauto.core.words import counted, visible
from trainauto.reporting.plan_peaks import PlanPeak, PlanPeaks
from trainauto.reporting.step_stats import StepFigures, error_text, gain_over_baseline

WIDTH = 80
MARK = "* "
"""Begins the best of some values."""

IMAGE_SIZE = "lq_size"
"""What plans of images have; parts and tiles of others have no sides."""

_LABEL_WIDTH = 12
MOST_PLANS = 8
"""Rows of the table of predictions at the end of a run."""
_INDENT = "    "
_OPEN = ", unless measuring finds a better one"
_WORTH_SAYING = 0.05
"""Share of the time waited for data from which on a line says so; below, the loader does not slow the run."""


def summary_lines(summary: RunSummary, width: int) -> list[str]:
    """Return the block that a run starts with."""
    pairs = [
        ("run", f"{summary.name}, {counted(summary.total, summary.unit.removesuffix('s'))}"),
        ("directory", summary.run_directory),
        ("page", summary.page),
        ("network", f"{summary.network}, {in_thousands(summary.parameters)} parameters"),
        ("device", f"{summary.device}, {summary.precision}"),
        ("data", ", ".join(_samples(summary))),
        ("plan", f"{plan_words(summary.plan)}{_OPEN if summary.plan_is_open else ''}"),
        *summary.facts,
    ]
    if summary.resumed:
        pairs.append(("resumed", f"after step {summary.progress.steps}, {counted(summary.progress.samples, 'sample')}"))
    return pairs_lines(pairs, width)


def plan_words(plan: Plan) -> str:
    """Return a plan in full, and in parentheses as the lines of steps write it where that is shorter."""
    short = short_plan(plan)
    return f"{plan} ({short})" if short != str(plan) else short


def _samples(summary: RunSummary) -> Iterator[str]:
    for name, number in summary.samples.items():
        is_known = name == summary.train_set and summary.smallest_px is not None
        smallest = f" (the smallest: {summary.smallest_px} px of the input)" if is_known else ""
        yield f"{name} {number}{smallest}"


def step_lines(
    figures: StepFigures, summary: RunSummary, progress: Progress, left_s: float | None, width: int
) -> list[str]:
    """Return how the run stands, usually in one line; ``left_s`` are the seconds it still takes, where known."""
    parts = [f"{summary.done(progress)}/{summary.total}"]
    if summary.unit != "steps":
        parts = [f"step {figures.last.step}", f"{parts[0]} {summary.unit}"]
    parts.append(f"loss {figures.loss:.4g}" if figures.losses else "nothing to learn from")
    if len(figures.losses) > 1:
        parts += [f"{name} {value:.4g}" for name, value in figures.losses.items() if name != "loss"]
    rates = figures.last.learning_rates
    parts += [f"lr {rate:.2g}" if len(rates) == 1 else f"lr_{name} {rate:.2g}" for name, rate in rates.items()]
    parts.append(f"{figures.steps_per_s:.3g} it/s")
    if figures.waiting >= _WORTH_SAYING:
        parts.append(f"data {figures.waiting:.0%}")
    parts.append(short_plan(figures.last.plan))
    if figures.memory_share is not None:
        parts.append(f"mem {figures.memory_share:.0%}")
    if left_s is not None:
        parts.append(f"ETA {duration(left_s)}")
    if figures.skipped:
        parts.append(f"skipped {figures.skipped}")
    if figures.ooms:
        parts.append(f"OOM {figures.ooms}")
    return _join(parts, width)


def standing_line(
    figures: StepFigures, summary: RunSummary, progress: Progress, left_s: float | None, width: int
) -> str:
    """Return how the run stands in one line of at most ``width`` columns, for a place that is drawn again and again.

    Columns have the width of what they may hold, so that nothing moves; what there is no room for is left out, always.
    """
    done = summary.done(progress)
    rates = figures.last.learning_rates
    # How soon each is left out (the last first), its text, and its columns.
    cells = [
        (0, f"{done:>{len(str(summary.total))}}/{summary.total}", 0),
        (1, f"loss {_in_seven(figures.loss)}", 12),
        (6, f"lr {next(iter(rates.values())):.2g}" if rates else "", 10),
        (3, f"{figures.steps_per_s:.3g} it/s", 11),
        (5, f"data {figures.waiting:.0%}", 8),
        (2, short_plan(figures.last.plan), 5),
        (4, f"mem {figures.memory_share:.0%}" if figures.memory_share is not None else "", 7),
        (2, f"ETA {duration(left_s)}" if left_s is not None else "", 10),
    ]
    shown = [(rank, f"{text:<{columns}}") for rank, text, columns in cells if text]
    while width and len("  ".join(text for _, text in shown)) > width and len(shown) > 1:
        shown.remove(max(shown, key=lambda cell: cell[0]))
    line = "  ".join(text for _, text in shown).rstrip()
    for name, count in (("skipped", figures.skipped), ("OOM", figures.ooms)):
        more = f"{line}  {name} {count}"
        line = more if count and (not width or len(more) <= width) else line
    return line[:width] if width else line


def _in_seven(value: float) -> str:
    """Return a number in seven columns at most."""
    is_plain = value == 0 or 0.001 <= abs(value) < 10_000
    return f"{value:.4f}"[:6] if is_plain else f"{value:.1e}"


def metric_text(value: float, sign: str = "") -> str:
    """Return what was validated, with four decimals; with four digits where those would hide it: 6e-05.

    Args:
        value: of a metric, or the gain in it.
        sign: ``+`` writes the sign of positive values, too.
    """
    is_plain = value == 0 or 0.001 <= abs(value) < 10_000
    return f"{value:{sign}.4f}" if is_plain else f"{value:{sign}.4g}"


def decision_lines(step: int, decision: Decision, width: int) -> list[str]:
    """Return what was decided, and why."""
    match decision:
        case PlanChange(plan=plan):
            figures = "; ".join(_expected(decision))
            action = f"plan -> {plan}" + (f" ({figures})" if figures else "")
        case KeepPlan(plan=plan):
            action = f"plan stays {plan}"
        case RateFactor(factor=factor):
            action = f"learning rate -> {factor:.4g} x schedule"
        case ClipAt(max_norm=max_norm, pass_name=pass_name):
            action = "clipping off" if max_norm is None else f"gradients clipped at norm {max_norm:.4g}"
            action += f" in pass {pass_name}" if pass_name else ""
        case Stop():
            action = "stop"
        case GoBack(good_until=good_until):
            action = f"back to a checkpoint of step {good_until} or before"
        case GiveUp():
            action = "the run ends"
        case Rollback(from_step=from_step, to_step=to_step, order=order):
            action = f"back from step {from_step} to {to_step}, samples in another order (no. {order})"
        case MissingSteps(first=first, last=last):
            action = f"{missing_text(first, last)} missing in the log"
    return wrapped(f"step {step}: {action}: {decision.reason}", width)


def missing_text(first: int, last: int) -> str:
    """Return steps that are missing, as the subject of a sentence with its verb."""
    return f"step {first} is" if first == last else f"steps {first} to {last} are"


def _expected(change: PlanChange) -> Iterator[str]:
    """Yield what is predicted of the new plan, and how the prediction of the one before has turned out."""
    if change.predicted is not None:
        yield f"predicted {size_text(change.predicted)}"
    before = []
    if change.predicted_before is not None:
        before.append(f"predicted {size_text(change.predicted_before)}")
    if change.measured is not None:
        before.append(f"measured {size_text(change.measured)}")
    if change.predicted_before is not None and change.measured is not None:
        before.append(f"off by {error_text(change.predicted_before, change.measured)}")
    if before:
        yield "the plan before: " + ", ".join(before)


def validation_lines(record: ValidationRecord, width: int) -> list[str]:
    """Return a table of the means of a validation beside those of what costs nothing."""
    tiles = f", tiles of {record.tile_px} px" if record.tile_px else ""
    seen = record.seen or counted(len(record.scores), "image")
    peak = f", peak {size_text(record.peak.allocated)}" if record.peak is not None else ""
    how = f"{seen} in {duration(record.seconds)}{tiles}{peak}"
    head = f"validation of {record.dataset} after step {record.step}: {how}"
    rows = [["metric", "value", record.baseline_name, "gain"] if record.baseline else ["metric", "value"]]
    for metric, value in record.metrics.items():
        gain = gain_over_baseline(record, metric)
        row = [metric, metric_text(value)]
        if record.baseline:
            row += ["-", "-"] if gain is None else [metric_text(record.baseline[metric]), metric_text(gain, "+")]
        rows.append(row)
    return [*wrapped(head, width), *table(rows), *(line for text in left_out(record) for line in wrapped(text, width))]


def left_out(record: ValidationRecord) -> Iterator[str]:
    """Yield which means leave out images, and how many: an identical image has an infinite PSNR."""
    for metric, count in record.left_out.items():
        why = f"{metric} (or that of {record.baseline_name}) is infinite or not a number"
        if record.says_nothing_of(metric):
            yield f"there is no mean of {metric}: of every image the {why}"
        else:
            yield f"the mean of {metric} leaves out {counted(count, 'image')}, whose {why}"


def end_lines(end: RunEnd, width: int) -> list[str]:
    """Return the block that a run ends with."""
    pairs = [
        (end.status, end.reason),
        ("trained", f"{_so_far(end.progress)} in {duration(end.progress.seconds)}"),
    ]
    if end.checkpoint:
        pairs.append(("checkpoint", end.checkpoint))
    lines = pairs_lines([*pairs, *end.facts], width)
    return [*lines, "to resume:", f"    {end.resume_command}"] if end.resume_command else lines


def oom_text(training: int, validation: int, piece: str) -> str:
    """Return how often memory ran out, and what is counted; empty where it never did.

    Args:
        training: passes that ran again in smaller pieces, and batches that were cut down, on all ranks.
        validation: tiles or batches that did not fit, so that smaller ones were taken.
        piece: what a validation goes by.
    """
    counts = [f"{counted(training, 'pass')} of training"] if training else []
    counts += [f"{counted(validation, piece)} of validation"] if validation else []
    return f"{', '.join(counts)} did not fit" if counts else ""


def _so_far(progress: Progress) -> str:
    return f"{counted(progress.steps, 'step')}, {counted(progress.samples, 'sample')}"


def prediction_lines(peaks: PlanPeaks, width: int) -> list[str]:
    """Return a table of what plans were predicted to peak at and what was measured; empty where nothing was predicted.

    It holds the plans trained longest, in the order in which they were first trained.
    """
    rows, left_out = peaks.rows(MOST_PLANS)
    if all(row.predicted_bytes is None for row in rows):
        return []
    cells = [["plan", "steps", "predicted", "measured", "highest", "error"], *(prediction_cells(row) for row in rows)]
    more = f"  and {counted(left_out, 'more plan')}, trained for fewer steps"
    head = "predicted against measured (of whole steps: the typical peak, and the highest)"
    return [*wrapped(head, width), *table(cells), *([more] if left_out else [])]


def prediction_cells(row: PlanPeak) -> list[str]:
    """Return plan, steps, predicted, typical and highest peak, and the error of the prediction against the typical."""
    sizes = (row.predicted_bytes, row.typical_bytes, row.highest_bytes)
    has_both = row.predicted_bytes is not None and row.typical_bytes is not None
    error = error_text(row.predicted_bytes or 0, row.typical_bytes or 0) if has_both else "-"
    return [plan_text(row.plan), str(row.steps), *("-" if size is None else size_text(size) for size in sizes), error]


def plan_text(plan: Plan) -> str:
    """Return a plan in words: ``batch 16 x 64 px``, or ``batch 16/2 x 64 px`` in two micro-batches."""
    if len(plan.values) == 2 and BATCH_SIZE in plan and IMAGE_SIZE in plan:
        return f"batch {_batch(plan)} x {plan.size} px"
    return short_plan(plan)


def short_plan(plan: Plan) -> str:
    """Return a plan in a few columns: ``16@64`` is ``batch 16 x 64 px``, and ``16/2@64`` has two micro-batches.

    Not ``16x64``, which reads as the size of an image. The whole words have no room in the lines of steps.
    """
    if len(plan.values) == 2 and BATCH_SIZE in plan:
        return f"{_batch(plan)}@{plan.size}"
    return " ".join(f"{name} {_batch(plan) if name == BATCH_SIZE else value}" for name, value in plan.values)


def _batch(plan: Plan) -> str:
    return f"{plan.batch_size}/{plan.pieces}" if plan.pieces > 1 else f"{plan.batch_size}"


def parts_text(split: MicrobatchSplit, plan: Plan) -> str:
    """Return how many parts a pass ran in; of images, of which side."""
    if IMAGE_SIZE in plan:
        return f"{split.micro_batches} of {split.extent} px"
    return counted(split.micro_batches, "part")


def duration(seconds: float) -> str:
    """Return a time in two units, e.g. ``2h13m``."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02d}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest_s:02d}s" if minutes else f"{rest_s}s"


def in_thousands(number: int) -> str:
    """Return a count with three figures and K, M or G (powers of 1000)."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "K")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return str(number)


def pairs_lines(pairs: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Return labels with their texts beside them; what has no text is left out."""
    lines: list[str] = []
    for label, text in pairs:
        if text:
            lines += wrapped(f"{label:<{_LABEL_WIDTH}}{text}", width, " " * _LABEL_WIDTH)
    return lines


def wrapped(text: str, width: int, indent: str = _INDENT) -> list[str]:
    """Return a text in lines of at most ``width`` columns, what a terminal would act on written out; 0 is one line."""
    text = visible(text)
    if not width or len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _join(parts: Sequence[str], width: int) -> list[str]:
    """Set parts apart by two spaces and break lines only between them."""
    first, *others = map(visible, parts)
    lines = [first]
    for part in others:
        if width and len(lines[-1]) + 2 + len(part) > width:
            lines.append(_INDENT + part)
        else:
            lines[-1] += "  " + part
    return lines


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows in columns: the first to the left, all others to the right."""
    rows = [list(map(visible, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
