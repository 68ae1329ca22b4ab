"""What a run has come to, as its console says in the end: metrics of its validations, its last plan, its memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainauto.core.records import StepRecord, ValidationRecord
from trainauto.core.units import size_text
from trainauto.reporting.formatting import plan_words, table, wrapped
from trainauto.reporting.plan_peaks import PlanPeaks
from trainauto.reporting.runs.validation_totals import Value, best_of
from trainauto.reporting.step_stats import gain_over_baseline


@dataclass
class _Kept:
    """One metric of one set: its best value so far, and its last record."""

    best: Value | None
    last: ValidationRecord


class FinalMetrics:
    """Keeps of each metric the last and the best value."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], _Kept] = {}

    def add(self, record: ValidationRecord) -> None:
        """Take in a validation of one set."""
        for name, value in record.metrics.items():
            before = self._kept.get((record.dataset, name))
            values = [*([before.best] if before and before.best else []), Value(value, record.step)]
            best = best_of(values, record.better_is_higher.get(name))
            self._kept[record.dataset, name] = _Kept(best, record)

    def forget_after(self, step: int) -> None:
        """Forget what was found after a step: it is undone. A best value from before stays."""
        kept: dict[tuple[str, str], _Kept] = {}
        for name, one in self._kept.items():
            best = one.best if one.best is not None and (one.best.step or 0) <= step else None
            if one.last.step <= step:
                kept[name] = _Kept(best, one.last)
        self._kept = kept

    def lines(self, width: int, since: str) -> list[str]:
        """Return a table of last and best values beside what costs nothing; empty without a validation.

        Args:
            width: columns to wrap at; 0 never wraps.
            since: from when on validations were seen, where that is not the first step.
        """
        if not self._kept:
            return []
        names = [kept.last.baseline_name for kept in self._kept.values() if kept.last.baseline]
        baseline = [names[0] if len(set(names)) == 1 else "baseline", "gain"] if names else []
        rows = [["metric", "last", "best", "after step", *baseline]]
        several = len({dataset for dataset, _ in self._kept}) > 1
        for (dataset, name), kept in self._kept.items():
            best = ["-", "-"] if kept.best is None else [f"{kept.best.value:.4f}", str(kept.best.step)]
            label = f"{dataset} {name}" if several else name
            beside = _beside(kept.last, name) if baseline else []
            rows.append([label, f"{kept.last.metrics[name]:.4f}", *best, *beside])
        return [*wrapped(f"validated: the last value of each metric, and the best{since}", width), *table(rows)]


def _beside(record: ValidationRecord, name: str) -> list[str]:
    """Return what costs nothing, and by how much the last value is better."""
    gain = gain_over_baseline(record, name)
    return ["-", "-"] if gain is None else [f"{record.baseline[name]:.4f}", f"{gain:+.4f}"]


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
