import io
import logging
import os
import re
from pathlib import Path

import pytest

from tests.unit.reporting.builders import a_summary
from tests.unit.reporting.shown_runs import REASON, run_through
from trainauto.reporting.console import PlainConsole
from trainauto.reporting.text_log import TrainingLog


def test_training_log_has_the_same_lines_with_timestamps_unwrapped(tmp_path: Path) -> None:
    path = tmp_path / "training.log"
    run_through(TrainingLog(path, 10))
    stamped = path.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", line) for line in stamped)
    bare = [line[24:] for line in stamped]
    stream = io.StringIO()
    run_through(PlainConsole(10, stream, width=0))
    assert bare == stream.getvalue().splitlines()
    assert any(REASON in line for line in bare)


def test_training_log_is_opened_by_its_first_line(tmp_path: Path) -> None:
    sink = TrainingLog(tmp_path / "training.log", 10)
    assert not (tmp_path / "training.log").exists()
    sink.close()


def test_training_log_is_appended_to_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "training.log"
    for text in ("first\nsecond", "third größer"):
        sink = TrainingLog(path, 10)
        sink.message(text, logging.WARNING)
        sink.close()
    assert [line[24:] for line in path.read_text(encoding="utf-8").splitlines()] == [
        "WARNING first",
        "WARNING     second",
        "WARNING third größer",
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_training_log_on_a_full_disk_raises(tmp_path: Path) -> None:
    """The kernel refuses writes by a real handle."""
    sink = TrainingLog(tmp_path / "training.log", 10)
    sink.message("written", logging.INFO)
    assert sink._handler.stream is not None
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, sink._handler.stream.fileno())
    os.close(full)
    with pytest.raises(OSError, match="No space left"):
        sink.message("hello", logging.INFO)
    with pytest.raises(OSError, match="No space left"):
        sink.close()


def test_what_is_said_is_wrapped_on_the_console_only(tmp_path: Path) -> None:
    text = "DynamicBatchSizeOptimizer: " + ", ".join(f"min_batch_size {number} (preset)" for number in range(6))
    stream, log = io.StringIO(), TrainingLog(tmp_path / "training.log", 1)
    console = PlainConsole(1, stream)
    for sink in (console, log):
        sink.message(text, logging.INFO)
        sink.start(a_summary())
        sink.message(text, logging.WARNING)
        sink.message(f"to be copied:\n{text}", logging.INFO)
        sink.close()
    lines = stream.getvalue().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("run "))
    warning = next(number for number, line in enumerate(lines) if line.startswith("warning: "))
    for shown, said in ((lines[:start], text), (lines[warning : warning + 3], f"warning: {text}")):
        assert len(shown) == 3
        assert all(len(line) <= 80 for line in shown)
        assert " ".join(" ".join(shown).split()) == said
    assert lines[-2:] == ["to be copied:", text]
    kept = (tmp_path / "training.log").read_text()
    assert kept.count(text) == 3
    assert f" WARNING {text}\n" in kept
