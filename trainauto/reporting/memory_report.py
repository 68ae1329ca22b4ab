"""What ``python -m trainauto report RUN`` says: what was predicted of a run's memory, what was measured."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from trainauto.core.decisions import Decision, KeepPlan, PlanChange
from trainauto.core.errors import InputError, Problem
from trainauto.core.json_text import read_lines, to_json
from trainauto.core.plan import Plan
from trainauto.core.records import MicrobatchSplit
from trainauto.core.units import size_text
from trainauto.core.words import counted, visible
from trainauto.reporting.formatting import (
    IMAGE_SIZE,
    WIDTH,
    decision_lines,
    oom_text,
    pairs_lines,
    parts_text,
    plan_text,
    prediction_cells,
    table,
)
from trainauto.reporting.plan_peaks import PlanPeak, PlanPeaks
from trainauto.reporting.run_course import Course, end_text, no_steps
from trainauto.reporting.run_figures import how_it_ended
from trainauto.reporting.validation_totals import Metric, metrics_of
from trainauto.storage.resumes import Resume, resumes_of
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import logged_decisions, logged_steps

_MOST_METRICS = 4
PHASES = ("forward", "backward", "optimizer")


@dataclass(frozen=True)
class Shortage:
    """A step in which memory ran out.

    Attributes:
        step: which.
        plan: the plan it was trained under.
        ooms: how often.
        pieces: how the passes ran in the end that did not run as planned.
    """

    step: int
    plan: Plan
    ooms: int
    pieces: Mapping[str, MicrobatchSplit]


@dataclass(frozen=True)
class Settled:
    """The last plan, since it was taken up.

    Attributes:
        plan: the last plan.
        since_step: first of the steps under it that no other plan interrupted.
        steps: how many.
        typical_bytes: median peak of the whole ones among them; ``None`` where nothing was measured.
        highest_bytes: the largest.
        samples_per_s: samples a second, waits for data included.
    """

    plan: Plan
    since_step: int
    steps: int
    typical_bytes: int | None
    highest_bytes: int | None
    samples_per_s: float


@dataclass(frozen=True)
class Validated:
    """The validations of one set: how many, their typical and highest peak, the tiles of the last, its OOM errors."""

    dataset: str
    times: int
    typical_bytes: int | None
    highest_bytes: int | None
    tile_px: int
    ooms: int = 0


@dataclass(frozen=True)
class MemoryReport:
    """What the logs of a run say of its memory.

    Attributes:
        run: folder of the run.
        status: how it ended, as its log says; else ``running``, ``killed``, or ``no end`` where nobody knows which.
        reason: why, in words; empty where nobody says.
        steps: steps so far.
        limit_bytes: memory the run may use, as last read; ``None`` where nobody says.
        plans: trained plans, in the order of their first steps.
        settled: the last of them.
        shortages: steps in which memory ran out.
        changes: plan changes with the step each was reported with.
        kept: times a plan stayed although memory had run out, and why.
        validations: by set.
        foresight: what was traced before the first step, as in foresight.json; empty where nothing was.
        resumes: starts after the first, with the options that were changed.
        loss: mean of the last steps; ``None`` where they had none.
        metrics: last and best value of each metric of its validations.
        page: its page; empty where it has none.
    """

    run: str
    status: str
    reason: str
    steps: int
    limit_bytes: int | None
    plans: Sequence[PlanPeak]
    settled: Settled
    shortages: Sequence[Shortage]
    changes: Sequence[tuple[int, PlanChange]]
    kept: Sequence[tuple[int, KeepPlan]]
    validations: Sequence[Validated]
    foresight: Mapping[str, Any] = field(default_factory=dict)
    resumes: Sequence[Resume] = ()
    loss: float | None = None
    metrics: Sequence[Metric] = ()
    page: str = ""


def memory_report(run: RunDirectory) -> MemoryReport:
    """Read the logs of a run, finished or not.

    Raises:
        InputError: it has no steps yet, or a log cannot be read.
    """
    status, reason = how_it_ended(run)
    run = run.of_steps
    by_plan, shortages = PlanPeaks(), []
    limit_bytes, last = None, _Stretch()
    steps, course = 0, Course()
    for record in logged_steps(run):
        steps += 1
        course.add(record)
        by_plan.add(record)
        if record.ooms:
            shortages.append(Shortage(record.step, record.plan, record.ooms, record.pieces))
        if record.peak is not None:  # a resume may have no budget any more
            limit_bytes = record.peak.limit
        if record.plan != last.plan:
            last = _Stretch(record.plan, record.step)
        last.peaks.add(record)
        last.samples += record.shape.samples
        last.seconds += record.data_seconds + record.step_seconds
    if last.plan is None:
        raise no_steps(run, status, reason)
    decided = list(logged_decisions(run))
    return MemoryReport(
        run=str(run.path),
        status=status,
        reason=reason,
        steps=steps,
        limit_bytes=limit_bytes,
        plans=by_plan.rows()[0],
        settled=last.settled(last.plan),
        shortages=shortages,
        changes=[(step, decision) for step, decision in decided if isinstance(decision, PlanChange)],
        kept=[(step, decision) for step, decision in decided if isinstance(decision, KeepPlan)],
        validations=_validations(run),
        foresight=_forecast(run),
        resumes=resumes_of(run),
        loss=course.latest_loss,
        metrics=metrics_of(read_lines(run.validations)),
        page=str(run.dashboard) if run.dashboard.is_file() else "",
    )


@dataclass
class _Stretch:
    """Steps in a row under one plan."""

    plan: Plan | None = None
    since_step: int = 0
    peaks: PlanPeaks = field(default_factory=PlanPeaks)
    samples: int = 0
    seconds: float = 0.0

    def settled(self, plan: Plan) -> Settled:
        row = self.peaks.rows()[0][0]
        rate = self.samples / self.seconds if self.seconds > 0 else 0.0
        return Settled(plan, self.since_step, row.steps, row.typical_bytes, row.highest_bytes, rate)


def _validations(run: RunDirectory) -> list[Validated]:
    by_dataset: dict[str, list[Mapping[str, Any]]] = {}
    for line in read_lines(run.validations):
        by_dataset.setdefault(str(line.get("dataset", "")), []).append(line)
    rows = []
    for dataset, lines in by_dataset.items():
        peaks = [line["peak"]["allocated"] for line in lines if line.get("peak")]
        typical, highest = (int(median(peaks)), max(peaks)) if peaks else (None, None)
        ooms = sum(line.get("ooms", 0) for line in lines)  # not in lines of earlier versions
        rows.append(Validated(dataset, len(lines), typical, highest, lines[-1].get("tile_px", 0), ooms))
    return rows


def _forecast(run: RunDirectory) -> Mapping[str, Any]:
    if not run.forecast.is_file():
        return {}
    try:
        forecast = json.loads(run.forecast.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(Problem(f"{run.forecast} cannot be read: {error}", advice="Delete it.")) from error
    return forecast if isinstance(forecast, dict) else {}


def as_json(report: MemoryReport) -> str:
    """Return the report as JSON, sizes in bytes."""
    return to_json(
        {
            **asdict(report),
            "plans": [{**asdict(row), "plan": row.plan.to_dict()} for row in report.plans],
            "settled": {**asdict(report.settled), "plan": report.settled.plan.to_dict()},
            "shortages": [{**asdict(shortage), "plan": shortage.plan.to_dict()} for shortage in report.shortages],
            "changes": [_decision(*change) for change in report.changes],
            "kept": [_decision(*change) for change in report.kept],
        }
    )


def _decision(step: int, decision: PlanChange | KeepPlan) -> dict[str, Any]:
    values = {name: value for name, value in asdict(decision).items() if name != "announced"}
    return {"step": step, **values, "plan": decision.plan.to_dict()}


def as_text(report: MemoryReport, width: int = WIDTH) -> str:
    """Return the report in lines of at most ``width`` columns."""
    blocks = [
        _head(report, width),
        ["training, by plan: predicted before the first step, measured in whole steps", *_plans(report.plans)],
        _traced(report, width),
        _validated(report.validations, report.settled.plan),
        [*_shortages(report.shortages), *_indented(report.kept, width)],
        ["plan changes", *_indented(report.changes, width)] if report.changes else ["no plan changes"],
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
        ("steps", f"{report.steps}; plan changes: {len(report.changes)}"),
        ("OOM", ooms or "none"),
        ("limit", size_text(report.limit_bytes) if report.limit_bytes else "none"),
        ("last plan", f"{settled.plan}, since step {settled.since_step} ({counted(settled.steps, 'step')})"),
        ("peak", ", ".join(use) or "not measured"),
        ("speed", f"{settled.samples_per_s:.1f} samples a second"),
        ("loss", f"{report.loss:.4g}, mean of the last steps" if report.loss is not None else ""),
        *(("validated", _metric_text(metric)) for metric in report.metrics[:_MOST_METRICS]),
        ("page", report.page),
    ]
    return pairs_lines(pairs, width)


def _metric_text(metric: Metric) -> str:
    best = f", best {metric.best.value:.4f} after step {metric.best.step}" if metric.best is not None else ""
    return f"{metric.dataset} {metric.name} {metric.last.value:.4f}{best}"


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
