"""Tells every sink what the engine reports and what any package logs; a sink that fails never fails the run."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from trainauto.core.decisions import Decision, Rollback
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import DETAIL, ImageArray, Picture, RunEnd, RunSummary
from trainauto.core.system_errors import FULL
from trainauto.core.words import counted
from trainauto.reporting.sinks import Sink

LOGGER_NAME = "trainauto"


class Reporter:
    """Fans out to sinks, in their order. The engine sees it as :class:`~trainauto.core.run_events.ReporterLike`.

    From construction to :meth:`close` it also listens to the logger ``trainauto``, so that others just log. Use it
    as a context manager. Without sinks (ranks other than the first) it leaves the logger alone.
    """

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._sinks = list(sinks)
        self._warned: set[tuple[int, str]] = set()
        self._refused: dict[Sink, tuple[int, OSError]] = {}
        self._handler = _Forward(self.message)
        self._logger = logging.getLogger(LOGGER_NAME)
        self._level_before = self._logger.level
        if self._sinks:
            self._logger.addHandler(self._handler)
            if self._logger.getEffectiveLevel() > DETAIL:
                self._logger.setLevel(DETAIL)

    def start(self, summary: RunSummary) -> None:
        """Pass on the start of the run."""
        self._tell(lambda sink: sink.start(summary))

    def first_samples(self, samples: Sequence[Mapping[str, ImageArray]]) -> None:
        """Pass on pictures of samples of the first batch."""
        self._tell(lambda sink: sink.first_samples(samples))

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        """Pass on an optimizer step."""
        self._tell(lambda sink: sink.step(record, decisions, progress))

    def validation(
        self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision] = ()
    ) -> None:
        """Pass on a validation."""
        self._tell(lambda sink: sink.validation(record, pictures, decisions))

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:
        """Pass on that the run has gone back to a checkpoint."""
        self._tell(lambda sink: sink.rolled_back(summary, rollback))

    def message(self, text: str, level: int = logging.INFO) -> None:
        """Pass on something said in words."""
        self._tell(lambda sink: sink.message(text, level))

    def sync(self) -> None:
        """Have what was reported survive a power cut, before a checkpoint that relies on it."""
        self._tell(lambda sink: sink.sync())

    def end(self, summary: RunEnd) -> None:
        """Pass on the end of the run; what was not written as it was reported is said once more."""
        if self._refused:
            self.sync()
            self._say_refused()
        self._tell(lambda sink: sink.end(summary))

    def close(self) -> None:
        """Close all sinks and stop listening to the logger. A second call does nothing."""
        self._tell(lambda sink: sink.close())
        self._sinks.clear()
        self._stop_listening()

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _tell(self, event: Callable[[Sink], None]) -> None:
        # The handler's own lock, so that a thread that logs and a step that reports cannot wait for each other, and so
        # that logging renews it in forked workers.
        self._handler.acquire()
        try:
            for sink in tuple(self._sinks):
                if sink not in self._sinks:
                    continue  # dropped meanwhile, by the message about another one
                try:
                    event(sink)
                except MemoryError:
                    self._warn_of_dropped_report(sink, "ran out of memory; a report was dropped")
                except Exception as error:
                    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
                        self._note_refusal(sink, error)
                    else:
                        self._drop(sink, error)
        finally:
            self._handler.release()

    def _drop(self, sink: Sink, error: Exception) -> None:
        self._sinks.remove(sink)
        with suppress(Exception):
            sink.close()
        if not self._sinks:
            self._stop_listening()  # logging then writes to stderr, the one place left
        self._logger.error(
            "%s failed and is now disabled; the run continues. %s: %s",
            type(sink).__name__,
            type(error).__name__,
            error,
        )

    def _note_refusal(self, sink: Sink, error: OSError) -> None:
        """Keep a sink whose file could not be written: a disk becomes free, and a network drive comes back."""
        times = self._refused[sink][0] if sink in self._refused else 0
        self._refused[sink] = times + 1, error
        what = "the disk is full" if error.errno in FULL else os.strerror(error.errno) if error.errno else f"{error}"
        self._warn_of_dropped_report(sink, f"cannot write: {what}. Reports wait or are dropped until it can")

    def _say_refused(self) -> None:
        """Say at the end of the run whose reports were not written at once, and what is missing."""
        for sink, (times, error) in list(self._refused.items()):
            lacks = sink.lacking() or "all of it was written later"
            self._logger.warning(
                "%s could not write %s (last: %s); %s.", type(sink).__name__, counted(times, "time"), error, lacks
            )

    def _warn_of_dropped_report(self, sink: Sink, why: str) -> None:
        # Memory comes back with the next plan, room when old checkpoints are deleted: the sink itself is kept.
        if (id(sink), why) not in self._warned:
            self._warned.add((id(sink), why))
            self._logger.warning("%s %s. This is logged once.", type(sink).__name__, why)

    def _stop_listening(self) -> None:
        if self._handler in self._logger.handlers:
            self._logger.removeHandler(self._handler)
            self._logger.setLevel(self._level_before)


class _Forward(logging.Handler):
    """Hands log records to the reporter as text."""

    def __init__(self, say: Callable[[str, int], None]) -> None:
        super().__init__()
        self._say = say
        self._owner_pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record on; forked workers must not write into the files of the process that trains."""
        if os.getpid() == self._owner_pid:
            self._say(self.format(record), record.levelno)
        elif logging.lastResort is not None and record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(record)
