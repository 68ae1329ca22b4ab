"""Text from outside acts on no terminal, and makes no lines of its own in a log."""

import io
import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.reporting.builders import a_progress, a_step, a_summary, a_validation
from trainauto.cli import main
from trainauto.core.decisions import Stop
from trainauto.core.run_events import RunEnd
from trainauto.reporting.console import LiveConsole, PlainConsole
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.startup_log import StartupLog
from trainauto.reporting.summary_json import SummaryJson
from trainauto.reporting.text_log import TextSink, TrainingLog
from trainauto.storage.resumes import CHANGED, resumes_of
from trainauto.storage.run_directory import RunDirectory

FAKE = "2030-01-01 00:00:00,000 resumed     after step 7, 28 samples"
HOSTILE = (
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\u202egnp.exe",
    "[bold]loud[/bold] [/x]",
    f"name\n{FAKE}",
    f"name\r\n{FAKE}",
    "a\x85b\u2028c\x0bd",
    "ta\tb",
    "long" * 75,
    "\U0001f469\u200d\U0001f680 :smile:",
)
ACTS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def tell(sink: TextSink, text: str) -> None:
    """Put a text everywhere where a name or a reason may stand."""
    sink.start(a_summary(name=text, run_directory=text, network=text, samples={text: 3}, facts=((text, text),)))
    sink.step(
        a_step(1, losses={text: 1.0, "b": 2.0}, learning_rates={text: 1.0, "b": 1.0}), [Stop(text)], a_progress(1)
    )
    sink.validation(a_validation(1, dataset=text, metrics={text: 1.0}, baseline={text: 2.0}, seen=text), (), ())
    sink.message(text, logging.WARNING)
    sink.message(f"quoted {text}", logging.INFO)
    sink.end(RunEnd("failed", text, a_progress(1), text, ((text, text),), text))
    sink.close()


@pytest.mark.parametrize("text", HOSTILE)
def test_console_and_log_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream, terminal, log = io.StringIO(), io.StringIO(), tmp_path / "training.log"
    console = Console(file=terminal, force_terminal=True, width=80, height=20, legacy_windows=False)
    for sink in (PlainConsole(1, stream), LiveConsole(1, console), TrainingLog(log, 1)):
        tell(sink, text)
    own = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", terminal.getvalue())  # colours of warnings, the bar
    for shown in (stream.getvalue(), own, log.read_text(encoding="utf-8")):
        assert not ACTS.search(shown)
        if "red" in text:
            assert r"\x1b[31mred" in shown
        if "[bold]" in text:
            assert "[bold]loud[/bold] [/x]" in shown
        if "smile" in text:
            assert text in shown


@pytest.mark.parametrize("text", HOSTILE)
def test_no_line_of_a_log_is_taken_for_another(tmp_path: Path, text: str) -> None:
    run = RunDirectory(tmp_path)
    sink = TrainingLog(run.log, 1)
    tell(sink, text)
    tell(sink, f"x\n{CHANGED}y")
    sink.close()
    assert resumes_of(run) == []
    stamp = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
    lines = run.log.read_text(encoding="utf-8").split("\n")[:-1]
    assert all(stamp.match(line) for line in lines)
    assert not any(line[24:].startswith(("resumed", "2030")) for line in lines)


@pytest.mark.parametrize("text", HOSTILE)
def test_reports_comparisons_and_listings_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        run = RunDirectory.create(Path("experiments"), text[:100].replace("/", "-") + str(number))
        run.write_config({"name": text, text: number, "option": f"{text}{number}", "network_g": {"type": text}})
        sinks = [JsonLines(run), SummaryJson(run.log_object, 1)]
        for sink in sinks:
            sink.start(a_summary(total=3))
            sink.step(a_step(1), [Stop(text)], a_progress(1))
            score = replace(a_validation(1).scores[0], name=text)
            sink.validation(
                a_validation(1, dataset=text, metrics={text: 1.0}, better_is_higher={text: True}, scores=(score,)),
                (),
                (),
            )
            sink.end(RunEnd("stopped", text, a_progress(1)))
            sink.close()
    runs = [str(path) for path in sorted(Path("experiments").iterdir())]
    for arguments in (["experiments"], runs, runs[:1], [*runs[:1], "--list"]):
        assert main(["report", *arguments]) == 0
        assert not ACTS.search(capsys.readouterr().out)
        assert main(["report", *arguments, "--json"]) == 0
        shown = capsys.readouterr().out
        assert not ACTS.search(shown)
        json.loads(shown)
    assert main(["report", f"experiments/lost{text}"]) == 2
    assert not ACTS.search(capsys.readouterr().err)


def test_what_is_said_before_a_run_that_cannot_be_built(capsys: pytest.CaptureFixture[str]) -> None:
    with StartupLog():
        logging.getLogger("trainauto.data").warning("%s and\nanother line", "\x1b[31mred.png")
    assert capsys.readouterr().err == "\\x1b[31mred.png and\nanother line\n"
