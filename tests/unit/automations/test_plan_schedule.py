"""Changes of plans at steps that an option file names."""

from dataclasses import dataclass, replace

import pytest

from trainauto.automations.plan_schedule import PlannedChange, PlanSchedule
from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError
from trainauto.core.plan import TOKENS, Axis, Plan

ROWS = RunFacts((Axis(TOKENS, "tokens", 50, 5000, 50),), Plan.of(tokens=100))


@dataclass
class Step:
    """What a schedule reads of a record."""

    step: int


def test_tokens_are_rounded_down_to_whole_rows() -> None:
    schedule = PlanSchedule([PlannedChange(3, tokens=1023)])
    schedule.check(ROWS)
    schedule.on_run_start(ROWS)
    assert schedule.on_step_end(Step(2)) is None  # type: ignore[arg-type]
    change = schedule.on_step_end(Step(3))  # type: ignore[arg-type]
    assert change is not None
    assert change.plan == Plan.of(tokens=1000)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (PlannedChange(1, tokens=49), "tokens 49 at step 1 is not admissible"),
        (PlannedChange(1, lq_size=64), "lq_size at step 1 is nothing that this run's batches have"),
    ],
)
def test_what_batches_do_not_have_is_refused(change: PlannedChange, words: str) -> None:
    with pytest.raises(InputError, match=words):
        PlanSchedule([change]).check(ROWS)


def test_changes_that_no_step_follows_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """A change after the last step is one of them."""
    of_twelve = replace(ROWS, steps=12)
    PlanSchedule([PlannedChange(step, tokens=500) for step in (11, 12, 40)]).check(of_twelve)
    assert "the run ends after step 12; no step follows a change at 12, 40" in caplog.text
    caplog.clear()
    PlanSchedule([PlannedChange(11, tokens=500)]).check(of_twelve)
    PlanSchedule([PlannedChange(40, tokens=500)]).check(ROWS)
    assert not caplog.text
