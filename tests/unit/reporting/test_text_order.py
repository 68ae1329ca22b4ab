"""What the console says in which order, what it leaves out, and how it counts."""

import io
from pathlib import Path

import pytest

from tests.unit.reporting.builders import a_progress, a_step, a_summary, a_validation
from trainauto.core.decisions import PlanChange, decision_from_dict, decision_to_dict
from trainauto.core.plan import Plan
from trainauto.core.run_events import RunEnd
from trainauto.reporting.console import PlainConsole
from trainauto.reporting.formatting import standing_line
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.runs.memory_report import memory_report
from trainauto.reporting.runs.memory_report_text import as_text
from trainauto.reporting.step_stats import StepWindow
from trainauto.reporting.text_log import TrainingLog
from trainauto.storage.run_directory import RunDirectory


def test_lines_stand_in_the_order_in_which_things_came_about() -> None:
    """Decided before the step, the plan it is the first of, the step, decided upon it."""
    small, large = Plan.of(batch_size=4, lq_size=48), Plan.of(batch_size=16, lq_size=48)
    stream = io.StringIO()
    sink = PlainConsole(1, stream, width=0)
    sink.start(a_summary())
    sink.step(a_step(1, plan=large), (), a_progress(1))
    given_back = PlanChange(small, "out of memory", early=True)
    sink.step(a_step(2, plan=small), (PlanChange(large, "it fits", early=False), given_back), a_progress(2))
    assert [line.split("  ")[0] for line in stream.getvalue().splitlines()[-5:]] == [
        "1/100000",
        "step 2: plan -> batch_size 4, lq_size 48: out of memory",
        "step 2: now training with batch_size 4, lq_size 48",
        "2/100000",
        "step 2: plan -> batch_size 16, lq_size 48: it fits",
    ]


def test_a_plan_that_was_announced_is_left_out_of_the_console_but_not_of_its_replay(tmp_path: Path) -> None:
    """The run's console had it before the first step; in a replay, which reads it from the log, nobody has said it."""
    made = PlanChange(Plan.of(batch_size=16, lq_size=48), "before the first batch: 4 GiB", early=True, announced=True)
    logged = decision_from_dict(decision_to_dict(1, made))
    assert logged == made
    texts = []
    for decision in (made, logged):
        stream = io.StringIO()
        for sink in (PlainConsole(1, stream), TrainingLog(tmp_path / "training.log", 1)):
            sink.start(a_summary())
            sink.step(a_step(1), (decision,), a_progress(1))
            sink.close()
        texts.append(stream.getvalue())
    assert ["before the first batch" in text for text in texts] == [False, True]
    assert (tmp_path / "training.log").read_text().count("before the first batch") == 2


def test_a_loss_of_zero_is_shown_as_it_is() -> None:
    for loss, text in ((0.0, "0.0000"), (-0.0625, "-0.062"), (0.0004, "4.0e-04"), (12345.0, "1.2e+04")):
        window = StepWindow()
        window.add(a_step(1, losses={"l1": loss}))
        line = standing_line(window.figures(), a_summary(), a_progress(1), None, 80)
        assert f"  loss {text} " in line


@pytest.mark.parametrize(
    ("in_training", "in_validation", "text"),
    [
        (0, 0, "none"),
        (3, 0, "3 passes of training did not fit"),
        (1, 1, "1 pass of training, 1 tile of validation did not fit"),
        (0, 2, "2 tiles of validation did not fit"),
    ],
)
def test_the_end_counts_as_the_report_does_how_often_memory_ran_out(
    tmp_path: Path, in_training: int, in_validation: int, text: str
) -> None:
    """Also what happened after the last line on how the run stands."""
    run = RunDirectory.create(tmp_path, "demo")
    stream = io.StringIO()
    sinks = (PlainConsole(100, stream), JsonLines(run))
    for sink in sinks:
        sink.start(a_summary())
        sink.step(a_step(1), (), a_progress(1))
        sink.step(a_step(2, ooms=in_training), (), a_progress(2))
        sink.validation(a_validation(ooms=in_validation), (), ())
        sink.end(RunEnd("completed", "done", a_progress(2)))
        sink.close()
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("OOM")]
    assert lines == [f"OOM         {text}"]
    reported = [line for line in as_text(memory_report(run)).splitlines() if line.startswith("OOM")]
    assert reported == (lines or ["OOM         none"])


def test_a_resumed_run_counts_what_ran_out_since_then() -> None:
    stream = io.StringIO()
    sink = PlainConsole(100, stream)
    sink.start(a_summary(progress=a_progress(7)))
    sink.step(a_step(8, ooms=1), (), a_progress(8))
    sink.end(RunEnd("completed", "done", a_progress(8)))
    assert stream.getvalue().splitlines()[-1] == "OOM         1 pass of training did not fit, since it was resumed"
