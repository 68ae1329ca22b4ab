"""Steps that wait for data: said once, where it is a fifth of their time."""

import logging
from dataclasses import replace

import pytest

from tests.unit.engine.test_checkpointing_fallback import record as a_step
from trainauto.core.records import StepRecord
from trainauto.engine.training import FIRST_STEPS, WATCHED_STEPS, DataWait

ADVICE = "write cache_dir"


def steps(wait: DataWait, count: int, waited_s: float, advice: str = ADVICE) -> None:
    for _ in range(count):
        wait.see(record(waited_s), advice)


def record(waited_s: float) -> StepRecord:
    return replace(a_step(1.0), data_seconds=waited_s)


@pytest.mark.parametrize(("waited_s", "is_said"), [(0.2, False), (0.3, True)])
def test_a_long_wait_is_said_once(waited_s: float, is_said: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    wait = DataWait()
    steps(wait, FIRST_STEPS, 100.0)
    steps(wait, 3 * WATCHED_STEPS, waited_s)
    assert len(caplog.messages) == is_said
    if is_said:
        assert caplog.messages == [
            f"the last {WATCHED_STEPS} steps spent 23 % of their time waiting for data: {ADVICE}"
        ]


def test_only_what_was_watched_last_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    wait = DataWait()
    steps(wait, FIRST_STEPS + WATCHED_STEPS, 0.0)
    assert not caplog.messages
    steps(wait, WATCHED_STEPS, 0.5)
    assert len(caplog.messages) == 1
    steps(DataWait(), 200, 9.0, advice="")
    assert len(caplog.messages) == 1
