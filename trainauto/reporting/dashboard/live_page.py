"""The page of one run or of several as it is now, made anew where there is something new."""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainauto.core.json_text import read_object
from trainauto.reporting.dashboard.about_run import about
from trainauto.reporting.dashboard.comparison_page import comparison_page
from trainauto.reporting.dashboard.page_file import page_in
from trainauto.reporting.dashboard.pictures import pictures_of
from trainauto.reporting.dashboard.run_history import RunHistory
from trainauto.reporting.dashboard.run_page import page_of
from trainauto.reporting.dashboard.run_reader import RunReader
from trainauto.reporting.runs.comparison import compare
from trainauto.reporting.runs.figures import ACCURACY_FILE, RunFigures, accuracies_of, flat, training_loss
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import whole_files

_SHORTEST_PAUSE_S = 0.5
"""Between two looks at the files, however many ask."""


class LivePage:
    """What the page of runs shows, read from their files whenever it is asked for.

    Args:
        runs: one run, or several to be compared.
        now: returns the time of day in seconds since 1970.
    """

    def __init__(self, runs: Sequence[RunDirectory], now: Callable[[], float] = time.time) -> None:
        self._runs, self._now = [run.whole for run in runs], now
        self._readers = [RunReader(run) for run in self._runs]
        self._lock = threading.Lock()
        self._looked_s = float("-inf")
        self._page: dict[str, Any] | None = None
        self._pictures_ns: list[int] = []
        self._started = secrets.token_hex(4)
        self._changes = 0

    def page(self) -> tuple[dict[str, Any], str]:
        """Return the page and its version, which no other page ever had, of this server or of an earlier one.

        Raises:
            InputError: a log holds what this version cannot read.
        """
        with self._lock:
            if self._page is None or time.monotonic() - self._looked_s >= _SHORTEST_PAUSE_S:
                self._look()
            return self._page or {}, f"{self._started}-{self._changes}"

    def _look(self) -> None:
        is_new = [reader.update() for reader in self._readers]  # each of them: any() would stop at the first
        pictures_ns = self._changed_ns()
        if self._page is None or any(is_new) or pictures_ns != self._pictures_ns:
            self._page = self._built()
            self._pictures_ns = pictures_ns
            self._changes += 1
        self._looked_s = time.monotonic()

    def _built(self) -> dict[str, Any]:
        histories = [reader.history for reader in self._readers]
        # Pictures are small only in the pages that the runs themselves write.
        pictures = [pictures_of(page_in(run.dashboard)) for run in self._runs]
        if len(self._runs) > 1:
            figures = [_figures(run, history) for run, history in zip(self._runs, histories, strict=True)]
            return comparison_page(compare(figures), histories, pictures, self._now())
        with whole_files(self._runs[0]):
            return page_of(histories[0], about(self._runs[0]), pictures[0], self._now())

    def _changed_ns(self) -> list[int]:
        """Return when the pages that the runs write, which have the pictures, were last changed."""
        return [_changed_ns(run.dashboard) for run in self._runs]


def _changed_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _figures(run: RunDirectory, history: RunHistory) -> RunFigures:
    """Return what a run has come to, from what was read of it: its logs may be long."""
    with whole_files(run):
        return _figures_there(run, history)


def _figures_there(run: RunDirectory, history: RunHistory) -> RunFigures:
    course, log = history.course, read_object(run.of_steps.log_object)
    known = about(run)
    return RunFigures(
        path=str(run.path.resolve()),
        options=flat(run.read_config()),
        status=history.status,
        reason=history.reason,
        steps=course.last.step if course.last is not None else 0,
        total=known.total,
        unit=known.unit,
        samples=course.samples,
        seconds=course.seconds,
        learning_rates=course.last.learning_rates if course.last is not None else {},
        training_loss=training_loss(log, course),
        ooms=course.ooms,
        validation_ooms=history.validation_ooms,
        memory_bytes=course.typical_bytes,
        limit_bytes=course.limit_bytes,
        metrics=[*history.metrics.values(), *accuracies_of(read_object(run.path / ACCURACY_FILE))],
    )
