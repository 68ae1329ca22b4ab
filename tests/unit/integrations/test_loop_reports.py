"""What a loop of one's own says, with a run directory and without one."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from trainauto.core.decisions import Decision, KeepPlan, PlanChange
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import Progress, StepRecord
from trainauto.core.run_events import DETAIL, RunSummary
from trainauto.integrations.loop_reports import LoopReports
from trainauto.reporting.sinks import Sink
from trainauto.storage.run_directory import RunDirectory


def test_decisions_go_to_the_logger_with_their_reasons_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trainauto")
    plan = Plan.of(batch_size=4)
    record = StepRecord(7, plan, plan, BatchShape(4, 1), 0, {}, {}, {}, 0, 0)
    decisions: list[Decision] = [
        PlanChange(Plan.of(batch_size=8), "there is room"),
        KeepPlan(plan, "pieces are enough"),
        PlanChange(Plan.of(batch_size=2), "it did not fit", announced=True),  # was told of when it happened
    ]
    LoopReports(None).step(record, decisions, Progress())
    assert caplog.messages == [
        "step 7: now batch_size 8: there is room",
        "step 7: still batch_size 4: pieces are enough",
    ]


def test_words_are_heard_where_nobody_has_set_logging_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the name of its folder; what one need not see goes to training.log alone."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    reports = LoopReports(tmp_path / "mine", on_console=False)
    logger = logging.getLogger("trainauto.test")
    reports.start(RunSummary(reports.name, "", "cpu", "net", 3, Plan.of(batch_size=4), 8), {})
    run = RunDirectory(Path(reports.folder))
    logger.info("a block\n" + "word " * 30)
    logger.log(DETAIL, "a detail")
    reports.close()
    logger.info("nobody hears")
    said = capsys.readouterr().err.splitlines()
    assert said == ["a block", "word " * 30]
    assert "a detail" in run.log.read_text()
    assert "mine, 8 steps" in run.log.read_text()
    assert json.loads(run.log_object.read_text())["name"] == "mine"


def test_sinks_of_ones_own_hear_of_steps_without_a_folder(caplog: pytest.LogCaptureFixture) -> None:
    class Counting(Sink):
        steps = 0

        def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
            del record, decisions, progress
            self.steps += 1

    caplog.set_level(logging.INFO, "trainauto")
    sink, plan = Counting(), Plan.of(batch_size=4)
    reports = LoopReports(None, more_sinks=lambda curves: [sink] if curves is None else [])
    reports.start(RunSummary(reports.name, "", "cpu", "net", 3, plan, 8), {})
    record = StepRecord(7, plan, plan, BatchShape(4, 1), 0, {}, {}, {}, 0, 0)
    reports.step(record, [KeepPlan(plan, "pieces are enough")], Progress())
    reports.close()
    assert sink.steps == 1
    assert caplog.messages == ["step 7: still batch_size 4: pieces are enough"]
