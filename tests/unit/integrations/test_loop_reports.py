"""What a loop of one's own says where it writes nothing."""

import logging

import pytest

from trainauto.core.decisions import Decision, KeepPlan, PlanChange
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import Progress, StepRecord
from trainauto.integrations.loop_reports import LoopReports


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
