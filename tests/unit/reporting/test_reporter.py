import errno
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest

from tests.unit.reporting.builders import a_picture, a_progress, a_step, a_summary, a_validation
from trainauto.core.decisions import Decision
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import Picture, ReporterLike, RunEnd, RunSummary
from trainauto.reporting.reporter import Reporter
from trainauto.reporting.sinks import Sink

END = RunEnd("completed", "done", Progress())


class Recorder(Sink):
    """Notes each event; raises ``error`` at the events named."""

    def __init__(self, fails_at: Sequence[str] = (), error: BaseException | None = None) -> None:
        self.events: list[str] = []
        self.texts: list[str] = []
        self.fails_at = fails_at
        self.error = error or ValueError("no such curve")

    def note(self, event: str) -> None:
        self.events.append(event)
        if event in self.fails_at:
            raise self.error

    def start(self, summary: RunSummary) -> None:
        self.note("start")

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        self.note("step")

    def validation(self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision]) -> None:
        self.note("validation")

    def message(self, text: str, level: int) -> None:
        self.texts.append(f"{logging.getLevelName(level)} {text}")
        self.note("message")

    def end(self, summary: RunEnd) -> None:
        self.note("end")

    def close(self) -> None:
        self.note("close")


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("trainauto")
    level = logger.level
    yield logger
    assert logger.level == level
    assert not [handler for handler in logger.handlers if type(handler).__module__.startswith("trainauto")]


def run_through(reporter: ReporterLike) -> None:
    reporter.start(a_summary())
    reporter.step(a_step(), (), a_progress(1))
    reporter.validation(a_validation(), [a_picture()])
    reporter.end(END)


def test_every_sink_gets_every_event_in_order() -> None:
    sinks = [Recorder(), Recorder()]
    with Reporter(sinks) as reporter:
        run_through(reporter)
        reporter.message("hello")
    for sink in sinks:
        assert sink.events == ["start", "step", "validation", "end", "message", "close"]
    reporter.close()
    assert sinks[0].events.count("close") == 1


def test_a_sink_need_not_define_any_event() -> None:
    with Reporter([Sink()]) as reporter:
        run_through(reporter)
        reporter.message("hello")


def test_what_rooms_log_reaches_the_sinks(logger: logging.Logger) -> None:
    sink = Recorder()
    with Reporter([sink]):
        logging.getLogger("trainauto.engine").info("saved %d", 7)
        logging.getLogger("trainauto.data").debug("too fine")
        try:
            raise ValueError("bad")
        except ValueError:
            logger.exception("caught")
    assert sink.texts[0] == "INFO saved 7"
    assert sink.texts[1].startswith("ERROR caught\nTraceback")
    assert len(sink.texts) == 2
    logger.warning("after")
    assert len(sink.texts) == 2


def test_a_finer_level_that_was_set_stays(logger: logging.Logger) -> None:
    logger.setLevel(logging.DEBUG)
    sink = Recorder()
    try:
        with Reporter([sink]):
            logger.debug("fine")
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(logging.NOTSET)
    assert sink.texts == ["DEBUG fine"]


@pytest.mark.parametrize("event", ["start", "step", "validation", "end", "message"])
def test_a_sink_that_fails_is_reported_once_dropped_and_closed(event: str) -> None:
    broken, sound = Recorder(fails_at=[event, "close"]), Recorder()
    with Reporter([broken, sound]) as reporter:
        for _ in range(2):
            run_through(reporter)
            reporter.message("hello")
    assert broken.events.count(event) == 1
    assert broken.events[-1] == "close"
    assert sound.events.count(event) >= 2
    complaints = [text for text in sound.texts if "is now disabled" in text]
    assert complaints == ["ERROR Recorder failed and is now disabled; the run continues. ValueError: no such curve"]


def test_the_last_sink_that_fails_is_reported_to_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, logger: logging.Logger
) -> None:
    monkeypatch.setattr(logger, "propagate", False)  # pytest listens at the root
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(sys.stderr))
    with Reporter([Recorder(fails_at=["start"])]) as reporter:
        run_through(reporter)
    assert capsys.readouterr().err.count("is now disabled") == 1


def test_all_sinks_may_fail_at_once() -> None:
    sinks = [Recorder(fails_at=["step", "message"]) for _ in range(3)]
    with Reporter(sinks) as reporter:
        run_through(reporter)
        run_through(reporter)
    assert [sink.events[-1] for sink in sinks] == ["close"] * 3
    assert all(sink.events.count("step") <= 1 for sink in sinks)


def test_a_sink_that_cannot_close_does_not_keep_others_open() -> None:
    sinks = [Recorder(fails_at=["close"]), Recorder()]
    Reporter(sinks).close()
    assert sinks[1].events[-1] == "close"


def test_short_of_memory_a_sink_loses_a_report_and_stays() -> None:
    short, sound = Recorder(fails_at=["validation"], error=MemoryError()), Recorder()
    with Reporter([short, sound]) as reporter:
        run_through(reporter)
        run_through(reporter)
    assert short.events.count("validation") == 2
    assert short.events.count("end") == 2
    assert [text for text in sound.texts if "memory" in text] == [
        "WARNING Recorder ran out of memory; a report was dropped. This is logged once."
    ]


def test_on_a_full_disk_a_sink_loses_reports_and_stays() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    short, sound = Recorder(fails_at=["step"], error=full), Recorder()
    with Reporter([short, sound]) as reporter:
        run_through(reporter)
        run_through(reporter)
    assert short.events.count("end") == 2
    assert [text for text in sound.texts if "disk" in text] == [
        "WARNING Recorder cannot write: the disk is full. Reports wait or are dropped until it can. "
        "This is logged once."
    ]


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE])
def test_a_sink_that_cannot_write_for_a_while_stays_and_the_end_says_so(number: int) -> None:
    short, sound = Recorder(fails_at=["step"], error=OSError(number, os.strerror(number))), Recorder()
    with Reporter([short, sound]) as reporter:
        for _ in range(3):
            reporter.step(a_step(), (), a_progress(1))
        short.fails_at = ()
        reporter.step(a_step(), (), a_progress(1))
        reporter.end(END)
    assert short.events == ["step", "message", "step", "step", "step", "message", "end", "close"]
    said, again = sound.texts
    assert said.startswith(f"WARNING Recorder cannot write: {os.strerror(number)}. Reports wait")
    assert again.startswith(f"WARNING Recorder could not write 3 times (last: [Errno {number}]")
    assert again.endswith("what was reported at that time may be missing in it.")


def test_a_console_that_has_gone_is_left_out() -> None:
    gone, sound = Recorder(fails_at=["step"], error=BrokenPipeError(errno.EPIPE, "Broken pipe")), Recorder()
    with Reporter([gone, sound]) as reporter:
        reporter.step(a_step(), (), a_progress(1))
        reporter.step(a_step(), (), a_progress(2))
    assert gone.events.count("step") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_an_interrupt_is_not_swallowed(error: BaseException) -> None:
    sink = Recorder(fails_at=["step"], error=error)
    with Reporter([sink]) as reporter, pytest.raises(type(error)):
        reporter.step(a_step(), (), a_progress(1))
    assert sink.events == ["step", "close"]


def test_without_sinks_the_logger_is_left_alone(logger: logging.Logger) -> None:
    before = list(logger.handlers)
    with Reporter([]) as reporter:
        assert logger.handlers == before
        run_through(reporter)


def test_threads_that_log_while_steps_are_reported_do_not_block(logger: logging.Logger) -> None:
    class Talkative(Recorder):
        def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
            logger.info("from the step")

    sink = Talkative()
    with Reporter([sink]) as reporter:

        def log() -> None:
            for _ in range(50):
                logger.info("from the thread")

        threads = [threading.Thread(target=log) for _ in range(4)]
        for thread in threads:
            thread.start()
        for step in range(50):
            reporter.step(a_step(step + 1), (), a_progress(step + 1))
        for thread in threads:
            thread.join(timeout=30)
    assert len(sink.texts) == 250
