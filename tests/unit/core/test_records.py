"""What a step's peak says of its plan."""

from dataclasses import replace

from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import MicrobatchSplit, StepRecord

PLAN = Plan.of(batch_size=4, lq_size=16)
WHOLE = StepRecord(1, PLAN, PLAN, BatchShape(4, 16), 0, {}, {}, {}, 0.0, 0.1)


def test_only_a_step_that_ran_as_its_plan_says_is_whole() -> None:
    """A replay runs in pieces without a failure; its peak is that of the pieces."""
    assert WHOLE.is_whole
    assert not replace(WHOLE, shape=BatchShape(2, 16)).is_whole
    assert not replace(WHOLE, shape=BatchShape(4, 12)).is_whole
    assert not replace(WHOLE, ooms=1).is_whole
    assert not replace(WHOLE, pieces={"g": MicrobatchSplit(2, 16)}).is_whole
