"""What a page shows of a run, gathered as its reports come in, or from its logs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, repeat
from typing import Any

from trainauto.core.decisions import Decision
from trainauto.core.noise_scale import NoiseScales
from trainauto.core.plan import Plan
from trainauto.core.records import StepRecord
from trainauto.core.step_blocks import StepBlock
from trainauto.core.words import counted
from trainauto.reporting.dashboard.bounded_curves import Changes, Curves
from trainauto.reporting.dashboard.events import Event, Events, event_of, shortage_of
from trainauto.reporting.plan_peaks import PlanPeaks
from trainauto.reporting.runs.course import NO_END, RUNNING, Course
from trainauto.reporting.runs.validation_totals import Metric, ValidationTotals, baseline_of
from trainauto.reporting.time_left import TimeLeft

LOSS, TERM, TASK, RATE, NORM = "loss", "loss/", "task_loss/", "lr/", "grad_norm/"
NOISE = "noise_scale/"
"""Curves of the sum of the losses, and how those of each loss, task, learning rate and gradient norm begin."""

PEAK, RESERVED, CURRENT, DEVICE = "peak", "reserved", "current", "device_used"
LIMIT, PREDICTED = "limit", "predicted"
STEPS, SAMPLES, TOKENS, SECONDS = "steps", "samples", "tokens", "seconds"
DATA, COMPUTE, PADDING = "data", "compute", "padding"


@dataclass(frozen=True)
class About:
    """What is known of a run beside its course.

    Attributes:
        name: of the experiment.
        folder: where its files are, as the person should read it.
        total: its length in ``unit``; ``None`` if unknown.
        unit: what the length is counted in: steps or samples.
        started: when it was first started, in words.
        target_bytes: peak that a controller steers to.
        limit_bytes: memory it may use, as known before the first step.
        facts: (label, text) of what is trained, on what.
        changed: options with other values than their defaults, as (key, value, default).
        options: all options, by dotted keys.
        environment: (label, text) of versions and the machine.
    """

    name: str
    folder: str
    total: int | None = None
    unit: str = "steps"
    started: str = ""
    target_bytes: int | None = None
    limit_bytes: int | None = None
    facts: Sequence[tuple[str, str]] = ()
    changed: Sequence[tuple[str, str, str]] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Sequence[tuple[str, str]] = ()


class RunHistory:
    """The course of a run; as large after a million steps as after some thousand.

    Args:
        total: its length in ``unit``; ``None`` if unknown.
        unit: what the length is counted in: steps or samples.

    Attributes:
        course: its steps, summed up.
        curves: what each step was worth.
        terms: the losses that it trains by.
        plan: the values of plans by axis, where they change.
        plans: what each plan was predicted to take, and took.
        validations: a curve a metric by set, over the steps of its validations.
        left_out: images that the last mean of each metric leaves out, by set and name.
        validation_ooms: times memory ran out in validations.
        events: what happened.
        status: ``running``, or how it ended.
        reason: why, in words.
    """

    def __init__(self, total: int | None = None, unit: str = "steps") -> None:
        self.course = Course()
        self.curves = Curves()
        self.terms: set[str] = set()
        self.plan: dict[str, Changes] = {}
        self.plans = PlanPeaks()
        self.validations: dict[str, Curves] = {}
        self._validated = ValidationTotals()
        self.left_out: dict[tuple[str, str], int] = {}
        self.validation_ooms = 0
        self.events = Events()
        self.status, self.reason = RUNNING, ""
        self._total, self._unit = total, unit
        self._time_left = TimeLeft(total or 0, "samples" if unit == "samples" else "steps")
        self._lost_loss = False
        self._noise = NoiseScales()
        self._plan_before: Plan | None = None
        self._plan_changes: Sequence[Changes] = ()

    def step(self, record: StepRecord, time: float | None) -> None:
        """Take a step in."""
        self.course.add(record)
        self.plans.add(record)
        if not self.terms.issuperset(record.losses):
            self.terms |= set(islice(record.losses, MOST_OF_A_KIND))
        self._time_left.step(record)
        values = values_of(record)
        if record.noise:
            values |= _first(NOISE, self._noise.add(record.noise))
        self.curves.add(record.step, values)
        self._follow_plan(record.step, record.plan)
        if record.ooms:
            self.events.add(shortage_of(record, time))
        is_lost = bool(record.losses) and not math.isfinite(values[LOSS])
        if is_lost and not self._lost_loss:
            self.events.add(Event(record.step, "fail", "the loss is not finite", "", time))
        self._lost_loss = is_lost

    def block(self, block: StepBlock) -> None:
        """Take steps in that went alike."""
        first = block.first
        self.course.add_block(block)
        self.plans.add_block(block)
        if not self.terms.issuperset(first.losses):
            self.terms |= set(islice(first.losses, MOST_OF_A_KIND))
        self._time_left.steps(block.seconds, first.shape.samples)
        names, columns = columns_of(block)
        self.curves.add_rows(first.step, names, list(zip(*columns, strict=True)))
        self._follow_plan(first.step, first.plan)
        for changes in self._plan_changes:
            changes.stays(block.last_step)
        self._lost_loss = False

    def _follow_plan(self, step: int, plan: Plan) -> None:
        if plan == self._plan_before:
            for changes in self._plan_changes:
                changes.stays(step)
            return
        values = plan.to_dict()
        for name, value in values.items():
            self.plan.setdefault(name, Changes()).add(step, value)
        self._plan_before, self._plan_changes = plan, [self.plan[name] for name in values]

    def curve_of(self, term: str) -> str:
        """Return the name of a loss's curve: of a single one, that is the sum of all."""
        return TERM + term if len(self.terms) > 1 else LOSS

    @property
    def metrics(self) -> dict[tuple[str, str], Metric]:
        """The metrics of its validations, by set and name."""
        return self._validated.found

    def decision(self, step: int, decision: Decision, time: float | None) -> None:
        """Take a decision in."""
        self.events.add(event_of(step, decision, time))

    def validation(self, line: Mapping[str, Any]) -> None:
        """Take a validation in, as a line of validation.jsonl has it."""
        dataset, step = str(line.get("dataset", "")), int(line["step"])
        self._time_left.validation(float(line.get("seconds", 0.0)))
        values = {name: float(value) for name, value in line.get("metrics", {}).items()}
        costless = baseline_of(line)[1]
        curves = self.validations.setdefault(dataset, Curves())
        curves.add(step, values | {f"{name}/{BASELINE}": value for name, value in costless.items()})
        self._validated.add(line)
        for name in values:
            self.left_out[dataset, name] = int(line.get("left_out", {}).get(name, 0))
        ooms = int(line.get("ooms", 0))
        if ooms:
            self.validation_ooms += ooms
            text = "what ran out of memory ran again in smaller parts"
            title = f"out of memory, {counted(ooms, 'time')}, in the validation of {dataset}"
            self.events.add(Event(step, "oom", title, text, line.get("time")))

    def resumed(self, step: int, changes: Sequence[str], time: float | None) -> None:
        """Take in that the run was resumed after a step."""
        text = "; ".join(changes) or "no option was changed"
        self.events.add(Event(step, "resume", f"resumed after step {step}", text, time))

    @property
    def done(self) -> int:
        """How much of its length lies behind."""
        last = self.course.last
        return self.course.samples if self._unit == "samples" else last.step if last is not None else 0

    @property
    def goes_on(self) -> bool:
        """Whether it trains, as far as anybody knows."""
        return self.status in (RUNNING, NO_END)

    @property
    def left_s(self) -> float | None:
        """Seconds that are left, validations included; ``None`` where it has ended, or if unknown."""
        return self._time_left.seconds(self.done) if self._total and self.goes_on else None

    def ending(self) -> list[Event]:
        """Return the end as an event; none while the run goes on."""
        if self.goes_on:
            return []
        last = self.course.last
        kinds = {"completed": "end", "stopped": "end"}
        kind = "fail" if self.status in FAILURES else kinds.get(self.status, "stop")
        return [Event(last.step if last is not None else 0, kind, self.status, self.reason)]


MOST_OF_A_KIND = 24
"""Losses, tasks, rates and norms that are kept of a step: of more, the first."""

BASELINE = "baseline"
"""What ends the name of the curve of what costs nothing."""

FAILURES = ("failed", "killed")
"""Unintended ends of a run."""


def values_of(record: StepRecord) -> dict[str, float]:
    """Return what the curves show of a step; sizes in bytes, times in seconds."""
    values: dict[str, float] = {}
    if record.losses:
        values[LOSS] = record.loss
    if len(record.losses) > 1:
        values |= _first(TERM, record.losses)
    if record.task_losses:
        values |= _first(TASK, record.task_losses)
    values |= _first(RATE, record.learning_rates)
    values |= _first(NORM, record.grad_norms)
    shape, seconds = record.shape, record.data_seconds + record.step_seconds
    values[DATA], values[COMPUTE] = record.data_seconds, record.step_seconds
    values[STEPS], values[SECONDS], values[SAMPLES] = 1, seconds, shape.samples
    if shape.tokens:
        values[TOKENS] = shape.tokens
        if record.units <= shape.tokens:  # the tokens of the texts themselves
            values[PADDING] = 100 * (1 - record.units / shape.tokens)
    peak = record.peak
    if peak is not None:
        values[PEAK] = peak.allocated
        for name, size in (
            (RESERVED, peak.reserved),
            (CURRENT, peak.current),
            (DEVICE, peak.device_used),
            (LIMIT, peak.limit),
        ):
            if size is not None:
                values[name] = size
    if record.predicted is not None:
        values[PREDICTED] = record.predicted
    return values


def columns_of(block: StepBlock) -> tuple[tuple[str, ...], list[Iterable[float]]]:
    """Return what the curves show of steps that went alike: the names of :func:`values_of`, and values of each."""
    values, told = values_of(block.first), block.first.told
    varying: dict[str, Sequence[float]] = {DATA: block.column("data_s"), COMPUTE: block.column("step_s")}
    varying[SECONDS] = block.seconds
    for start, key in ((TERM, "losses"), (RATE, "lr"), (NORM, "grad_norm")):
        varying |= {start + name: block.column(key, name) for name in block.names(key)}
    minimised = [varying[TERM + name] for name in block.first.losses if name not in told]
    varying[LOSS] = [sum(terms) for terms in zip(*minimised, strict=True)]
    for name, key in ((PEAK, "allocated"), (RESERVED, "reserved"), (CURRENT, "current"), (DEVICE, "device_used")):
        varying[name] = block.counts("peak", key)
    return tuple(values), [varying.get(name) or repeat(value, len(block)) for name, value in values.items()]


def _first(start: str, values: Mapping[str, float]) -> dict[str, float]:
    return dict(zip(_names(start, tuple(values)), values.values(), strict=False))


@lru_cache(maxsize=256)
def _names(start: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the first curves of a kind; those of one step are those of most."""
    return tuple(start + name for name in names[:MOST_OF_A_KIND])
