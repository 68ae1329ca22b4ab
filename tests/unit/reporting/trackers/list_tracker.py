"""A tracker that keeps what it is told in a list, and fails or stays away as a test says."""

import threading
from collections.abc import Iterable

from trainauto.reporting.trackers.tracker import End, Event, Point, Report, TrackedRun, Tracker


class ListTracker(Tracker):
    """Keeps reports in ``told``.

    Args:
        errors: raised by the next calls, one each.
        is_open: calls wait until it is set, for 5 s at most.
    """

    name = "a list"
    package = "json"

    def __init__(self, errors: Iterable[BaseException] = (), is_open: threading.Event | None = None) -> None:
        self.runs: list[TrackedRun] = []
        self.told: list[Report] = []
        self._errors, self._is_open = iter(errors), is_open

    def start(self, run: TrackedRun) -> None:
        self._answer()
        self.runs.append(run)

    def log(self, point: Point) -> None:
        self._answer()
        self.told.append(point)

    def event(self, event: Event) -> None:
        self._answer()
        self.told.append(event)

    def finish(self, end: End) -> None:
        self._answer()
        self.told.append(end)

    @property
    def steps(self) -> list[int]:
        return [report.step for report in self.told if isinstance(report, Point)]

    @property
    def events(self) -> list[tuple[int, str]]:
        return [(report.step, report.kind) for report in self.told if isinstance(report, Event)]

    def _answer(self) -> None:
        if self._is_open is not None:
            self._is_open.wait(5.0)
        if (error := next(self._errors, None)) is not None:
            raise error
