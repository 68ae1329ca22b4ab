"""What a page shows of a run, gathered as its reports come in, or from its logs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainauto.core.decisions import Decision
from trainauto.core.records import StepRecord
from trainauto.reporting.dashboard.bounded_curves import Changes, Curves
from trainauto.reporting.dashboard.events import Event, Events, event_of, shortage_of
from trainauto.reporting.plan_peaks import PlanPeaks
from trainauto.reporting.run_course import RUNNING, Course

LOSS, TERM, TASK, RATE, NORM = "loss", "loss/", "task_loss/", "lr/", "grad_norm/"
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
        total: its length in ``unit``; ``None`` where nobody says.
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

    Attributes:
        course: its steps, summed up.
        curves: what each step was worth.
        plan: the values of plans by axis, where they change.
        plans: what each plan was predicted to take, and took.
        validations: a curve a metric by set, over the steps of its validations.
        lines: the validations as validation.jsonl has them, without the scores of single samples.
        events: what happened.
        status: ``running``, or how it ended.
        reason: why, in words.
    """

    def __init__(self) -> None:
        self.course = Course()
        self.curves = Curves()
        self.plan: dict[str, Changes] = {}
        self.plans = PlanPeaks()
        self.validations: dict[str, Curves] = {}
        self.lines: list[dict[str, Any]] = []
        self.events = Events()
        self.status, self.reason = RUNNING, ""
        self._lost_loss = False

    def step(self, record: StepRecord, time: float | None) -> None:
        """Take a step in."""
        self.course.add(record)
        self.plans.add(record)
        values = values_of(record)
        self.curves.add(record.step, values)
        for name, value in record.plan.to_dict().items():
            self.plan.setdefault(name, Changes()).add(record.step, value)
        if record.ooms:
            self.events.add(shortage_of(record, time))
        is_lost = bool(record.losses) and not math.isfinite(values[LOSS])
        if is_lost and not self._lost_loss:
            self.events.add(Event(record.step, "fail", "the loss is no finite number", "", time))
        self._lost_loss = is_lost

    def decision(self, step: int, decision: Decision, time: float | None) -> None:
        """Take a decision in."""
        self.events.add(event_of(step, decision, time))

    def validation(self, line: Mapping[str, Any]) -> None:
        """Take a validation in, as a line of validation.jsonl has it."""
        kept = {key: value for key, value in line.items() if key != "scores"}
        self.lines.append(kept)
        curves = self.validations.setdefault(str(line.get("dataset", "")), Curves())
        values = {name: float(value) for name, value in line.get("metrics", {}).items()}
        costless = {f"{name}/{BASELINE}": float(value) for name, value in baseline_of(line).items()}
        curves.add(int(line["step"]), values | costless)
        if line.get("ooms"):
            text = "the part that did not fit was taken in smaller ones"
            title = f"out of memory in the validation of {line.get('dataset', '')}"
            self.events.add(Event(int(line["step"]), "oom", title, text, line.get("time")))

    def resumed(self, step: int, changes: Sequence[str], time: float | None) -> None:
        """Take in that the run was resumed after a step."""
        text = "; ".join(changes) or "no option was changed"
        self.events.add(Event(step, "resume", f"resumed after step {step}", text, time))

    def ending(self) -> list[Event]:
        """Return the end as an event; none while the run goes on."""
        if self.status == RUNNING:
            return []
        last = self.course.last
        kind = "fail" if self.status in FAILURES else "stop"
        return [Event(last.step if last is not None else 0, kind, self.status, self.reason)]


BASELINE = "baseline"
"""What ends the name of the curve of what costs nothing."""

FAILURES = ("failed", "killed", "no end")
"""Ends of a run that nobody wanted."""

_NO_BASELINE = frozenset({"metrics", "better_is_higher", "peak"})


def baseline_of(line: Mapping[str, Any]) -> Mapping[str, float]:
    """Return what costs nothing, of a validation: its key has the name of what it is, e.g. ``bicubic``."""
    return next((value for _, value in _baselines(line)), {})


def baseline_name(line: Mapping[str, Any]) -> str:
    """Return what the baseline of a validation is of; empty where there is none."""
    return next((name for name, _ in _baselines(line)), "")


def _baselines(line: Mapping[str, Any]) -> list[tuple[str, Mapping[str, float]]]:
    return [
        (key, value) for key, value in line.items() if isinstance(value, Mapping) and value and key not in _NO_BASELINE
    ]


def values_of(record: StepRecord) -> dict[str, float]:
    """Return what the curves show of a step; sizes in bytes, times in seconds."""
    values: dict[str, float] = {}
    if record.losses:
        values[LOSS] = sum(record.losses.values())
    if len(record.losses) > 1:
        values |= {TERM + name: value for name, value in record.losses.items()}
    values |= {TASK + name: value for name, value in record.task_losses.items()}
    values |= {RATE + name: value for name, value in record.learning_rates.items()}
    values |= {NORM + name: value for name, value in record.grad_norms.items()}
    shape, seconds = record.shape, record.data_seconds + record.step_seconds
    values |= {DATA: record.data_seconds, COMPUTE: record.step_seconds}
    values |= {STEPS: 1, SECONDS: seconds, SAMPLES: shape.samples}
    if shape.tokens:
        values[TOKENS] = shape.tokens
        if record.units <= shape.tokens:  # the tokens of the texts themselves
            values[PADDING] = 100 * (1 - record.units / shape.tokens)
    peak = record.peak
    if peak is not None:
        sizes = {PEAK: peak.allocated, RESERVED: peak.reserved, CURRENT: peak.current}
        sizes |= {DEVICE: peak.device_used, LIMIT: peak.limit}
        values |= {name: size for name, size in sizes.items() if size is not None}
    if record.predicted is not None:
        values[PREDICTED] = record.predicted
    return values
