"""The controller with ``policy: jump``: what it takes from a trace, from neighbours, from an earlier run."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.automations.test_dynamic_batch_size import AXES, LIMIT, START, controller, memory
from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.control.planners import Jump
from trainauto.control.policy_input import PolicyInput
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.plan import BatchShape, Plan, shape_of
from trainauto.core.records import OutOfMemory, PeakReading, StepRecord
from trainauto.memory.cost.cost_model import CostModel
from trainauto.memory.cost.ratio_prior import ALLOCATED, RESERVED, UPPER
from trainauto.memory.cost.traced_fit import Prior, fit_prior

FACTS = RunFacts(AXES, START)
GRID = [(2, 32), (2, 64), (8, 64), (8, 128)]


def prior(more: float = 1.0) -> Prior:
    return fit_prior({(b, x): {"step": more * memory(Plan.of(batch_size=b, lq_size=x))} for b, x in GRID})


def jumping(**arguments: Any) -> DynamicBatchSizeOptimizer:
    one = controller(policy="jump", max_lq_size=64, max_batch_size=48, **arguments)
    one.controller.set_prior((prior(), ALLOCATED), (prior(1.05), RESERVED))
    return one


class Steps:
    """Steps of a run on a card: the allocator holds 4 % more than tensors do, and neighbours may come."""

    def __init__(self, one: DynamicBatchSizeOptimizer, plan: Plan = START) -> None:
        self.one, self.plan, self.step = one, plan, 0
        self.changes: list[tuple[int, PlanChange]] = []
        one.on_run_start(RunFacts(AXES, plan))

    def run(self, steps: int, neighbour: int = 0, retries: int = 0, share: float = 1.0) -> None:
        """Train steps whose samples take a share of what the largest ones take."""
        for _ in range(steps):
            self.step += 1
            peak = int(share * memory(self.plan))
            reading = PeakReading(
                peak, reserved=int(1.04 * peak), limit=LIMIT, alloc_retries=retries, available=LIMIT - neighbour
            )
            shape = BatchShape(self.plan.batch_size, self.plan["lq_size"])
            record = StepRecord(self.step, self.plan, self.plan, shape, 0, {}, {}, {}, 0, 0, peak=reading)
            self.one.fills_plan = share == 1.0
            decision = self.one.on_step_end(record)
            if isinstance(decision, PlanChange):
                self.changes.append((self.step, decision))
                self.plan = decision.plan


def test_jumps_after_the_first_step_and_corrects_once() -> None:
    steps = Steps(jumping())
    steps.run(400)
    assert steps.changes[0][0] == 1
    assert len(steps.changes) <= 2
    assert steps.plan["lq_size"] == 64
    assert 0.8 * LIMIT <= memory(steps.plan) <= 0.85 * LIMIT


def test_what_the_allocator_holds_must_fit_what_neighbours_leave() -> None:
    """A process beside this one moves the limit: at the start, and while the run goes on."""
    steps = Steps(jumping())
    steps.run(1, neighbour=LIMIT // 2)
    assert 1.04 * memory(steps.plan) <= LIMIT / 2
    steps = Steps(jumping())
    steps.run(400)
    settled, before = steps.plan, len(steps.changes)
    steps.run(30, neighbour=LIMIT // 4)
    assert len(steps.changes) > before
    assert "available" in steps.changes[before][1].reason
    assert 1.04 * memory(steps.plan) <= LIMIT * 3 / 4
    steps.run(100)
    assert steps.plan == settled  # it left, and so the plan comes back


def test_a_flushed_cache_counts_as_too_much() -> None:
    steps = Steps(jumping())
    steps.run(400)
    settled = steps.plan
    steps.run(60, retries=1)
    assert memory(steps.plan) < memory(settled)


def test_an_earlier_run_is_taken_up_where_it_settled() -> None:
    first = Steps(jumping())
    assert first.one.controller.calibration_state() is None
    first.run(400)
    learned = first.one.controller.calibration_state()
    assert learned is not None
    one = jumping()
    plan = one.controller.load_calibration(learned, FACTS, LIMIT)
    assert plan == first.plan
    second = Steps(one, plan)
    second.run(400)
    assert second.changes == []
    assert second.one.controller.calibration_state()["plan"] == learned["plan"]


@pytest.mark.parametrize("change", ["limit", "target", "bounds", "batch"])
def test_under_other_conditions_only_what_was_measured_is_taken(change: str) -> None:
    first = Steps(jumping())
    first.run(400)
    learned = first.one.controller.calibration_state()
    assert learned is not None
    one = jumping(**({"target_vram_usage": 0.6} if change == "target" else {}))
    facts = FACTS if change != "batch" else RunFacts(AXES, START.changed(batch_size=6))
    if change == "bounds":
        facts = RunFacts((AXES[0], AXES[1].__class__("batch_size", "samples", 1, 8)), START)
    limit = LIMIT // 2 if change == "limit" else LIMIT
    assert one.controller.load_calibration(learned, facts, limit) is None
    assert abs(one.expected_bytes(first.plan) / memory(first.plan) - 1) < 0.01
    steps = Steps(one, facts.plan)
    steps.run(1)
    assert len(steps.changes) == 1  # it jumps by what was measured


@pytest.mark.parametrize("policy", ["jump", "step"])
def test_what_was_measured_is_forgotten_when_plans_need_something_else(policy: str) -> None:
    """Gradient checkpointing was switched on: the run grows again, past plans that had failed, and keeps no record."""
    one = controller(policy=policy, max_lq_size=64, max_batch_size=48)
    if policy == "jump":
        one.controller.set_prior((prior(8), ALLOCATED))  # so much more is needed without it
    one.on_run_start(FACTS)
    for _ in range(2):
        one.on_out_of_memory(OutOfMemory(1, START, BatchShape(4, 32), "g", "no memory", 2, LIMIT))
    one.on_peaks_invalidated()
    assert one.expected_bytes(START) is None
    resumed = controller(policy=policy, max_lq_size=64, max_batch_size=48)
    if policy == "jump":
        resumed.controller.set_prior((prior(8), ALLOCATED))
    resumed.load_state_dict(one.state_dict())
    for each in (one, resumed):
        steps = Steps(each, Plan.of(batch_size=2, lq_size=16))
        steps.run(1500)
        assert steps.plan["lq_size"] == 64
        assert 0.75 * LIMIT <= memory(steps.plan) <= 0.85 * LIMIT
        assert each.controller.calibration_state() is None


@pytest.mark.parametrize("policy", ["jump", "step"])
def test_a_failure_at_the_floor_leaves_it_awake(policy: str) -> None:
    """A neighbour's spike at the smallest crop and batch: the batch runs in pieces, and the run grows again."""
    floor = Plan.of(batch_size=2, lq_size=16)
    one = controller(policy=policy, max_lq_size=64, max_batch_size=48)
    steps = Steps(one, floor)
    change = one.on_out_of_memory(OutOfMemory(1, floor, BatchShape(2, 16), "g", "no memory", 2, LIMIT))
    assert isinstance(change, PlanChange)
    assert change.plan == floor.with_micro_batches(2)
    steps.plan = change.plan
    steps.run(600)
    assert steps.plan["lq_size"] >= 56
    assert one.get_vram_stats()["oom_recovery_count"] == 1


@pytest.mark.parametrize("policy", ["jump", "step"])
def test_a_larger_card_is_filled_after_a_resume(policy: str) -> None:
    small = controller(policy=policy, max_lq_size=32, max_batch_size=64)
    small.on_run_start(FACTS)
    small.on_step_end(record_of(START, LIMIT // 8))
    for _ in range(2):
        small.on_out_of_memory(OutOfMemory(1, START, BatchShape(4, 32), "g", "no memory", 2, LIMIT // 8))
    large = controller(policy=policy, max_lq_size=32, max_batch_size=64)
    large.load_state_dict(small.state_dict())
    steps = Steps(large, Plan.of(batch_size=3, lq_size=24))
    steps.run(1500)
    assert steps.plan.batch_size > START.batch_size
    assert steps.plan["lq_size"] == 32


def test_what_was_measured_under_other_options_is_dropped() -> None:
    one = Steps(jumping())
    one.one.controller.kind = "fp32"
    one.run(60)
    other = jumping()
    other.controller.kind = "bf16"
    before = other.expected_bytes(START)
    other.load_state_dict(one.one.state_dict())
    assert other.expected_bytes(START) == before
    assert other.controller.calibration_state() is None


def test_the_search_for_speed_begins_anew_under_other_conditions() -> None:
    one = controller(policy="jump", max_lq_size=32, max_batch_size=16, objective="throughput")
    one.on_run_start(FACTS)
    for _ in range(200):
        one.on_step_end(record_of(START, LIMIT))
    learned = one.controller.calibration_state()
    assert learned is not None
    assert learned["steering"]["rest"] is not None
    again = controller(policy="jump", max_lq_size=32, max_batch_size=16, objective="throughput")
    assert again.controller.load_calibration(learned, FACTS, LIMIT // 2) is None
    assert again.state_dict()["steering"]["rest"] is None


def record_of(plan: Plan, limit: int) -> StepRecord:
    reading = PeakReading(int(0.82 * limit), limit=limit)
    shape = BatchShape(plan.batch_size, plan["lq_size"])
    return StepRecord(1, plan, plan, shape, 0, {}, {}, {}, 0, 0.1, units=1000, peak=reading)


def test_what_the_allocator_keeps_of_other_plans_is_not_what_a_plan_needs() -> None:
    """It held half as much again after the crop had grown, and would have given that back before it failed."""
    jump, alone = Jump(CostModel(prior(), ALLOCATED), CostModel(prior(1.05), RESERVED)), Jump(CostModel(prior()))
    shape, peak = shape_of(START), memory(START)
    foreseen, doubted = jump.reserved.predict(shape), jump.reserved.predict(shape, UPPER)
    seen = PolicyInput(
        plan=START,
        peak_bytes=peak,
        typical_bytes=peak,
        limit_bytes=LIMIT,
        target=0.85,
        margin=0.05,
        axes=AXES,
        configured_batch=4,
        reserved_bytes=int(1.5 * peak),
        available_bytes=LIMIT,
    )
    for one in (jump, alone):
        one.decide(seen)
    assert (jump.reserved.predict(shape), jump.reserved.predict(shape, UPPER)) == (foreseen, doubted)
    assert alone.reserved.predict(shape) == pytest.approx(1.5 * peak, rel=0.01)  # nothing was foreseen of it
    # But no plan needs more than was seen to be enough.
    for _ in range(2):
        jump.decide(replace(seen, reserved_bytes=int(1.01 * peak)))
    assert jump.reserved.predict(shape) < 1.02 * peak < foreseen


def test_one_flush_after_a_change_of_plans_is_none_of_the_plans() -> None:
    steps = Steps(jumping())
    steps.run(400)
    settled, before = steps.plan, len(steps.changes)
    steps.run(1, retries=1)
    steps.run(40)
    assert steps.plan == settled
    assert len(steps.changes) == before


def test_short_rows_say_nothing_of_what_the_longest_take() -> None:
    """A batch of 10 rows became one of 19 after a period of short ones, and the next long ones ran out of memory."""
    steps = Steps(jumping())
    steps.run(40)
    settled = steps.plan
    for _ in range(3):
        steps.run(90, share=0.4)
        steps.run(3)
    assert steps.plan == settled
    assert memory(steps.plan) <= 0.85 * LIMIT
    assert steps.one.controller.expected_bytes(settled) == pytest.approx(memory(settled), rel=0.01)
    assert steps.one.controller.largest_peak is not None


def test_long_rows_that_take_more_than_was_foretold_correct_it() -> None:
    one = controller(policy="jump", max_lq_size=64, max_batch_size=48)
    one.controller.set_prior((prior(0.7), ALLOCATED))
    steps = Steps(one)
    steps.run(150, share=0.4)
    assert memory(steps.plan) > 0.9 * LIMIT, "the trace said too little"
    steps.run(4)
    steps.run(200, share=0.4)
    steps.run(150)
    assert memory(steps.plan) <= 0.85 * LIMIT
