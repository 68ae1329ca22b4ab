"""A run as its trackers see it: points every so many steps, decisions, validations, and its end."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from trainauto.core.decisions import ClipAt, Decision, GoBack, KeepPlan, PlanChange, RateFactor, Rollback
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import Picture, RunEnd, RunSummary
from trainauto.core.words import visible
from trainauto.reporting.curves import Unit, oom_words, step_curves, unit_at_start, unit_for, validation_curves
from trainauto.reporting.formatting import decision_lines
from trainauto.reporting.runs.figures import flat
from trainauto.reporting.sinks import Sink
from trainauto.reporting.step_stats import StepWindow
from trainauto.reporting.trackers.names import shown_config, shown_name
from trainauto.reporting.trackers.tracker import End, Event, Point, Report, TrackedRun, Tracker
from trainauto.reporting.trackers.tracker_ids import TrackerIds
from trainauto.reporting.trackers.tracker_thread import TrackerThread, wait_for_all
from trainauto.storage.run_directory import RunDirectory

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 30.0
"""For what trackers have not taken when the run ends."""
_SAID_AFTER_S = 1.0
_SHORT_WAIT_S = 5.0
"""The same where the end of the run was not reported."""
_LONGEST_REASON = 1000
_MEMORY_UNIT = "memory_unit"


class Trackers(Sink):
    """Tells trackers, each in a thread of its own. What a tracker does never slows a step, and never ends the run.

    Args:
        trackers: whom.
        run: the run's folder, which holds its options.
        ids: what the run is called by trackers.
        name: of the run, in their lists.
        every: steps between points; each point is the mean (memory: the peak) of the steps since the last.
        longest_wait_s: at the end.
        clock: returns the time of day in seconds since 1970.
    """

    def __init__(
        self,
        trackers: Sequence[Tracker],
        run: RunDirectory,
        ids: TrackerIds,
        name: str,
        every: int,
        *,
        longest_wait_s: float = LONGEST_WAIT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._trackers, self._run, self._ids, self._every = trackers, run, ids, every
        self._name, self._longest_wait_s, self._clock = name, longest_wait_s, clock
        self._threads: list[TrackerThread] = []
        self._window = StepWindow()
        self._summary: RunSummary | None = None
        self._progress = Progress()
        self._unit: Unit | None = None
        self._adjusted = False

    def start(self, summary: RunSummary) -> None:
        """Import the trackers' packages, and start their threads; one that cannot be imported is left out."""
        self._summary, self._progress = summary, summary.progress
        self._show_memory_in(self._ids.get(_MEMORY_UNIT) or unit_at_start(summary))
        run = self._described(summary)
        for tracker in self._trackers:
            for name, value in tracker.environment.items():
                os.environ.setdefault(name, value)
            try:
                # Here, and not in a thread: worker processes that are forked in the middle of an import would wait for
                # its lock for ever.
                import_module(tracker.package)
            except Exception as error:
                reason = visible(f"{type(error).__name__}: {error}", _LONGEST_REASON)
                logger.warning("%s cannot be imported and is disabled; the run continues. %s", tracker.name, reason)
                continue
            thread = TrackerThread(tracker, run)
            thread.begin()
            self._threads.append(thread)
        if summary.resumed:
            self._tell_of(summary.progress.steps, "resume", f"resumed after step {summary.progress.steps}")

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        """Tell of what happened at once, and of all curves every so many steps."""
        self._progress = progress
        self._window.add(record)
        if record.ooms:
            self._tell_of(record.step, "oom", f"step {record.step}: {oom_words(record)}")
        self._tell_decisions(decisions, record.step)
        if record.step % self._every == 0:
            self._tell_steps()
            self._say_notes()

    def validation(self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision]) -> None:  # noqa: ARG002
        """Tell of the means of a validation."""
        if record.peak is not None:
            self._show_memory_in(unit_for(record.peak.allocated))
        self._tell_values(record.step, validation_curves(record, self._unit), is_kept=True)
        self._tell_decisions(decisions, record.step)

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:
        """Tell of it. What trackers were told of undone steps stays with them: none of them takes anything back."""
        self._window.clear()
        self._progress = summary.progress
        self._tell_decisions([rollback], rollback.to_step)

    def end(self, summary: RunEnd) -> None:
        """Tell of the last steps and how the run ended, and wait a while for what was not taken yet."""
        if len(self._window):
            self._tell_steps()
        self._finish(End(summary.status, visible(summary.reason, _LONGEST_REASON)), self._longest_wait_s)

    def close(self) -> None:
        """Let go of trackers whose run came to no end."""
        if self._threads:
            self._finish(End("failed", "the run came to no end"), _SHORT_WAIT_S)

    def _finish(self, end: End, longest_s: float) -> None:
        self._tell_of(self._progress.steps, "end", f"{end.status}: {end.reason}")
        self._tell(end)
        start_s = time.monotonic()
        slow = self._waited(longest_s)
        self._say_notes()
        for thread in self._threads:
            if thread in slow:
                thread.leave()
                what = "had not received %d reports after %.0f s; the run ends without it, and its own files have them"
                logger.warning(f"%s {what}", thread.name, thread.left, time.monotonic() - start_s)
            elif thread.left:
                logger.warning(
                    "%s has not received %d reports; the run's own files have them", thread.name, thread.left
                )
        self._threads = []

    def _waited(self, longest_s: float) -> list[TrackerThread]:
        """Wait for the trackers, and return those that are not done; Ctrl-C ends the wait, for the run is over."""
        slow = self._threads
        with suppress(KeyboardInterrupt):
            slow = wait_for_all(slow, min(_SAID_AFTER_S, longest_s))
            if slow:
                names = " and ".join(thread.name for thread in slow)
                logger.info("waiting up to %.0f s for %s; Ctrl-C ends the wait", longest_s, names)
                slow = wait_for_all(slow, longest_s - _SAID_AFTER_S)
        return slow

    def _described(self, summary: RunSummary) -> TrackedRun:
        facts: dict[str, Any] = {
            "run.directory": summary.run_directory,
            "run.device": summary.device,
            "run.network": summary.network,
            "run.parameters": summary.parameters,
            "run.precision": summary.precision,
            "run.memory_target_bytes": summary.memory_target_bytes,
            "run.memory_limit_bytes": summary.memory_limit_bytes,
            **{f"run.samples.{name}": count for name, count in summary.samples.items()},
        }
        return TrackedRun(shown_name(self._name), shown_config({**self._options(), **facts}), summary.progress.steps)

    def _options(self) -> dict[str, Any]:
        return flat(self._run.read_config())

    def _show_memory_in(self, unit: Unit | None) -> None:
        """Settle the unit, once for all resumes: curves in another one would be others."""
        if self._unit is None and unit is not None:
            self._unit = unit
            self._ids.keep(_MEMORY_UNIT, unit)

    def _tell_steps(self) -> None:
        figures = self._window.figures()
        self._window.clear()
        if self._summary is None:
            return
        if figures.peak is not None:
            self._show_memory_in(unit_for(figures.peak.allocated))
        curves = step_curves(figures, self._summary, self._unit, adjusted=self._adjusted)
        curves["events/ooms"] = figures.ooms
        curves["progress/samples"], curves["progress/seconds"] = self._progress.samples, self._progress.seconds
        self._adjusted = False
        self._tell_values(figures.last.step, curves)

    def _tell_values(self, step: int, values: dict[str, float], *, is_kept: bool = False) -> None:
        shown = {shown_name(name): value for name, value in values.items()}
        self._tell(Point(step, shown, self._clock(), is_kept))

    def _tell_decisions(self, decisions: Sequence[Decision], step: int) -> None:
        for decision in decisions:
            self._adjusted |= isinstance(decision, PlanChange)
            self._tell_of(step, _kind(decision), decision_lines(step, decision, 0)[0])

    def _tell_of(self, step: int, kind: str, text: str) -> None:
        self._tell(Event(step, kind, visible(text, _LONGEST_REASON)))

    def _tell(self, report: Report) -> None:
        for thread in self._threads:
            thread.put(report)

    def _say_notes(self) -> None:
        for thread in self._threads:
            for note in thread.notes():
                logger.warning("%s", note)


def _kind(decision: Decision) -> str:
    match decision:
        case PlanChange() | KeepPlan():
            return "plan"
        case RateFactor():
            return "rate"
        case ClipAt():
            return "clip"
        case GoBack() | Rollback():
            return "rollback"
        case _:
            return "stop"
