"""A run in lines of text, and the file training.log that keeps them with timestamps."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path

from trainauto.core.decisions import Decision, PlanChange, Rollback
from trainauto.core.files import refuse_special
from trainauto.core.plan import Plan
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import DETAIL, Picture, RunEnd, RunSummary
from trainauto.core.words import visible
from trainauto.reporting.final_table import FinalMetrics, memory_facts
from trainauto.reporting.formatting import (
    IMAGE_SIZE,
    decision_lines,
    end_lines,
    oom_text,
    prediction_lines,
    step_lines,
    summary_lines,
    validation_lines,
    wrapped,
)
from trainauto.reporting.plan_peaks import PlanPeaks
from trainauto.reporting.sinks import Sink
from trainauto.reporting.step_stats import StepWindow
from trainauto.reporting.time_left import TimeLeft
from trainauto.storage.run_directory import RunDirectory


class TextSink(Sink):
    """Turns events into lines; derived classes say where these go.

    Args:
        print_freq: steps between lines on how the run stands; figures in them are means over those steps. The first
            step of a run has a line of its own, to show at once that it runs.
        width: columns to wrap at; 0 never wraps.
    """

    least_level = logging.INFO
    """Messages below are left out."""

    continuation = ""
    """What every line of a message but the first begins with, after the prefix of its level."""

    def __init__(self, print_freq: int, width: int) -> None:
        self.print_freq = print_freq
        self._width = width
        self.summary: RunSummary | None = None
        self.time_left: TimeLeft | None = None
        self._last: StepRecord | None = None
        self._metrics = FinalMetrics()
        self._window = StepWindow()
        self._peaks = PlanPeaks()
        self._plan: Plan | None = None
        self._ooms = 0
        self._ooms_in_validation = 0
        self._has_tiles = False

    @property
    def width(self) -> int:
        """Columns to wrap at; 0 never wraps."""
        return self._width

    def write(self, line: str, level: int = logging.INFO) -> None:
        """Put down one line, in which nothing is left that a terminal would act on."""

    def prefix(self, level: int) -> str:
        """Return what a line of a level begins with."""
        return "" if level < logging.WARNING else f"{logging.getLevelName(level).lower()}: "

    def start(self, summary: RunSummary) -> None:
        """Write the start-up block."""
        self.summary, self.time_left = summary, TimeLeft(summary.total, summary.unit)
        if summary.resumed:
            self._metrics.take_up(RunDirectory(Path(summary.run_directory)))
        self._write_all(summary_lines(summary, self.width))

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        """Write decisions at once and how the run stands every ``print_freq`` steps.

        In the order in which things came about: what was decided before the step, the plan it is the first to be
        trained with, the step, what was decided upon it.
        """
        if self.summary is None or self.time_left is None:
            return
        self._last = record
        self.time_left.step(record)
        self._window.add(record)
        self._peaks.add(record)
        self._ooms += record.ooms
        self._write_decisions(record.step, [decision for decision in decisions if decision.early])
        if self._plan not in (None, record.plan):  # a larger one takes effect some batches after it was decided
            self._write_all(wrapped(f"step {record.step}: now training with {record.plan}", self.width))
        self._plan = record.plan
        first = progress.steps == self.summary.progress.steps + 1
        if first or record.step % self.print_freq == 0:
            left_s = self.time_left.seconds(self.summary.done(progress))
            self.write_standing(step_lines(self._window.figures(), self.summary, progress, left_s, self.width))
            self._window.clear()
        self._write_decisions(record.step, [decision for decision in decisions if not decision.early])

    def write_standing(self, lines: Sequence[str]) -> None:
        """Write how the run stands."""
        self._write_all(lines)

    def validation(self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision]) -> None:  # noqa: ARG002
        """Write the table of a validation, then what was decided upon it."""
        self._ooms_in_validation += record.ooms
        self._has_tiles |= bool(record.tile_px)
        self._metrics.add(record)
        if self.time_left is not None:
            self.time_left.validation(record.seconds)
        self._write_all(validation_lines(record, self.width))
        self._write_decisions(record.step, decisions)

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:
        """Write it, and forget what undone validations found."""
        self._metrics.take_up(RunDirectory(Path(summary.run_directory)))
        self._window.clear()
        self._write_decisions(rollback.to_step, [rollback])

    def message(self, text: str, level: int) -> None:
        """Write a message, wrapped; a block of several lines stays as it is, so that it can be copied."""
        if level < self.least_level:
            return
        first, *others = text.rstrip("\r\n").replace("\r\n", "\n").split("\n")
        if others:
            self._write_all([first, *(self.continuation + line for line in others)], level)
        else:
            for line in wrapped(self.prefix(level) + first, self.width):
                self.write(line, level)

    def end(self, summary: RunEnd) -> None:
        """Write what was predicted of the plans of this run, what its validations found, and the last block."""
        since = ", since it was resumed" if self.summary is not None and self.summary.resumed else ""
        self._write_all(prediction_lines(self._peaks, self.width))
        self._write_all(self._metrics.lines(self.width))
        is_of_images = self._has_tiles or (self._plan is not None and IMAGE_SIZE in self._plan)
        ooms = oom_text(self._ooms, self._ooms_in_validation, "tile" if is_of_images else "batch")
        memory = list(memory_facts(self._last, self._peaks)) if self._last is not None else []
        if memory or ooms:
            memory.append(("OOM", f"{ooms or 'none'}{since}"))
        summary = replace(summary, facts=(*memory, *summary.facts))
        level = logging.ERROR if summary.status == "failed" else logging.INFO
        prefix = self.prefix(level)
        lines = end_lines(summary, self.width and self.width - len(prefix))
        for number, line in enumerate(lines):
            # On a console all of it is one block; in a log each line says its level.
            self.write(visible((" " * len(prefix) if number and self.width else prefix) + line), level)

    def _write_decisions(self, step: int, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            is_repeated = isinstance(decision, PlanChange) and decision.announced
            if not (is_repeated and self.width):  # a console is to be read at a glance
                self._write_all(decision_lines(step, decision, self.width))

    def _write_all(self, lines: Iterable[str], level: int = logging.INFO) -> None:
        for line in lines:
            self.write(visible(self.prefix(level) + line), level)


class TrainingLog(TextSink):
    """Appends every line to training.log after the time (and the level where it is not INFO), unwrapped and plain."""

    least_level = DETAIL
    continuation = "    "  # what a message quotes in a line of its own is told from a line of the run

    def __init__(self, path: Path, print_freq: int) -> None:
        super().__init__(print_freq, width=0)
        # Opened by the first line: a run that cannot even be built leaves no handle behind.
        self._handler = _RaisingFileHandler(path, encoding="utf-8", errors="backslashreplace", delay=True)
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))

    def write(self, line: str, level: int = logging.INFO) -> None:
        """Append one line.

        Raises:
            OSError: the file cannot be written.
        """
        self._handler.handle(logging.LogRecord("trainauto", level, "", 0, line, (), None))

    def prefix(self, level: int) -> str:
        """Return the level where it is above INFO."""
        return "" if level <= logging.INFO else f"{logging.getLevelName(level)} "

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


class _RaisingFileHandler(logging.FileHandler):
    """Lets errors through to the reporter, which says them once; logging would print a traceback a line."""

    def _open(self) -> TextIOWrapper:
        with suppress(FileNotFoundError):
            refuse_special(self.baseFilename)
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        """Raise what was caught: logging calls this from its ``except`` block."""
        raise
