"""``objective: throughput``: the smallest batch on the plateau of speed."""

from typing import Any

import pytest

from tests.unit.automations.test_dynamic_batch_size import AXES, FREQUENCY, LIMIT, START, controller, memory, record_of
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import OutOfMemory


def seconds(plan: Plan, busy_from: int) -> float:
    """A device that is busy from so many pixels of input on: below, a step takes as long as a full one."""
    return max(busy_from, plan.batch_size * plan["lq_size"] ** 2) * 1e-6


def play(
    steps: int, busy_from: int, spike_at: int = -1, fails_at: int = -1, **arguments: Any
) -> tuple[Plan, list[PlanChange]]:
    """Train on that device; once, memory may be taken for a step, or a step fail under whatever plan there is then."""
    automation = controller(objective="throughput", **{"max_lq_size": 64, "max_batch_size": 48, **arguments})
    plan, changes = automation.controller.initial_plan(START), []
    automation.on_run_start(RunFacts(AXES, plan))
    for step in range(steps):
        if step == fails_at:
            shape = BatchShape(plan.forward_batch_size, plan["lq_size"])
            decision = automation.on_out_of_memory(OutOfMemory(step, plan, shape, "g", "no memory", 2, LIMIT))
            if decision is not None:
                changes.append(decision)
                plan = decision.plan
        at_once = plan.changed(batch_size=plan.forward_batch_size, micro_batches=1)
        record = record_of(
            step + 1,
            plan,
            LIMIT if step == spike_at else min(LIMIT, memory(at_once)),
            step_seconds=plan.micro_batches * seconds(at_once, busy_from),
            units=plan.batch_size * (2 * plan["lq_size"]) ** 2,
        )
        decision = automation.on_step_end(record)
        if decision is not None:
            changes.append(decision)
            plan = decision.plan
    return plan, changes


@pytest.mark.parametrize("policy", ["jump", "step"])
def test_goes_down_to_where_the_device_is_just_busy(policy: str) -> None:
    plan, changes = play(4000, busy_from=6 * 64**2, policy=policy)
    largest = max(change.plan.batch_size for change in changes)
    assert plan["lq_size"] == 64
    assert largest >= 14
    assert 6 <= plan.batch_size <= 8  # the edge is at 6, less what 5 % and a quarter leave open
    assert "smallest within 5%" in changes[-1].reason
    more = len(changes)
    assert len(play(8000, busy_from=6 * 64**2, policy=policy)[1]) == more


def test_stays_large_where_more_is_faster() -> None:
    plan, changes = play(4000, busy_from=10**9, policy="jump")
    largest = max(change.plan.batch_size for change in changes if change.plan["lq_size"] == 64)
    assert plan.batch_size == largest


def test_never_goes_below_the_configured_batch() -> None:
    plan, _ = play(4000, busy_from=1, policy="jump")
    assert plan.batch_size == START.batch_size


def test_a_spike_starts_it_over_and_it_comes_to_the_same() -> None:
    calm, _ = play(4000, busy_from=6 * 64**2, policy="jump")
    shaken, _ = play(8000, busy_from=6 * 64**2, policy="jump", spike_at=3000)
    assert abs(shaken.batch_size - calm.batch_size) <= 2
    assert FREQUENCY > 1


def test_with_a_target_batch_it_ends_at_a_division_that_is_as_fast() -> None:
    """32 samples run in pieces of 16, 11, 8...: plans between them do not exist, and must not be waited for."""
    plan, changes = play(4000, busy_from=10 * 32**2, policy="jump", target_batch_size=32, max_lq_size=32)
    assert plan.batch_size == 32
    assert plan.forward_batch_size in (11, 16)
    assert len(changes) < 12


def test_it_does_not_go_back_up_to_what_failed() -> None:
    calm, changes = play(200, busy_from=10**9, policy="jump")
    step = next(number for number in range(10, 200) if len(play(number, 10**9, policy="jump")[1]) == 3)
    _, shaken = play(step + 30, busy_from=10**9, policy="jump", fails_at=step + 3)
    failed = shaken[2].plan.batch_size
    assert all(change.plan.batch_size < failed for change in shaken[3:5])
    assert calm.batch_size >= failed
    assert len(changes) >= 3
