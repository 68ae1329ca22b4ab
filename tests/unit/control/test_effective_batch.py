"""``target_batch_size``: an optimizer step of always as many samples, whatever fits into one forward pass."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.automations.test_dynamic_batch_size import AXES, LIMIT, LOOKAHEAD, Simulation, controller, memory
from trainauto.control.effective_batch import EffectiveBatch
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import OutOfMemory

sizes = st.integers(1, 300)


@given(samples=sizes, batch=sizes)
def test_steps_hold_the_samples_and_passes_no_more_than_was_meant(samples: int, batch: int) -> None:
    effective = EffectiveBatch(samples)
    plan = effective.whole(Plan.of(batch_size=batch, lq_size=8))
    assert plan.batch_size == samples
    assert plan.forward_batch_size <= batch
    assert plan.micro_batches == ceil(samples / min(batch, samples))
    even = effective.even(Plan.of(batch_size=batch, lq_size=8))
    assert effective.even(even) == even


@given(samples=sizes, batch=sizes)
def test_a_pass_above_the_step_makes_it_larger_where_it_may(samples: int, batch: int) -> None:
    effective, fixed = EffectiveBatch(samples, may_grow=True), EffectiveBatch(samples)
    asked = Plan.of(batch_size=batch, lq_size=8)
    plan = effective.whole(asked)
    assert plan == (asked if batch > samples else fixed.whole(asked))
    assert effective.forward(plan).batch_size <= batch
    assert effective.even(effective.even(asked)) == effective.even(asked)


def test_without_a_target_plans_are_the_runs_own() -> None:
    plan = Plan.of(batch_size=12, micro_batches=3, lq_size=8)
    assert EffectiveBatch().forward(plan) == EffectiveBatch().whole(plan) == EffectiveBatch().even(plan) == plan
    with pytest.raises(ValueError, match="at least 1"):
        EffectiveBatch(0)


@pytest.mark.parametrize("policy", ["step", "jump"])
def test_every_step_of_a_run_has_the_samples(policy: str) -> None:
    one = controller(policy=policy, target_batch_size=48, max_lq_size=96, max_batch_size=64)
    plan = one.controller.initial_plan(Plan.of(batch_size=4, lq_size=32))
    assert plan == Plan.of(batch_size=48, micro_batches=12, lq_size=32)
    simulation = Simulation(one, plan)
    simulation.run(1500, lambda plan, step: memory(plan.changed(batch_size=plan.forward_batch_size)))
    changed = [change.plan for _, change in simulation.changes]
    assert {plan.batch_size for plan in changed} == {48}
    assert simulation.plan["lq_size"] == 96
    assert simulation.plan.micro_batches < 12
    use = memory(simulation.plan.changed(batch_size=simulation.plan.forward_batch_size)) / LIMIT
    finer = ceil(48 / (simulation.plan.micro_batches - 1)) if simulation.plan.micro_batches > 1 else 99
    larger = memory(Plan.of(batch_size=finer, lq_size=96)) / LIMIT
    assert use <= 0.85
    assert use >= 0.80 or larger > 0.80  # one micro-batch less would be too much
    settled = len(simulation.changes)
    simulation.run(300, lambda plan, step: memory(plan.changed(batch_size=plan.forward_batch_size)))
    assert len(simulation.changes) == settled


def test_a_target_below_the_minimum_bounds_the_forward_pass() -> None:
    one = controller(target_batch_size=3, min_batch_size=8, max_batch_size=64)
    one.check(RunFacts(AXES, Plan.of(batch_size=3, lq_size=32)))
    batch = one.controller.bounded(AXES)[1]
    assert (batch.minimum, batch.maximum) == (3, 3)


@pytest.mark.parametrize("policy", ["step", "jump"])
def test_a_failure_leaves_it_awake(policy: str) -> None:
    """Half of 32 in two pieces is 16 at once, and not the 24 that a quarter less would be: it knows its plan again."""
    one = controller(policy=policy, target_batch_size=32, max_lq_size=28, min_batch_size=1)
    plan = Plan.of(batch_size=32, lq_size=32)
    assert one.controller.effective.next_larger(plan) is None
    simulation = Simulation(one, plan)
    event = OutOfMemory(1, plan, BatchShape(32, 32), "g", "no memory", 2, LIMIT)
    change = one.on_out_of_memory(event)
    assert isinstance(change, PlanChange)
    assert change.plan.batch_size == 32
    simulation.apply(change)
    simulation.run(400, lambda plan, step: memory(plan.changed(batch_size=plan.forward_batch_size)))
    assert one.get_vram_stats()["vram_history"]
    assert simulation.plan == plan.changed(lq_size=28)  # what failed was larger


def test_a_resumed_run_takes_up_another_target() -> None:
    one = controller(target_batch_size=32)
    Simulation(one, one.controller.initial_plan(Plan.of(batch_size=4, lq_size=32))).run(15)
    resumed = controller(target_batch_size=64)
    resumed.load_state_dict(one.state_dict())
    simulation = Simulation(resumed, Plan.of(batch_size=32, lq_size=32, micro_batches=8))
    simulation.run(LOOKAHEAD + 2, lambda plan, step: memory(plan.changed(batch_size=plan.forward_batch_size)))
    assert simulation.plan == Plan.of(batch_size=64, lq_size=32, micro_batches=16)
    assert "option file" in simulation.changes[0][1].reason
    assert [step for step, _ in simulation.changes] == [1]


def test_ranks_share_the_samples_of_a_step() -> None:
    assert EffectiveBatch(32, 4).samples == 8
    with pytest.raises(ValueError, match="cannot be divided among 3 ranks; the nearest is 33"):
        EffectiveBatch(32, 3)
