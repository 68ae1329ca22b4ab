"""What the steps of a run add up to: kept in training_log.json, so that a few sums need no million lines read."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from trainauto.core.plan import Plan
from trainauto.core.records import Progress, StepRecord
from trainauto.reporting.plan_peaks import REMEMBERED_STEPS
from trainauto.reporting.runs.course import Start
from trainauto.storage.run_log import read_entries, steps_after

KEY = "totals"
"""Of training_log.json: :meth:`Totals.to_dict` as of its ``step``."""

_MOST_SHORTAGES = 1000
_ENOUGH_PEAKS = 50
"""Peaks after which the median of those that were seen replaces what was read: one or two say little."""


@dataclass
class Totals:
    """What the steps of a run add up to.

    Attributes:
        since: steps up to this one are not in ``shortages``: they were trained before counting began.
        step: the last step.
        samples: samples trained.
        seconds: seconds trained, waits for data included.
        shortages: steps in which memory ran out, and how often; neighbours are merged where there are too many.
        limit_bytes: memory the run may use, as last read; ``None`` if unknown.
    """

    since: int = 0
    step: int = 0
    samples: int = 0
    seconds: float = 0.0
    shortages: list[tuple[int, int]] = field(default_factory=list)
    limit_bytes: int | None = None
    _plan: Plan | None = None
    _read_bytes: int | None = None
    _peaks: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED_STEPS))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], step: int) -> "Totals":
        """Return what :meth:`to_dict` wrote as of ``step``.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is something else.
        """
        limit, read = content["limit_bytes"], content["memory_bytes"]
        return cls(
            since=int(content["since"]),
            step=step,
            samples=int(content["samples"]),
            seconds=float(content["seconds"]),
            shortages=[(int(at), int(times)) for at, times in content["out_of_memory"]],
            limit_bytes=None if limit is None else int(limit),
            _plan=Plan.from_dict(content["plan"]) if content["plan"] else None,
            _read_bytes=None if read is None else int(read),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return them for JSON; sizes in bytes, ``out_of_memory`` as pairs of a step and how often it ran out there."""
        return {
            "since": self.since,
            "samples": self.samples,
            "seconds": round(self.seconds, 3),
            "out_of_memory": [list(pair) for pair in self.shortages],
            "memory_bytes": self.typical_bytes,
            "limit_bytes": self.limit_bytes,
            "plan": self._plan.to_dict() if self._plan is not None else None,
        }

    @property
    def typical_bytes(self) -> int | None:
        """Median peak of whole steps since the last plan was taken up; ``None`` where nothing was measured."""
        if self._read_bytes is not None and len(self._peaks) < _ENOUGH_PEAKS:
            return self._read_bytes
        return int(median(self._peaks)) if self._peaks else None

    def resume(self, progress: Progress) -> None:
        """Go back to a checkpoint: what came after it is trained again."""
        self.step, self.samples, self.seconds = progress.steps, progress.samples, progress.seconds
        self.shortages = [pair for pair in self.shortages if pair[0] <= progress.steps]

    def add(self, record: StepRecord) -> None:
        """Take one more step in."""
        self.step = record.step
        self.samples += record.shape.samples
        self.seconds += record.data_seconds + record.step_seconds
        self.add_shortage(record.step, record.ooms)
        self.add_peak(record)

    def add_shortage(self, step: int, times: int) -> None:
        """Take in how often memory ran out in a step."""
        if times:
            self.shortages.append((step, times))
        if len(self.shortages) > _MOST_SHORTAGES:
            first, second = self.shortages[::2], self.shortages[1::2]
            merged = [(later[0], before[1] + later[1]) for before, later in zip(first, second, strict=False)]
            self.shortages = [*merged, *first[len(second) :]]

    def add_peak(self, record: StepRecord) -> None:
        """Take in the memory of a step."""
        if record.plan != self._plan:
            self._plan, self._read_bytes = record.plan, None
            self._peaks.clear()
        if record.peak is None:
            return
        self.limit_bytes = record.peak.limit  # a resume may have no budget any more
        if record.is_whole:
            self._peaks.append(record.peak.allocated)

    def ooms_before(self, step: float) -> int:
        """Return how often memory ran out before a step."""
        return sum(times for at, times in self.shortages if at < step)


def totals_of(starts: Sequence[Start], logs: Sequence[Mapping[str, Any]]) -> tuple[Totals, int]:
    """Return what the steps of a run add up to, and how often memory ran out.

    Training_log.json has nearly all of it, and the end of the long log what came after; the whole long log is read only
    where it does not, as that of earlier versions.

    Args:
        starts: the folders with the steps of the run, the oldest first; one at least.
        logs: the training_log.json of each.

    Raises:
        InputError: a line of the long log holds no step that this version can read.
    """
    known = list(_known(starts, logs))
    if len(known) < len(starts):
        known = [_summed(start) for start in starts]
        known[-1].samples = sum(one.samples for one in known)
        known[-1].seconds = sum(one.seconds for one in known)
    return known[-1], sum(one.ooms_before(start.end) for one, start in zip(known, starts, strict=True))


def _known(starts: Sequence[Start], logs: Sequence[Mapping[str, Any]]) -> Iterator[Totals]:
    """Yield what each start has added up, with all starts before it; end at the first where something is not in it."""
    counted_to = 0
    for start, log in zip(starts, logs, strict=True):
        try:
            totals = Totals.from_dict(log[KEY], int(log["step"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            return
        if totals.since > counted_to:
            return
        for record in steps_after(start.folder, totals.step):
            totals.add(record)
        counted_to = totals.step
        yield totals


def _summed(start: Start) -> Totals:
    """Return what the steps of one start add up to, by its long log: only its end is read in full, which is slow."""
    totals = Totals()
    for step, samples, seconds, ooms in read_entries(start.folder.records, _figures):
        if step < start.end:
            totals.step = step
            totals.samples += samples
            totals.seconds += seconds
            totals.add_shortage(step, ooms)
    for record in steps_after(start.folder, totals.step - REMEMBERED_STEPS):
        if record.step < start.end:
            totals.add_peak(record)
    return totals


def _figures(line: Mapping[str, Any]) -> tuple[int, int, float, int]:
    return int(line["step"]), int(line["samples"]), line["data_s"] + line["step_s"], int(line.get("ooms", 0))
