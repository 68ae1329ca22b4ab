"""What a run has come to, as its console says in the end: metrics of its validations, its last plan, its memory."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from trainauto.core.errors import InputError
from trainauto.core.record_json import validation_to_dict
from trainauto.core.records import StepRecord, ValidationRecord
from trainauto.core.units import size_text
from trainauto.reporting.formatting import metric_text, plan_words, table, wrapped
from trainauto.reporting.plan_peaks import PlanPeaks
from trainauto.reporting.runs.course import starts_of
from trainauto.reporting.runs.validation_totals import Metric, ValidationTotals, add_logged
from trainauto.reporting.step_stats import gain
from trainauto.storage.run_directory import RunDirectory


class FinalMetrics:
    """Keeps of each metric the last and the best value."""

    def __init__(self) -> None:
        self._validated = ValidationTotals()

    def take_up(self, run: RunDirectory) -> None:
        """Begin with what is logged of a run, and nothing else."""
        self._validated = ValidationTotals()
        with suppress(InputError):  # a log of another version: what follows counts
            for start in starts_of(run.whole):
                add_logged(self._validated, start.folder, start.end)

    def add(self, record: ValidationRecord) -> None:
        """Take in a validation of one set."""
        self._validated.add(validation_to_dict(record))

    def lines(self, width: int) -> list[str]:
        """Return a table of last and best values beside what costs nothing; empty without a validation.

        Args:
            width: columns to wrap at; 0 never wraps.
        """
        metrics = list(self._validated.found.values())
        if not metrics:
            return []
        names = [metric.baseline_name for metric in metrics if metric.baseline_name]
        baseline = [names[0] if len(set(names)) == 1 else "baseline", "gain"] if names else []
        rows = [["metric", "last", "best", "after step", *baseline]]
        several = len({metric.dataset for metric in metrics}) > 1
        for metric in metrics:
            best = ["-", "-"] if metric.best is None else [metric_text(metric.best.value), str(metric.best.step)]
            label = f"{metric.dataset} {metric.name}" if several else metric.name
            beside = _beside(metric) if baseline else []
            rows.append([label, metric_text(metric.last.value), *best, *beside])
        return [*wrapped("validated: the last value of each metric, and the best", width), *table(rows)]


def _beside(metric: Metric) -> list[str]:
    """Return what costs nothing, and by how much the last value is better."""
    value, baseline = metric.last.value, metric.last.baseline
    better_by = gain(value, baseline, metric.better_is_higher)
    return ["-", "-"] if baseline is None or better_by is None else [metric_text(baseline), metric_text(better_by, "+")]


def memory_facts(last: StepRecord, peaks: PlanPeaks) -> Iterator[tuple[str, str]]:
    """Yield the last plan of a run and its memory, where that was measured, as (label, text)."""
    yield "plan", plan_words(last.plan)
    row = next(row for row in peaks.rows()[0] if row.plan == last.plan)
    limit = last.peak.limit if last.peak is not None else None
    sizes: Mapping[str, int | None] = {"typical peak": row.typical_bytes, "highest": row.highest_bytes}
    shown = [
        f"{label} {size_text(size)}{f' ({size / limit:.0%})' if limit else ''}" for label, size in sizes.items() if size
    ]
    if shown:
        yield "memory", ", ".join(shown) + (f" of {size_text(limit)}" if limit else "")
