"""How long a run still takes."""

import io

import pytest

from tests.unit.reporting.builders import a_progress, a_step, a_summary
from trainauto.core.plan import BatchShape
from trainauto.core.records import Progress
from trainauto.core.run_events import RunSummary
from trainauto.reporting.console import PlainConsole
from trainauto.reporting.time_left import TimeLeft


def after_steps(summary: RunSummary, steps: int, step_s: float = 0.2) -> TimeLeft:
    left = TimeLeft(summary.total, summary.unit)
    for step in range(1, steps + 1):
        left.step(a_step(step, data_seconds=0.0, step_seconds=step_s))
    return left


def test_it_goes_by_what_is_left_of_a_resumed_run_and_the_rate_since() -> None:
    left = after_steps(a_summary(total=100_000, progress=a_progress(90_000)), 10)
    assert left.seconds(90_010) == pytest.approx(9_990 * 0.2)
    assert left.seconds(100_001) == 0


def test_a_run_counted_in_samples_goes_by_samples_however_large_a_batch_is() -> None:
    left = TimeLeft(1000, "samples")
    for step, samples in enumerate([4] * 5 + [16] * 200, 1):
        left.step(a_step(step, shape=BatchShape(samples, 48), data_seconds=0.0, step_seconds=samples * 0.01))
    assert left.seconds(400) == pytest.approx(600 * 0.01)


def test_the_first_step_loads_libraries_and_is_forgotten() -> None:
    left = TimeLeft(100, "steps")
    left.step(a_step(1, data_seconds=0.0, step_seconds=50.0))
    assert left.seconds(1) == pytest.approx(99 * 50.0)  # nothing better is known
    left.step(a_step(2, data_seconds=0.0, step_seconds=0.5))
    assert left.seconds(2) == pytest.approx(98 * 0.5)


def test_it_follows_a_change_of_plan_and_does_not_jump_with_a_step() -> None:
    left = after_steps(a_summary(total=100_000), 2000)
    left.step(a_step(2001, data_seconds=2.0, step_seconds=0.2))
    assert left.seconds(2001) == pytest.approx(97_999 * 0.2, rel=0.05)
    for step in range(2002, 3000):
        left.step(a_step(step, data_seconds=0.0, step_seconds=0.4))
    assert left.seconds(3000) == pytest.approx(97_000 * 0.4, rel=0.01)


def test_slow_steps_count_some_twenty() -> None:
    left = after_steps(a_summary(total=1000), 30, step_s=70.0)
    left.step(a_step(31, data_seconds=0.0, step_seconds=140.0))
    assert 969 * 70 < (left.seconds(31) or 0) < 969 * 77


def test_validations_take_their_share_of_the_time() -> None:
    left = after_steps(a_summary(total=4000), 1000)
    left.validation(30.0)
    left.validation(10.0)
    assert left.seconds(1000) == pytest.approx(3000 * 0.2 * 1.2)
    for step in range(1001, 1500):  # until the next one, these are not thought to have become rarer
        left.step(a_step(step, data_seconds=0.0, step_seconds=0.2))
    assert left.seconds(1500) == pytest.approx(2500 * 0.2 * 1.2)


def test_a_validation_before_the_first_step_says_nothing() -> None:
    left = TimeLeft(100, "steps")
    left.validation(100.0)
    assert left.seconds(0) is None
    left.step(a_step(1, data_seconds=0.0, step_seconds=1.0))
    assert left.seconds(1) == pytest.approx(99.0)


def test_the_console_says_it_of_a_resumed_run_counted_in_samples() -> None:
    stream = io.StringIO()
    sink = PlainConsole(10, stream)
    sink.start(a_summary(total=4000, unit="samples", progress=Progress(steps=500, samples=2000)))
    sink.step(a_step(501), (), Progress(steps=501, samples=2004))
    assert "step 501  2004/4000 samples" in stream.getvalue()
    assert "ETA 1m40s" in stream.getvalue()  # 1996 samples, 4 in 0.2 s
