"""Runs that end where their loss is low enough (D36, D37)."""

import math
from dataclasses import replace

import pytest

from tests.unit.automations.watched import decided, step_of
from trainauto.automations.low_loss import StopAtLowLoss
from trainauto.core.decisions import Stop


@pytest.mark.parametrize(
    ("losses", "ends"),
    [
        ((0.5, 0.5, 0.5), 3),
        ((0.4, 0.4, 0.6, 0.4, 0.4, 0.4), 6),
        ((0.4, 0.4, math.nan, 0.4, 0.4), None),
        ((0.51, 0.51, 0.51, 0.51), None),
    ],
)
def test_a_low_loss_ends_the_run_after_steps_one_after_another(losses: tuple[float, ...], ends: int | None) -> None:
    """A step above it begins the count anew."""
    found = decided(StopAtLowLoss(0.5, 3), [step_of(step, loss) for step, loss in enumerate(losses, 1)])
    reason = f"the loss was at most 0.5 for 3 steps, up to step {ends}"
    assert found == ({} if ends is None else {ends: Stop(reason, termination="auto_low_loss")})


def test_steps_without_a_pass_are_not_counted() -> None:
    """Their loss lacks the terms of that pass."""
    steps = [replace(step_of(step, 0.4), left_out=("g",) if step % 2 else ()) for step in range(1, 7)]
    assert list(decided(StopAtLowLoss(0.5, 3), steps)) == [6]


def test_a_resume_goes_on_counting() -> None:
    first, second = StopAtLowLoss(0.5, 3), StopAtLowLoss(0.5, 3)
    assert decided(first, [step_of(1, 0.4), step_of(2, 0.4)]) == {}
    second.load_state_dict(first.state_dict())
    assert second.on_step_end(step_of(3, 0.4)) is not None


def test_another_goal_is_counted_for_anew() -> None:
    first, second = StopAtLowLoss(0.5, 3), StopAtLowLoss(0.45, 3)
    assert decided(first, [step_of(1, 0.4), step_of(2, 0.4)]) == {}
    second.load_state_dict(first.state_dict())
    assert second.on_step_end(step_of(3, 0.4)) is None


@pytest.mark.parametrize(
    ("arguments", "words"), [((math.nan,), "loss must be a number"), ((0.1, 0), "patience must be 1 step or more")]
)
def test_arguments_that_cannot_be(arguments: tuple[float, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        StopAtLowLoss(*arguments)  # type: ignore[arg-type]
