"""What a run has come to: its options, how it went, what its validations found; whatever it trains."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainauto.core.json_text import read_object
from trainauto.reporting.runs.course import NO_END, Course, end_of, starts_of
from trainauto.reporting.runs.totals import totals_of
from trainauto.reporting.runs.validation_totals import Metric, ValidationTotals, Value, validations_of
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import whole_files

ACCURACY_FILE = "accuracy.json"
"""Of a run: the share of right answers by validation set and task."""


@dataclass(frozen=True)
class RunFigures:
    """A run in figures; it may still be training.

    Attributes:
        path: its folder, absolute.
        options: those of config.json, by dotted keys.
        status: how it ended, as its log says; else ``running``, ``killed``, or ``no end`` if that is unknown.
        reason: why, in words; empty if unknown.
        steps: the last step.
        total: its length in ``unit``; ``None`` where the log does not say.
        unit: what the length is counted in: steps or samples.
        samples: samples trained.
        seconds: seconds trained, waits for data included, validations and checkpoints left out.
        learning_rates: those of the last step, by optimizer.
        training_loss: the last mean that its log has; ``None`` before the first step.
        ooms: times memory ran out in training.
        validation_ooms: times it ran out in validations.
        memory_bytes: median peak of whole steps since the last plan was taken up; ``None`` where nothing was measured.
        limit_bytes: memory it may use, as last read; ``None`` if unknown.
        metrics: what validations found.
    """

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    status: str = NO_END
    reason: str = ""
    steps: int = 0
    total: int | None = None
    unit: str = "steps"
    samples: int = 0
    seconds: float = 0.0
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    training_loss: float | None = None
    ooms: int = 0
    validation_ooms: int = 0
    memory_bytes: int | None = None
    limit_bytes: int | None = None
    metrics: Sequence[Metric] = ()

    @property
    def share_done(self) -> float | None:
        """How much of its length lies behind, 0 to 1; ``None`` if its length is unknown."""
        return (self.steps if self.unit == "steps" else self.samples) / self.total if self.total else None

    @property
    def share_of_limit(self) -> float | None:
        """Its memory as a share of what it may use; ``None`` where one of them is not known."""
        return self.memory_bytes / self.limit_bytes if self.memory_bytes is not None and self.limit_bytes else None


def figures_of(run: RunDirectory) -> RunFigures:
    """Read what a run has come to.

    Raises:
        InputError: a line of its log holds no step that this version can read.
    """
    with whole_files(run):
        return _figures(run)


def _figures(run: RunDirectory) -> RunFigures:
    course, starts = Course(), starts_of(run)
    logs = [read_object(start.folder.log_object) for start in starts]
    for start in starts:
        start.add_to(course)
    return replace(
        _without_steps(run, validations_of(starts, logs)),
        steps=course.last.step if course.last is not None else 0,
        samples=course.samples,
        seconds=course.seconds,
        learning_rates=course.last.learning_rates if course.last is not None else {},
        training_loss=training_loss(read_object(run.of_steps.log_object), course),
        ooms=course.ooms,
        memory_bytes=course.typical_bytes,
        limit_bytes=course.limit_bytes,
    )


def quick_figures_of(run: RunDirectory) -> RunFigures:
    """Read what a run has come to, from its small files: not its last rates and loss.

    Its memory is the median since the last plan was taken up, or since a Trainer was resumed.

    Raises:
        InputError: the long log has to be read, and a line of it holds no step that this version can read.
    """
    starts = starts_of(run)
    logs = [read_object(start.folder.log_object) for start in starts]
    figures = _without_steps(run, validations_of(starts, logs))
    if not starts:
        return figures
    totals, ooms = totals_of(starts, logs)
    return replace(
        figures,
        steps=totals.step,
        samples=totals.samples,
        seconds=totals.seconds,
        ooms=ooms,
        memory_bytes=totals.typical_bytes,
        limit_bytes=totals.limit_bytes,
    )


def _without_steps(run: RunDirectory, validations: ValidationTotals) -> RunFigures:
    """Return the figures of a run that its steps do not tell."""
    log = read_object(run.of_steps.log_object)
    status, reason = how_it_ended(run)
    return RunFigures(
        path=str(run.path.resolve()),
        options=flat(run.read_config()),
        status=status,
        reason=reason,
        total=log["total"] if isinstance(log.get("total"), int) else None,  # a person may have edited it
        unit=str(log.get("unit", "steps")),
        validation_ooms=validations.ooms,
        metrics=[*validations.found.values(), *accuracies_of(read_object(run.path / ACCURACY_FILE))],
    )


def how_it_ended(run: RunDirectory) -> tuple[str, str]:
    """Return how a run ended, or that it has not, and why: as its log says, else by its process."""
    return end_of(run, read_object(run.of_steps.log_object), _newest_owner(run.path))


def flat(value: Any, above: str = "") -> dict[str, Any]:
    """Return nested options by dotted keys, sections in a list by their number; an empty section has no key."""
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        value = {str(number): item for number, item in enumerate(value)}
    if isinstance(value, Mapping):
        return {key: leaf for name, item in value.items() for key, leaf in flat(item, f"{above}{name}.").items()}
    return {above.removesuffix("."): value}


def accuracies_of(content: Mapping[str, Any]) -> list[Metric]:
    """Return the accuracies of a file that has them by set and task."""
    by_set = {dataset: tasks for dataset, tasks in content.items() if isinstance(tasks, Mapping)}
    return [
        Metric(dataset, f"accuracy {task}", better_is_higher=True, last=Value(float(share)))
        for dataset, tasks in by_set.items()
        for task, share in tasks.items()
    ]


def training_loss(log: Mapping[str, Any], course: Course) -> float | None:
    """Return the mean loss over the last logging window; of a run too short for one, over its last steps."""
    entries = log.get("losses", [])
    return float(entries[-1]["loss"]) if entries else course.latest_loss


def _newest_owner(folder: Path) -> dict[str, Any]:
    files = sorted(folder.glob("owner_*.json"), key=lambda file: (len(file.name), file.name))  # 9 before 10
    return read_object(files[-1]) if files else {}
