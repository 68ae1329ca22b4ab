"""The page of one run or of several as it is now, made anew where there is something new."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from trainauto.reporting.dashboard.about_run import about
from trainauto.reporting.dashboard.comparison_page import comparison_page
from trainauto.reporting.dashboard.page_file import page_in
from trainauto.reporting.dashboard.pictures import pictures_of
from trainauto.reporting.dashboard.run_page import page_of
from trainauto.reporting.dashboard.run_reader import RunReader
from trainauto.reporting.run_comparison import compare
from trainauto.reporting.run_figures import figures_of
from trainauto.storage.run_directory import RunDirectory

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
        self._pictures_ns = 0
        self.version = 0
        """Grows whenever the page changes."""

    def page(self) -> tuple[dict[str, Any], int]:
        """Return the page and its version.

        Raises:
            InputError: a log holds what this version cannot read.
        """
        with self._lock:
            if self._page is None or time.monotonic() - self._looked_s >= _SHORTEST_PAUSE_S:
                self._look()
            return self._page or {}, self.version

    def _look(self) -> None:
        is_new = [reader.update() for reader in self._readers]  # each of them: any() would stop at the first
        pictures_ns = self._changed_ns()
        if self._page is None or any(is_new) or pictures_ns != self._pictures_ns:
            self._page = self._built()
            self._pictures_ns = pictures_ns
            self.version += 1
        self._looked_s = time.monotonic()

    def _built(self) -> dict[str, Any]:
        histories = [reader.history for reader in self._readers]
        if len(self._runs) > 1:
            return comparison_page(compare([figures_of(run) for run in self._runs]), histories, self._now())
        run = self._runs[0]
        # Pictures are small only in the page that the run itself writes.
        return page_of(histories[0], about(run), pictures_of(page_in(run.dashboard)), self._now())

    def _changed_ns(self) -> int:
        """Return when the page that the run writes was last changed, where it may have pictures."""
        file = self._runs[0].dashboard
        try:
            return file.stat().st_mtime_ns if len(self._runs) == 1 else 0
        except OSError:
            return 0
