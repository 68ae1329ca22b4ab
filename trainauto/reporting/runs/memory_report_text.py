"""The report of a run's memory in words: as_text of what memory_report.py has read."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainauto.core.decisions import Decision
from trainauto.core.plan import Plan
from trainauto.core.units import size_text
from trainauto.core.words import counted, visible
from trainauto.reporting.formatting import (
    IMAGE_SIZE,
    WIDTH,
    decision_lines,
    metric_text,
    oom_text,
    pairs_lines,
    parts_text,
    plan_text,
    prediction_cells,
    table,
)
from trainauto.reporting.plan_peaks import PlanPeak
from trainauto.reporting.runs.course import end_text
from trainauto.reporting.runs.memory_report import MemoryReport, Shortage, Validated
from trainauto.reporting.runs.validation_totals import Metric
from trainauto.storage.resumes import Resume

_MOST_METRICS = 4
PHASES = ("forward", "backward", "optimizer")


def as_text(report: MemoryReport, width: int = WIDTH) -> str:
    """Return the report in lines of at most ``width`` columns."""
    blocks = [
        _head(report, width),
        ["training, by plan: predicted before the first step, measured in whole steps", *_plans(report.plans)],
        _traced(report, width),
        _validated(report.validations, report.settled.plan),
        [*_shortages(report.shortages), *_indented(report.kept, width)],
        ["plan changes", *_indented(report.changes, width)] if report.changes else ["no plan changes"],
        ["decided by automations", *_indented(report.decided, width)] if report.decided else [],
        _resumes(report.resumes, width),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _head(report: MemoryReport, width: int) -> list[str]:
    settled = report.settled
    use = []
    for label, size in (("typical", settled.typical_bytes), ("highest", settled.highest_bytes)):
        if size is not None:
            share = f" ({size / report.limit_bytes:.1%} of the limit)" if report.limit_bytes else ""
            use.append(f"{label} {size_text(size)}{share}")
    of_validation = sum(row.ooms for row in report.validations)
    piece = "tile" if _has_tiles(report.validations, settled.plan) else "batch"
    ooms = oom_text(sum(row.ooms for row in report.shortages), of_validation, piece)
    pairs = [
        ("run", report.run),
        ("status", end_text(report.status, report.reason)),
        ("steps", f"{report.steps}{' in the log' if report.missing else ''}; plan changes: {len(report.changes)}"),
        ("missing", _missing(report.missing)),
        ("OOM", ooms or "none"),
        ("limit", size_text(report.limit_bytes) if report.limit_bytes else "none"),
        ("last plan", f"{settled.plan}, since step {settled.since_step} ({counted(settled.steps, 'step')})"),
        ("peak", ", ".join(use) or "not measured"),
        ("speed", f"{report.speed.in_samples}, {report.speed.in_steps}" if report.speed is not None else ""),
        ("loss", f"{report.loss:.4g}, mean of the last steps" if report.loss is not None else ""),
        *(("validated", _metric_text(metric)) for metric in report.metrics[:_MOST_METRICS]),
        ("page", report.page),
    ]
    return pairs_lines(pairs, width)


def _missing(gaps: Sequence[tuple[int, int]]) -> str:
    """Say which steps no figure knows of."""
    if not gaps:
        return ""
    listed = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in gaps)
    return f"the log lacks steps {listed}: they were trained, and no figure here knows of them"


def _metric_text(metric: Metric) -> str:
    best = f", best {metric_text(metric.best.value)} after step {metric.best.step}" if metric.best is not None else ""
    return f"{metric.dataset} {metric.name} {metric_text(metric.last.value)}{best}"


def _plans(rows: Sequence[PlanPeak]) -> list[str]:
    return table([["plan", "steps", "predicted", "typical", "highest", "error"], *map(prediction_cells, rows)])


def _traced(report: MemoryReport, width: int) -> list[str]:
    """Return the traced plans by phase, beside what was measured where they were trained."""
    traced = report.foresight.get("traced", [])
    if not traced:
        return []
    # On the CPU peaks are counted from what was held before the first step.
    on_cpu = report.foresight.get("device_type") == "cpu"
    persistent_bytes = int(report.foresight.get("persistent_bytes", 0))
    rows = [["plan", *PHASES, "whole", "measured"]]
    for trace in traced:
        phases = [trace.get("phases", {}).get(name) for name in PHASES]
        measured = [
            row.typical_bytes
            for row in report.plans
            if (row.plan.forward_batch_size, row.plan.size) == (trace["batch"], _size_of(trace)) and row.typical_bytes
        ]
        sizes = [*phases, trace["live_bytes"]]
        at_peak = [None if size is None else size - (persistent_bytes if on_cpu else 0) for size in sizes]
        cells = ["-" if size is None else size_text(size) for size in [*at_peak, max(measured, default=None)]]
        rows.append([f"{trace['batch']}x{_size_of(trace)}", *cells])
    seconds = report.foresight.get("seconds", 0.0)
    head = [f"traced before the first step: {counted(len(traced), 'plan')} in {seconds:.1f} s; peak of each phase"]
    less = " (counted without them, as measured peaks are on a CPU)" if on_cpu else ""
    return [*head, *table(rows), *pairs_lines([("held", f"{size_text(persistent_bytes)} between steps{less}")], width)]


def _size_of(trace: Mapping[str, Any]) -> int:
    return int(trace["size"] if "size" in trace else trace["lq_size"])  # as earlier versions wrote it


def _validated(rows: Sequence[Validated], plan: Plan) -> list[str]:
    if not rows:
        return []
    tiles = _has_tiles(rows, plan)
    cells = [["set", "times", "typical", "highest", *(["tiles"] if tiles else []), "out of memory"]]
    for row in rows:
        sizes = ["-" if size is None else size_text(size) for size in (row.typical_bytes, row.highest_bytes)]
        tile = [f"{row.tile_px} px" if row.tile_px else "whole"] if tiles else []
        cells.append([row.dataset[:30], str(row.times), *sizes, *tile, str(row.ooms)])
    return ["validation: peak of each", *table(cells)]


def _has_tiles(rows: Sequence[Validated], plan: Plan) -> bool:
    return IMAGE_SIZE in plan or any(row.tile_px for row in rows)


def _shortages(rows: Sequence[Shortage]) -> list[str]:
    if not rows:
        return ["memory never ran out in training"]
    cells = [["step", "plan", "times", "ran in the end in"]]
    for row in rows:
        ran = ", ".join(f"{name} {parts_text(split, row.plan)}" for name, split in row.pieces.items())
        cells.append([str(row.step), plan_text(row.plan), str(row.ooms), ran or "a smaller batch"])
    return ["out of memory", *table(cells)]


def _resumes(resumes: Sequence[Resume], width: int) -> list[str]:
    if not resumes:
        return []
    lines = []
    for resume in resumes:
        changed = "; ".join(resume.changes) or "no option was changed"
        text = visible(f"after step {resume.after_step}, {resume.time}: {changed}")
        lines += textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
    return ["resumes", *lines]


def _indented(changes: Sequence[tuple[int, Decision]], width: int) -> Iterator[str]:
    for step, change in changes:
        yield from (f"  {line}" for line in decision_lines(step, change, width - 2))
