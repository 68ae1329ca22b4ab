"""Policies, cost models and memory of failures on axes that are no crops: tokens of a row, or one axis alone."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.control.bounds import Bounds
from trainauto.control.control_settings import ControlSettings
from trainauto.control.controller import Controller
from trainauto.control.effective_batch import EffectiveBatch
from trainauto.control.failure_memory import largest_below
from trainauto.control.jump_policy import JumpInput, best_plan, frontier
from trainauto.control.jump_policy import decide as jump
from trainauto.control.step_policy import Measured, StepInput
from trainauto.control.step_policy import decide as small_step
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.plan import Axis, Plan, plan_of, shape_of, size_axis, work
from trainauto.core.records import OutOfMemory, PeakReading
from trainauto.memory.cost.cost_model import UPPER, CostModel
from trainauto.memory.cost.memory_forecast import spread
from trainauto.memory.cost.traced_fit import fit_prior

MIB = 2**20
LIMIT = 1000 * MIB
TOKENS, ROWS = Axis("tokens", "tokens", 16, 512, 16), Axis("batch_size", "samples", 2, 64)
CROPS = Axis("lq_size", "px", 16, 128, power=2)
KINDS = {
    "rows and tokens": (TOKENS, ROWS),
    "rows first": (ROWS, TOKENS),
    "a token budget alone": (Axis("tokens", "tokens", 256, 16384, 256),),
    "samples alone": (ROWS,),
    "crops": (CROPS, ROWS),
}
each_kind = pytest.mark.parametrize("axes", KINDS.values(), ids=KINDS)


def need(plan: Plan, axes: tuple[Axis, ...]) -> float:
    """Return what a step takes, such that the largest plan never fits, and the smallest does."""
    size = size_axis(axes)
    largest = plan_of(axes, 64, size.maximum if size else 1)
    return 50 * MIB + 3000 * MIB * work(plan, axes) / work(largest, axes)


def traced_cost(axes: tuple[Axis, ...]) -> CostModel:
    power = size.power if (size := size_axis(axes)) else 1
    points = {(plan.forward_batch_size, plan.size): {"backward": need(plan, axes)} for plan in spread(axes)}
    return CostModel(fit_prior(points, power=power))


def known(plan: Plan, axes: tuple[Axis, ...], **changes: Any) -> dict[str, Any]:
    usual = {"plan": plan, "limit_bytes": LIMIT, "target": 0.85, "margin": 0.05, "axes": axes}
    return {**usual, "configured_batch": plan.batch_size, **changes}


def smallest_of(axes: tuple[Axis, ...]) -> Plan:
    return Plan.of(**{axis.name: axis.minimum for axis in axes})


@each_kind
def test_traces_of_any_axes_predict_all_their_plans(axes: tuple[Axis, ...]) -> None:
    cost = traced_cost(axes)
    for plan in (smallest_of(axes), *spread(axes, 32)):
        assert cost.prior is not None
        assert cost.prior.bytes(plan.forward_batch_size, plan.size) == pytest.approx(need(plan, axes), rel=1e-3)


@each_kind
def test_the_best_plan_is_on_the_edge_of_what_fits(axes: tuple[Axis, ...]) -> None:
    now = JumpInput(**known(smallest_of(axes), axes), cost=traced_cost(axes))
    decision = jump(now)
    assert need(decision.plan, axes) > 0.68 * LIMIT  # with 64 rows, 16 tokens are 9 % of it
    assert now.admits(decision.plan)
    assert decision.plan.to_dict().keys() == {*(axis.name for axis in axes), "micro_batches"}


@each_kind
def test_above_target_the_axis_that_grew_last_shrinks_first(axes: tuple[Axis, ...]) -> None:
    plan = Plan.of(**{axis.name: axis.maximum for axis in axes})
    peak = int(need(plan, axes))
    situation = known(plan, axes, peak_bytes=peak, typical_bytes=peak)
    for smaller in (
        jump(JumpInput(**situation, cost=traced_cost(axes), corrected=True)).plan,
        small_step(StepInput(**situation, measured=Measured({plan: peak}, lambda plan: work(plan, axes)))).plan,
    ):
        assert smaller[axes[-1].name] < plan[axes[-1].name]
        assert work(smaller, axes) < work(plan, axes)


def test_the_order_of_the_axes_is_the_order_of_growth() -> None:
    def best(*axes: Axis) -> Plan:
        plan = best_plan(JumpInput(**known(smallest_of(axes), axes), cost=traced_cost((TOKENS, ROWS))))
        assert plan is not None
        return plan

    assert (best(TOKENS, ROWS).size, best(ROWS, TOKENS).batch_size) == (512, 64)
    assert best(TOKENS, ROWS).batch_size < 64 > 0 < best(ROWS, TOKENS).size < 512


@each_kind
@settings(max_examples=20, deadline=None)
@given(share=st.floats(0.05, 0.95))
def test_the_frontier_holds_the_largest_batches_that_fit(axes: tuple[Axis, ...], share: float) -> None:
    cost = traced_cost(axes)
    limit = int(60 * MIB + share * 900 * MIB)
    edge = frontier(cost, axes, limit)
    assert all(cost.predict(shape_of(plan), UPPER) <= limit for plan in edge)
    for plan in edge:
        larger = plan.with_batch_size(plan.batch_size + 1)
        assert larger == plan or larger.batch_size > 64 or cost.predict(shape_of(larger), UPPER) > limit


@each_kind
def test_a_plan_just_below_one_that_failed(axes: tuple[Axis, ...]) -> None:
    plan = Plan.of(**{axis.name: axis.values[len(axis.values) // 2] for axis in axes})
    below = largest_below(plan, int(0.985 * work(plan, axes)), axes, configured_batch=2)
    assert below is not None
    assert 0.9 * work(plan, axes) < work(below, axes) < work(plan, axes)


def controller(axes: tuple[Axis, ...], policy: str) -> Controller:
    settings = ControlSettings(policy=policy, adjustment_frequency=10)  # type: ignore[arg-type]
    return Controller("test", settings, Bounds({}, axes), EffectiveBatch())


@pytest.mark.parametrize("policy", ["jump", "step"])
@each_kind
def test_a_controller_without_traces_fills_the_memory_on_any_axes(axes: tuple[Axis, ...], policy: str) -> None:
    steering = controller(axes, policy)
    steering.start(RunFacts(axes, smallest_of(axes)))
    for _ in range(4000):
        assert steering.plan is not None
        peak = int(need(steering.plan, axes))
        decision = steering.after_step(steering.plan, PeakReading(peak, limit=LIMIT), is_whole=True)
        if decision is not None:
            steering.restart(decision.plan)
    assert 0.75 * LIMIT < need(steering.plan, axes) <= 0.85 * LIMIT


def test_the_documented_controller_takes_the_axes_of_the_run() -> None:
    automation = DynamicBatchSizeOptimizer(adjustment_frequency=10, min_batch_size=2)
    axes = (TOKENS, ROWS)
    facts = RunFacts(axes, smallest_of(axes))
    automation.check(facts)
    automation.on_run_start(facts)
    assert [axis.name for axis in automation.controller.axes] == ["tokens", "batch_size"]
    assert automation.controller.work(Plan.of(tokens=32, batch_size=4)) == 128


BUDGET = (Axis("tokens", "tokens", 512, 100_000),)


def test_small_steps_of_a_token_budget_are_shares_of_it() -> None:
    plan = Plan.of(tokens=19_000)
    measured = Measured({plan: 250 * MIB}, lambda plan: work(plan, BUDGET))
    situation = known(plan, BUDGET, peak_bytes=250 * MIB, typical_bytes=250 * MIB)
    assert small_step(StepInput(**situation, measured=measured)).plan == Plan.of(tokens=20_520)
    above = {**situation, "peak_bytes": 900 * MIB, "typical_bytes": 900 * MIB}
    smaller = small_step(StepInput(**above, measured=Measured({plan: 900 * MIB}, lambda plan: work(plan, BUDGET))))
    assert smaller.plan.size == 17_860


def test_a_budget_below_one_that_failed_is_found_at_once_on_a_long_axis() -> None:
    plan = Plan.of(tokens=90_000)
    assert largest_below(plan, 70_001, BUDGET, 1) == Plan.of(tokens=70_001)
    assert largest_below(plan, 100, BUDGET, 1) is None
    assert len(frontier(traced_cost(BUDGET), BUDGET, LIMIT)) < 1100


def test_a_forward_pass_of_a_budget_is_a_part_of_it() -> None:
    whole, parts = Plan.of(tokens=280), Plan.of(tokens=280, micro_batches=4)
    assert (work(whole, BUDGET), work(parts, BUDGET)) == (280, 70)
    assert (shape_of(parts).samples, shape_of(parts).extent) == (1, 70)


def test_a_fixed_number_of_samples_is_refused_where_nothing_counts_them() -> None:
    automation = DynamicBatchSizeOptimizer(target_batch_size=16)
    with pytest.raises(ValueError, match="do not count"):
        automation.check(RunFacts(BUDGET, Plan.of(tokens=600)))


def test_at_the_floor_of_a_budget_later_batches_run_in_as_many_pieces() -> None:
    automation = DynamicBatchSizeOptimizer()
    facts = RunFacts(BUDGET, Plan.of(tokens=512, micro_batches=2))
    automation.check(facts)
    automation.on_run_start(facts)
    shape = shape_of(facts.plan)
    for step in range(1, 4):  # until it does not wait for growth any more
        change = automation.on_out_of_memory(OutOfMemory(step, facts.plan, shape, "g", "", pieces=4, limit=LIMIT))
    assert isinstance(change, PlanChange)
    assert change.plan == Plan.of(tokens=512, micro_batches=4)
    assert "every batch in 4 micro-batches" in change.reason
