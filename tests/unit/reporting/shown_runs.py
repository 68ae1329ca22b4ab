"""A run of twenty steps as sinks of text are told of it."""

import io
import logging
from typing import Any

from tests.unit.reporting.builders import GIB, a_progress, a_step, a_summary, a_validation
from trainauto.core.decisions import PlanChange
from trainauto.core.plan import Plan
from trainauto.core.run_events import RunEnd
from trainauto.reporting.console import PlainConsole
from trainauto.reporting.text_log import TextSink

REASON = "the peak of 5.91 GiB lies below the band of 80 to 85 % of 79.1 GiB, so there is room for larger crops"
GROW = PlanChange(Plan.of(batch_size=16, lq_size=72), REASON, predicted=7 * GIB, measured=int(5.91 * GIB))


def run_through(sink: TextSink, first: int = 1, last: int = 20, **summary: Any) -> None:
    sink.start(a_summary(progress=a_progress(first - 1), **summary))
    for step in range(first, last + 1):
        sink.step(a_step(step), [GROW] if step == 15 else (), a_progress(step))
    sink.validation(a_validation(20), (), ())
    sink.message("saved checkpoint 20", logging.INFO)
    sink.end(RunEnd("completed", "all 20 steps done", a_progress(20), checkpoint="checkpoints/20"))
    sink.close()


def plain(**summary: Any) -> str:
    stream = io.StringIO()
    run_through(PlainConsole(10, stream), **summary)
    return stream.getvalue()
