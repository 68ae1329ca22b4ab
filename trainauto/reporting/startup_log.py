"""Messages from before the run directory exists, kept for the log of the run."""

import logging
from contextlib import suppress
from pathlib import Path

from trainauto.core.files import read_text
from trainauto.core.run_events import DETAIL
from trainauto.core.words import visible, visible_lines
from trainauto.reporting.reporter import LOGGER_NAME, Reporter


class StartupLog(logging.Handler):
    """Holds what packages log while a run is being built.

    The run directory is made last, when nothing can be wrong any more; what was said before belongs into its log too.
    If building fails, the messages go to where Python sends those without a handler: stderr.

    A warning that an earlier start of the same run has given is not printed again.

    Args:
        repeated_log: training.log of the run that is repeated, if one is; its warnings were given, too.
    """

    def __init__(self, repeated_log: Path | None = None) -> None:
        super().__init__()
        self._records: list[logging.LogRecord] = []
        self._repeated_log = repeated_log
        self._logger = logging.getLogger(LOGGER_NAME)
        self._level = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record."""
        self._records.append(record)

    def __enter__(self) -> "StartupLog":
        self._logger.addHandler(self)
        self._level = self._logger.level
        self._logger.setLevel(DETAIL)  # as the reporter of the run will have it
        return self

    def __exit__(self, *_exception: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)
        for record in self._records:
            if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
                record.msg, record.args = visible_lines(record.getMessage()), None
                logging.lastResort.handle(record)

    def pass_on(self, reporter: Reporter, log: Path) -> None:
        """Give everything held to the reporter of the run, which listens for itself from here on.

        Args:
            reporter: of the run.
            log: training.log of the run, where its earlier starts have left their warnings.
        """
        self._logger.removeHandler(self)
        said_before = "".join(_text_of(file) for file in (log, self._repeated_log) if file is not None)
        for record in self._records:
            text, level = record.getMessage(), record.levelno
            reporter.message(text, DETAIL if level == logging.WARNING and visible(text) in said_before else level)
        self._records.clear()


def _text_of(log: Path) -> str:
    with suppress(OSError):
        return read_text(log, "replace")
    return ""
