"""A run on the console: a live bar with the lines above it on a terminal, plain lines anywhere else."""

import logging
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from trainauto.core.decisions import Decision
from trainauto.core.records import Progress, StepRecord
from trainauto.core.run_events import RunEnd, RunSummary
from trainauto.reporting.formatting import WIDTH, standing_line
from trainauto.reporting.step_stats import StepFigures, StepWindow
from trainauto.reporting.text_log import TextSink

_REDRAW_S = 0.5


def console_sink(print_freq: int, stream: TextIO | None = None) -> TextSink:
    """Return what suits ``stream`` (stdout by default): a live console for a terminal, else plain lines."""
    stream = stream or sys.stdout
    console = Console(file=stream)
    if stream.isatty() and not console.is_dumb_terminal:
        return LiveConsole(print_freq, console)
    return PlainConsole(print_freq, stream)


class PlainConsole(TextSink):
    """Lines of at most 80 columns without control codes, for files, pipes and notebooks."""

    def __init__(self, print_freq: int, stream: TextIO, width: int = WIDTH) -> None:
        super().__init__(print_freq, width)
        self._stream = stream

    def write(self, line: str, level: int = logging.INFO) -> None:  # noqa: ARG002
        """Print one line, at once even into a pipe."""
        encoding = self._stream.encoding or "utf-8"
        printable = line.encode(encoding, "backslashreplace").decode(encoding)
        self._stream.write(printable + "\n")
        self._stream.flush()


class LiveConsole(TextSink):
    """Lines above, and below them a bar with the figures of the last moments.

    How the run stands is in the bar, so that it is not printed as lines besides; training.log has those.
    """

    def __init__(self, print_freq: int, console: Console) -> None:
        super().__init__(print_freq, console.width)
        self.console = console
        self._live: Live | None = None
        self._recent = StepWindow()
        self._drawn_s = 0.0

    @property
    def width(self) -> int:
        """Columns of the terminal as it is now: people resize it."""
        return self.console.width

    def write(self, line: str, level: int = logging.INFO) -> None:
        """Print one line above the bar."""
        style = "red" if level >= logging.ERROR else "yellow" if level >= logging.WARNING else ""
        self.console.print(Text(line, style=style), soft_wrap=True)

    def write_standing(self, lines: Sequence[str]) -> None:
        """Leave it to the bar."""

    def start(self, summary: RunSummary) -> None:
        """Print the start-up block and open the bar."""
        super().start(summary)
        # Drawn only from step(): a thread that redraws would be in the way of workers that are forked. Output of others
        # is left alone: a redirected stdout would reach those workers, too.
        self._live = Live(
            ProgressBar(total=summary.total, completed=summary.done(summary.progress)),
            console=self.console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start(refresh=True)

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        """Print decisions and redraw the bar, a few times a second at most."""
        super().step(record, decisions, progress)
        self._recent.add(record)
        now_s = time.monotonic()
        if self._live is not None and self.summary is not None and now_s - self._drawn_s >= _REDRAW_S:
            self._live.update(self._bar(self._recent.figures(), self.summary, progress), refresh=True)
            self._drawn_s = now_s
            self._recent.clear()

    def end(self, summary: RunEnd) -> None:
        """Draw the bar as it ended, leave it there, and print the last block below it."""
        if self._live is not None and self.summary is not None and len(self._recent):
            self._live.update(self._bar(self._recent.figures(), self.summary, summary.progress), refresh=True)
        self._stop()
        super().end(summary)

    def close(self) -> None:
        """Give the terminal back."""
        self._stop()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _bar(self, figures: StepFigures, summary: RunSummary, progress: Progress) -> Group:
        left_s = self.time_left.seconds(summary.done(progress)) if self.time_left is not None else None
        line = standing_line(figures, summary, progress, left_s, self.width)
        bar = ProgressBar(total=summary.total, completed=summary.done(progress))
        return Group(Text(line), bar)  # the bar last: it does not end its line
