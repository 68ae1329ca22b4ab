"""What ``python -m trainauto report RUN`` says: what was predicted of a run's memory, what was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from trainauto.core.decisions import (
    GiveUp,
    KeepPlan,
    MissingSteps,
    PlanChange,
    RateFactor,
    Rollback,
    Stop,
    decision_to_dict,
)
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import read_text
from trainauto.core.json_text import from_json, read_lines, to_json
from trainauto.core.plan import Plan
from trainauto.core.records import MicrobatchSplit, StepRecord
from trainauto.core.step_blocks import StepBlock
from trainauto.reporting.plan_peaks import PlanPeak, PlanPeaks
from trainauto.reporting.runs.course import Course, Speed, no_steps, summed
from trainauto.reporting.runs.figures import how_it_ended
from trainauto.reporting.runs.validation_totals import Metric, metrics_of
from trainauto.storage.resumes import Resume, resumes_of
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import logged_blocks, logged_decisions, whole_files


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


Watched = RateFactor | Rollback | Stop | GiveUp
"""Decisions that are few, and no plans."""


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
        status: how it ended, as its log says; else ``running``, ``killed``, or ``no end`` if that is unknown.
        reason: why, in words; empty if unknown.
        steps: steps so far.
        limit_bytes: memory the run may use, as last read; ``None`` if unknown.
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
        decided: rates, rollbacks and ends that automations have decided, with the step each was reported with.
        missing: the first and the last of steps that were trained and are not in the log.
        speed: of the last steps, as the page has it; ``None`` where they took no time.
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
    decided: Sequence[tuple[int, Watched]] = ()
    missing: Sequence[tuple[int, int]] = ()
    speed: Speed | None = None


def memory_report(run: RunDirectory) -> MemoryReport:
    """Read the logs of a run, finished or not.

    Raises:
        InputError: it has no steps yet, or a log cannot be read.
    """
    with whole_files(run):
        return _memory_report(run)


def _memory_report(run: RunDirectory) -> MemoryReport:
    status, reason = how_it_ended(run)
    run = run.of_steps
    steps = _Steps()
    for part in logged_blocks(run):
        steps.take(part)
    last = steps.last
    if last.plan is None:
        raise no_steps(run, status, reason)
    decided = list(logged_decisions(run))
    noted = [(one.first, one.last) for _, one in decided if isinstance(one, MissingSteps)]
    return MemoryReport(
        run=str(run.path),
        status=status,
        reason=reason,
        steps=steps.count,
        limit_bytes=steps.limit_bytes,
        plans=steps.by_plan.rows()[0],
        settled=last.settled(last.plan),
        shortages=steps.shortages,
        changes=[(step, decision) for step, decision in decided if isinstance(decision, PlanChange)],
        kept=[(step, decision) for step, decision in decided if isinstance(decision, KeepPlan)],
        validations=_validations(run),
        foresight=_forecast(run),
        resumes=resumes_of(run),
        loss=steps.course.latest_loss,
        metrics=metrics_of(read_lines(run.validations)),
        page=str(run.dashboard) if run.dashboard.is_file() else "",
        decided=[(step, decision) for step, decision in decided if isinstance(decision, Watched)],
        missing=sorted({*steps.missing, *noted}),
        speed=steps.course.speed,
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


@dataclass
class _Steps:
    """The steps of a run, summed up; attributes as of :class:`MemoryReport`."""

    count: int = 0
    limit_bytes: int | None = None
    course: Course = field(default_factory=Course)
    by_plan: PlanPeaks = field(default_factory=PlanPeaks)
    last: _Stretch = field(default_factory=_Stretch)
    shortages: list[Shortage] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)

    def take(self, part: StepBlock | StepRecord) -> None:
        """Take in a step, or steps that went alike."""
        first = part.first if isinstance(part, StepBlock) else part
        if self.course.last is not None and first.step > self.course.last.step + 1:
            self.missing.append((self.course.last.step + 1, first.step - 1))
        if first.peak is not None:  # a resume may have no budget any more
            self.limit_bytes = first.peak.limit
        if first.plan != self.last.plan:
            self.last = _Stretch(first.plan, first.step)
        if first.ooms:
            self.shortages.append(Shortage(first.step, first.plan, first.ooms, first.pieces))
        for sums in (self.course, self.by_plan, self.last.peaks):
            sums.add_block(part) if isinstance(part, StepBlock) else sums.add(part)
        many = len(part) if isinstance(part, StepBlock) else 1
        seconds = part.seconds if isinstance(part, StepBlock) else [first.data_seconds + first.step_seconds]
        self.count += many
        self.last.samples += many * first.shape.samples
        self.last.seconds = summed(self.last.seconds, seconds)


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
        forecast = from_json(read_text(run.forecast))
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
            "decided": [decision_to_dict(*one) for one in report.decided],
        }
    )


def _decision(step: int, decision: PlanChange | KeepPlan) -> dict[str, Any]:
    values = {name: value for name, value in asdict(decision).items() if name != "announced"}
    return {"step": step, **values, "plan": decision.plan.to_dict()}
