"""What the validations of a run have found so far: kept in training_log.json, to avoid reading all their scores."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainauto.core.json_text import read_lines
from trainauto.reporting.runs.course import Start
from trainauto.storage.run_directory import RunDirectory, length_until

KEY = "validations"
"""Of ``totals`` in training_log.json: :meth:`ValidationTotals.to_dict`."""


@dataclass(frozen=True)
class Value:
    """What was measured, after which step (``None`` where that is not written), and what costs nothing there."""

    value: float
    step: int | None = None
    baseline: float | None = None


@dataclass(frozen=True)
class Metric:
    """One metric of one validation set over a run.

    Attributes:
        dataset: name of the set.
        name: of the metric.
        better_is_higher: whether higher values are better; ``None`` where the log does not say.
        last: its last value.
        best: the first of the best values that were measured as the last one was; ``None`` where no value is finite, or
            it is not known which is better.
        baseline_name: what the baseline of its values is of; empty where there is none.
        measured_by: arguments and samples of the last value, in words; empty where the log does not say.
    """

    dataset: str
    name: str
    better_is_higher: bool | None
    last: Value
    best: Value | None = None
    baseline_name: str = ""
    measured_by: str = ""

    def then(self, later: "Metric") -> "Metric":
        """Return the metric after what later validations have found.

        Its best belongs to its arguments and samples: where they change, it begins anew.
        """
        measured_by = later.measured_by or self.measured_by
        is_same = not self.measured_by or self.measured_by == measured_by
        bests = [best for best in (self.best if is_same else None, later.best) if best is not None]
        return replace(later, best=best_of(bests, later.better_is_higher), measured_by=measured_by)


@dataclass
class ValidationTotals:
    """Last and best of each metric of each set, in the order in which they first came.

    Attributes:
        ooms: times memory ran out in validations.
        step: after which the last of them ran; -1 before the first.
        found: the metrics, by set and name.
    """

    ooms: int = 0
    step: int = -1
    found: dict[tuple[str, str], Metric] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "ValidationTotals":
        """Return what :meth:`to_dict` wrote.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is something else.
        """
        metrics = [
            Metric(
                str(one["dataset"]),
                str(one["name"]),
                one["better_is_higher"],
                _value(one["last"]),
                _best(one),
                str(one.get("baseline_name", "")),  # these two are not in files of earlier versions
                str(one.get("measured_by", "")),
            )
            for one in content["metrics"]
        ]
        return cls(
            int(content["out_of_memory"]), int(content["step"]), {(one.dataset, one.name): one for one in metrics}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return them for JSON, ``last`` and ``best`` as a value, a step, and what costs nothing there."""
        return {
            "out_of_memory": self.ooms,
            "step": self.step,
            "metrics": [
                {
                    "dataset": one.dataset,
                    "name": one.name,
                    "better_is_higher": one.better_is_higher,
                    "last": list(vars(one.last).values()),
                    "best": None if one.best is None else list(vars(one.best).values()),
                    "baseline_name": one.baseline_name,
                    "measured_by": one.measured_by,
                }
                for one in self.found.values()
            ],
        }

    def add(self, line: Mapping[str, Any]) -> None:
        """Take in a validation, as its line has it; one that was taken in already adds nothing."""
        step = line.get("step")
        found = _metrics_in(line)
        new = [metric for metric in found if not self._has(metric)]
        if not new and (found or (step is not None and step <= self.step)):
            return
        self.step = self.step if step is None else max(self.step, int(step))
        self.ooms += line.get("ooms", 0)  # not in lines of earlier versions
        for metric in new:
            self._join(metric)

    def join(self, later: "ValidationTotals") -> None:
        """Take in what validations after these have found."""
        self.ooms += later.ooms
        self.step = max(self.step, later.step)
        for metric in later.found.values():
            self._join(metric)

    def _has(self, metric: Metric) -> bool:
        known = self.found.get((metric.dataset, metric.name))
        steps = (known.last.step, metric.last.step) if known is not None else (None, None)
        return steps[0] is not None and steps[1] is not None and steps[1] <= steps[0]

    def _join(self, later: Metric) -> None:
        key = later.dataset, later.name
        self.found[key] = self.found[key].then(later) if key in self.found else later


def validations_of(starts: Sequence[Start], logs: Sequence[Mapping[str, Any]]) -> ValidationTotals:
    """Return what the validations of a run have found, without those that were trained again.

    Training_log.json has nearly all of it, and the end of validation.jsonl what came after; all of that is read only
    where it does not (earlier versions, and starts of a Trainer that were resumed from before their last validation).

    Args:
        starts: the folders with the steps of the run, the oldest first.
        logs: the training_log.json of each.
    """
    totals = ValidationTotals()
    for start, log in zip(starts, logs, strict=True):
        known = _known(log)
        if known.step >= start.end:
            known = ValidationTotals()
        add_logged(known, start.folder, start.end)
        totals.join(known)
    return totals


def add_logged(totals: ValidationTotals, run: RunDirectory, end: float = math.inf) -> None:
    """Take in what is logged of a run and not yet in the totals, before the step ``end``; only that is read."""
    start_bytes = length_until(run.validations, totals.step - 1) if totals.step >= 0 else 0
    for line in read_lines(run.validations, start_bytes):  # one step has several sets: some of them may be in
        if line.get("step", 0) < end:
            totals.add(line)


def _known(log: Mapping[str, Any]) -> ValidationTotals:
    try:
        return ValidationTotals.from_dict(log["totals"][KEY])
    except (KeyError, TypeError, ValueError, AttributeError):
        return ValidationTotals()


def metrics_of(lines: Iterable[Mapping[str, Any]]) -> list[Metric]:
    """Return the metrics of a log of validations, in the order in which they first come."""
    totals = ValidationTotals()
    for line in lines:
        totals.add(line)
    return list(totals.found.values())


def _metrics_in(line: Mapping[str, Any]) -> list[Metric]:
    dataset, higher = str(line.get("dataset", "")), line.get("better_is_higher", {})
    measured_by, (costless_name, costless) = line.get("measured_by", {}), baseline_of(line)
    metrics = []
    for name, number in line.get("metrics", {}).items():
        value = Value(float(number), line.get("step"), costless.get(name))
        best = best_of([value], higher.get(name))
        metrics.append(
            Metric(dataset, name, higher.get(name), value, best, costless_name, str(measured_by.get(name, "")))
        )
    return metrics


_NO_BASELINE = frozenset({"metrics", "better_is_higher", "left_out", "measured_by", "peak"})


def baseline_of(line: Mapping[str, Any]) -> tuple[str, Mapping[str, float]]:
    """Return the name of what costs nothing, which is its key in the line of a validation, and its values."""
    for key, values in line.items():
        if isinstance(values, Mapping) and values and key not in _NO_BASELINE:
            return key, {name: float(value) for name, value in values.items()}
    return "", {}


def best_of(values: Iterable[Value], better_is_higher: bool | None) -> Value | None:
    """Return the first of the best finite values; ``None`` where there is none, or it is not known which is better."""
    numbers = [value for value in values if math.isfinite(value.value)]
    if better_is_higher is None or not numbers:
        return None
    return (max if better_is_higher else min)(numbers, key=lambda value: value.value)


def _value(pair: Sequence[Any]) -> Value:
    value, step, *rest = pair  # a pair in files of earlier versions
    baseline = float(rest[0]) if rest and rest[0] is not None else None
    return Value(float(value), None if step is None else int(step), baseline)


def _best(one: Mapping[str, Any]) -> Value | None:
    return None if one["best"] is None else _value(one["best"])
