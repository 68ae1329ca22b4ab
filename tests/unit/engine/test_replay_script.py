"""What a replay tells the loop, and what it says where it is another run."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.reporting.builders import a_step
from trainauto.core.decisions import ClipAt, Decision, PlanChange, RateFactor, Stop
from trainauto.core.errors import Saving
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import MicrobatchSplit, StepRecord
from trainauto.engine.replay_script import FreeScript, LoggedScript
from trainauto.engine.run_errors import ReplayError
from trainauto.engine.step_outcome import DoesNotFit

PLAN = Plan.of(batch_size=8, lq_size=48)


def step(number: int, **changes: Any) -> StepRecord:
    return a_step(number, **{"plan": PLAN, "drawn": PLAN, "shape": BatchShape(8, 48), **changes})


def replay_of(
    steps: Iterable[StepRecord], decisions: dict[int, list[Decision]] | None = None, last: int = 3, exact: bool = True
) -> LoggedScript:
    return LoggedScript(iter(steps), decisions or {}, last, is_exact=exact)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_decisions_come_where_they_were_made_and_the_last_step_ends_it() -> None:
    early, late, grow = RateFactor(0.5, "no room", early=True), ClipAt(1.0, "spike"), PlanChange(PLAN, "room")
    replay = replay_of([step(1), step(2), step(3)], {2: [early, late], 3: [grow]})
    assert replay.begin_step() == []
    assert replay.end_step(step(1), finished=False) == []
    assert replay.begin_step() == [early]
    assert replay.end_step(step(2), finished=False) == [late]
    assert replay.begin_step() == []
    assert replay.end_step(step(3), finished=False) == [grow, Stop("replayed up to step 3")]
    assert replay.facts() == (("replayed", "3 steps, every loss equals the log's"),)


@pytest.mark.parametrize(("decisions", "finished"), [([Stop("enough")], False), ([], True)])
def test_a_run_that_ends_by_itself_is_not_stopped_again(decisions: list[Decision], finished: bool) -> None:
    replay = replay_of([step(3)], {3: decisions})
    replay.begin_step()
    assert replay.end_step(step(3), finished=finished) == decisions


def test_pieces_are_those_of_the_log() -> None:
    logged = {"g": MicrobatchSplit(4, 48), "d": MicrobatchSplit(8, 40, without_onednn=True)}
    replay = replay_of([step(1, pieces=logged, ooms=3)])
    replay.begin_step()
    assert replay.splits() == logged
    replay.end_step(step(1, pieces=logged), finished=False)
    assert replay.facts()[0][1].endswith("every loss equals the log's")


def test_what_fits_here_is_where_later_steps_begin(caplog: pytest.LogCaptureFixture) -> None:
    small = {"plan": Plan.of(batch_size=8, lq_size=32), "shape": BatchShape(8, 32)}
    large = {"plan": Plan.of(batch_size=12, lq_size=64), "shape": BatchShape(12, 64)}
    replay = replay_of([step(1), step(2), step(3, **small), step(4, **large), step(5)])
    replay.begin_step()
    assert replay.splits() == {}
    replay.end_step(step(1, pieces={"g": MicrobatchSplit(2, 48)}, ooms=1), finished=False)
    replay.begin_step()
    assert replay.splits() == {"g": MicrobatchSplit(2, 48)}
    replay.end_step(step(2, pieces={"g": MicrobatchSplit(2, 48)}), finished=False)
    replay.begin_step()
    assert replay.splits() == {}  # smaller crops may fit whole
    replay.end_step(step(3, **small), finished=False)
    replay.begin_step()
    assert replay.splits() == {"g": MicrobatchSplit(3, 64)}  # no more than 4 samples at once, whole crops
    replay.end_step(step(4, **large, pieces={"g": MicrobatchSplit(12, 40)}, ooms=4), finished=False)
    replay.begin_step()
    assert replay.splits() == {"g": MicrobatchSplit(8, 40)}  # not even one sample of 64 px fitted
    (said,) = warnings(caplog)
    assert "step 1 (batch_size 8, lq_size 48) did not fit here as it was logged" in said
    assert "it ran in 2 micro-batches of size 48 (pass g) instead of in 1 micro-batch of size 48" in said
    assert "other micro-batches from step 1 on" in replay.facts()[0][1]


def test_the_first_other_loss_is_said_once_with_its_figures(caplog: pytest.LogCaptureFixture) -> None:
    replay = replay_of([step(number, losses={"l1": 0.5, "gan": 1.0}) for number in (1, 2, 3)])
    for number, loss in ((1, 0.5), (2, 0.5 + 2**-40), (3, 0.6)):
        replay.begin_step()
        replay.end_step(step(number, losses={"l1": loss, "gan": 1.0}), finished=True)
    (said,) = warnings(caplog)
    assert f"from step 2 on this is another run of the same plans: loss l1 is {0.5 + 2**-40!r} here and 0.5" in said
    assert replay.facts() == (("replayed", "3 steps, losses differ from step 2 on, by up to 0.2 of their value"),)


def test_where_sums_vary_small_differences_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    replay = replay_of([step(1, losses={"l1": 0.5})], exact=False)
    replay.begin_step()
    replay.end_step(step(1, losses={"l1": 0.5004}), finished=True)
    assert warnings(caplog) == []
    assert replay.facts() == (("replayed", "1 step, losses equal the log's within 0.1%"),)


def test_a_loss_that_is_missing_or_no_number_is_another_run(caplog: pytest.LogCaptureFixture) -> None:
    for losses in ({}, {"l1": float("nan")}):
        replay = replay_of([step(1, losses={"l1": 0.5})])
        replay.begin_step()
        replay.end_step(replace(step(1), losses=losses), finished=True)
        assert "losses differ from step 1 on, by up to inf" in replay.facts()[0][1]
    assert len(warnings(caplog)) == 2


def test_a_step_that_fits_in_no_way_ends_it_in_words() -> None:
    replay = replay_of([step(7)])
    with pytest.raises(RuntimeError, match="begin_step"):
        replay.splits()
    replay.begin_step()
    with pytest.raises(ReplayError) as caught:
        replay.refuse(DoesNotFit("g", 1, "no memory"))
    assert (caught.value.exit_code, caught.value.saving) == (1, Saving.TOGETHER)
    assert str(caught.value).startswith(
        "step 7 of the log (batch_size 8, lq_size 48) does not fit here: pass 'g' does not fit with 1 sample: no memory"
    )


def test_a_free_run_is_asked_the_same_and_lays_nothing_down() -> None:
    free = FreeScript()
    assert (free.begin_step(), free.splits(), free.end_step(step(1), finished=True), free.facts()) == ([], {}, [], ())
    free.refuse(DoesNotFit("g", 1, "no memory"))
    assert free.is_free
    assert not replay_of([]).is_free
