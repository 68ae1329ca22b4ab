"""Keeps the page of a run up to date while it trains."""

import time
from collections.abc import Callable, Mapping, Sequence

from trainauto.core.decisions import Decision, Rollback
from trainauto.core.errors import InputError
from trainauto.core.files import found_at, place_below
from trainauto.core.record_json import validation_to_dict
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import ImageArray, Picture, RunEnd, RunSummary
from trainauto.reporting.dashboard.about_run import about
from trainauto.reporting.dashboard.blocks import Block
from trainauto.reporting.dashboard.events import Event
from trainauto.reporting.dashboard.page_file import page_in, write_page
from trainauto.reporting.dashboard.pictures import SAMPLES, Pictures, pictures_of, samples_block
from trainauto.reporting.dashboard.run_history import RunHistory
from trainauto.reporting.dashboard.run_page import page_of
from trainauto.reporting.dashboard.run_reader import read_run
from trainauto.reporting.runs.course import RUNNING
from trainauto.reporting.sinks import Sink
from trainauto.storage.resumes import resumes_of
from trainauto.storage.run_directory import RunDirectory

MOST_COST = 0.0015
"""Share of the run's time that the page may cost; with all other sinks it stays below half a percent."""

_SHORTEST_PAUSE_S = 2.0


class Dashboard(Sink):
    """Writes dashboard.html: at the start, at the end, and in between as often as costs 0.15 % of the time.

    How long the last writing took says how long the page is left alone: reloading it shows the newest. The steps of a
    run that is resumed are read from its logs, its pictures from the page before.

    Args:
        run: the run's folder; its logs are written before this sink hears of anything.
        clock: returns seconds that only grow, to measure by.
        now: returns the time of day in seconds since 1970.
    """

    def __init__(
        self,
        run: RunDirectory,
        clock: Callable[[], float] = time.perf_counter,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._run = run
        self._clock, self._now = clock, now
        self._history = RunHistory()
        self._pictures = Pictures()
        self._samples: list[Block] = []
        self._next_s = 0.0

    def start(self, summary: RunSummary) -> None:
        """Write the page, with what the run that is resumed has come to."""
        self._history = self._resumed(summary) if summary.resumed else RunHistory(summary.total, summary.unit)
        self._about = about(self._run.whole)
        self._write()

    def _resumed(self, summary: RunSummary) -> RunHistory:
        step = summary.progress.steps
        shown = pictures_of(page_in(self._run.dashboard))
        self._pictures = Pictures(shown, step)
        self._samples = [block for block in shown if block["type"] == SAMPLES]
        try:
            history = read_run(self._run.whole, until=step)
        except InputError as error:
            history = RunHistory(summary.total, summary.unit)
            history.events.add(Event(step, "fail", "what was logged before the resume cannot be shown", str(error)))
        if not self._run.records.is_file():  # a Trainer's new start, which has no step to be read by yet
            for resume in resumes_of(self._run):
                history.resumed(resume.after_step, resume.changes, self._now())
        history.status, history.reason = RUNNING, ""
        return history

    def first_samples(self, samples: Sequence[Mapping[str, ImageArray]]) -> None:
        """Take pictures of the first batch in."""
        self._samples = [samples_block(samples)]

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:  # noqa: ARG002
        """Take the step in, and write the page where it is time to."""
        now = self._now()
        for decision in decisions:
            if decision.early:
                self._history.decision(record.step, decision, now)
        self._history.step(record, now)
        for decision in decisions:
            if not decision.early:
                self._history.decision(record.step, decision, now)
        if self._clock() >= self._next_s:
            self._write()

    def validation(self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision]) -> None:
        """Take the validation and its pictures in."""
        now = self._now()
        self._history.validation({**validation_to_dict(record), "time": now})
        for decision in decisions:
            self._history.decision(record.step, decision, now)
        self._pictures.add(record, pictures, self._files(record, pictures))

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:  # noqa: ARG002
        """Forget what was undone, and write the page."""
        self._history = self._resumed(summary)
        self._write()

    def end(self, summary: RunEnd) -> None:
        """Write how it ended."""
        self._history.status, self._history.reason = summary.status, summary.reason
        self._write()

    def _write(self) -> None:
        began_s = self._clock()
        try:
            pictures = [*self._pictures.blocks(), *self._samples]
            write_page(self._run.dashboard, page_of(self._history, self._about, pictures, self._now()))
        finally:  # a disk that is full is not asked again at the next step
            ended_s = self._clock()
            self._next_s = ended_s + max(_SHORTEST_PAUSE_S, (ended_s - began_s) / MOST_COST)

    def _files(self, record: ValidationRecord, pictures: Sequence[Picture]) -> Mapping[str, str]:
        """Return where the full size of each picture lies, seen from the page; what no address can name is left out."""
        found = {}
        for picture in pictures:
            place = place_below(self._run.validation / record.dataset, picture.name)
            for file in (place / f"{record.step:08d}.png", place.with_name(f"{place.name}.png")):
                if found_at(file) == "file" and str(file).isprintable():
                    found[picture.name] = file.relative_to(self._run.dashboard.parent).as_posix()
                    break
        return found
