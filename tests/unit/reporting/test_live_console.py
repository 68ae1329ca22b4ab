import io
import logging
import re
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.reporting.builders import a_progress, a_step, a_summary
from tests.unit.reporting.shown_runs import run_through
from trainauto.core.run_events import DETAIL, RunEnd
from trainauto.reporting.console import LiveConsole, PlainConsole, console_sink
from trainauto.reporting.reporter import Reporter
from trainauto.reporting.text_log import TrainingLog


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> LiveConsole:
    monkeypatch.setenv("TERM", "xterm")
    return LiveConsole(10, Console(file=Terminal(), force_terminal=True, width=80, height=20, legacy_windows=False))


def shown_by(sink: LiveConsole) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sink.console.file.getvalue())  # type: ignore[attr-defined]


def is_given_back(sink: LiveConsole) -> bool:
    cursor_shown = "\x1b[?25h"
    return cursor_shown in sink.console.file.getvalue()  # type: ignore[attr-defined]


def test_a_terminal_gets_a_bar_and_lines_above_it(live: LiveConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainauto.reporting.console._REDRAW_S", 0.0)
    run_through(live, total=20)
    shown = shown_by(live)
    assert "network     SRResNet x4" in shown
    assert shown.count("plan -> batch_size 16") == 1
    assert " 7/20  loss 0.0714   5 it/s       data 10%  4@48   mem 25%  ETA 2.6s" in shown
    assert "saved checkpoint 20" in shown
    assert shown.rstrip().endswith("OOM         none")
    assert is_given_back(live)


def test_a_terminal_is_redrawn_seldom_and_ends_with_the_last_step(live: LiveConsole) -> None:
    run_through(live, total=20)
    assert "7/20" not in shown_by(live)
    assert "20/20" in shown_by(live)


def test_lines_follow_a_terminal_that_is_resized(live: LiveConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainauto.reporting.console._REDRAW_S", 0.0)
    live.start(a_summary(total=20))
    live.console.width = 50
    before = len(shown_by(live))
    live.message("word " * 30, logging.INFO)
    live.step(a_step(1), (), a_progress(1))
    live.end(RunEnd("completed", "all " * 30, a_progress(1)))
    live.close()
    lines = shown_by(live)[before:].replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 50
    assert any(line.startswith(" 1/20  loss 0.5000") for line in lines)


def test_a_terminal_is_given_back_when_the_run_breaks_off(live: LiveConsole) -> None:
    live.start(a_summary())
    live.message("oops", logging.ERROR)
    live.close()
    live.close()
    assert is_given_back(live)
    assert "error: oops" in shown_by(live)


def test_the_console_suits_its_stream(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(console_sink(10, Terminal()), LiveConsole)
    assert isinstance(console_sink(10, io.StringIO()), PlainConsole)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(console_sink(10, Terminal()), PlainConsole)
    monkeypatch.setenv("FORCE_COLOR", "1")
    sink = console_sink(10)
    sink.message("hello", logging.INFO)
    assert capsys.readouterr().out == "hello\n"


def test_details_are_for_the_log_alone(tmp_path: Path, live: LiveConsole) -> None:
    stream, log = io.StringIO(), TrainingLog(tmp_path / "training.log", 1)
    plain_console = PlainConsole(1, stream)
    logger = logging.getLogger("trainauto.test")
    with Reporter([log, plain_console, live]):
        logger.log(DETAIL, "a bound and where it comes from")
        logger.debug("of no use")
        logger.info("of use")
    assert [line[24:] for line in (tmp_path / "training.log").read_text().splitlines()] == [
        "a bound and where it comes from",
        "of use",
    ]
    assert stream.getvalue() == "of use\n"
    assert shown_by(live).strip() == "of use"
