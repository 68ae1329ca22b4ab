"""Where a run begins, and what may change it: probes, one early correction, bounds, round crops."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.automations.played import AXES, LIMIT, START, PlayedRun, controller, need, traced
from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.plan import Plan
from trainauto.core.records import PeakReading, Probe
from trainauto.memory.cost.ratio_prior import ALLOCATED

TARGET = 0.85 * LIMIT


def plan(batch: int, side: int) -> Plan:
    return Plan.of(batch_size=batch, lq_size=side)


def fresh(start: Plan = START, more: float = 1 / 1.03, **arguments: Any) -> DynamicBatchSizeOptimizer:
    """Return a controller at the beginning of a run, whose trace says ``more`` times what is needed."""
    one = DynamicBatchSizeOptimizer(**arguments)
    one.controller.set_prior((traced(more), ALLOCATED))
    one.on_run_start(RunFacts(AXES, start))
    return one


def begun(one: DynamicBatchSizeOptimizer, probes: int = 4) -> list[Plan]:
    """Return the plans that are measured, and last the one that the run begins with."""
    change = one.begin(PeakReading(0, limit=LIMIT), probes)
    asked: list[Plan] = []
    for left in reversed(range(probes)):
        if change is None:
            return [*asked, asked[-1]] if asked else []
        asked.append(change.plan)
        peak = need(change.plan)
        reading = PeakReading(peak, limit=LIMIT) if peak <= LIMIT else None
        change = one.on_probe(Probe(change.plan, reading, LIMIT, left))
    return [*asked, change.plan if change else asked[-1]] if asked else [change.plan] if change else []


def test_probes_end_at_the_best_plan_that_fits() -> None:
    plans = begun(fresh())
    assert len(plans) <= 4
    best = plans[-1]
    assert 0.96 * TARGET < need(best) <= TARGET
    assert need(plan(best.batch_size, best["lq_size"] + 8)) > 0.98 * TARGET


def test_without_probes_the_first_plan_has_to_fit_for_sure() -> None:
    one = fresh()
    (safe,) = begun(one, probes=0)
    assert one.expected_bytes(safe) is not None
    assert 0.85 * TARGET < need(safe) < 0.97 * TARGET


def test_a_probe_that_does_not_fit_is_answered_by_a_smaller_one() -> None:
    """The trace promised three times too little."""
    plans = begun(fresh(more=1 / 3))
    assert need(plans[0]) > LIMIT
    assert need(plans[-1]) <= TARGET


def test_policy_step_begins_with_the_option_file() -> None:
    """E06, E17, and ``warmup_period`` under ``jump``."""
    assert begun(fresh(policy="step")) == []
    assert begun(fresh(warmup_period=True)) == []
    run = PlayedRun(controller("jump", warmup_period=True)).run(130)
    assert run.first == START
    assert run.decisions[0][0] == 100
    assert run.plan["lq_size"] > 100


def test_it_is_corrected_once_after_a_few_steps_and_then_left_alone() -> None:
    """Peaks of real steps are 4 % above those of the probes: one change after three steps, and no other."""
    run = PlayedRun(controller("jump"), lambda _step: 1.04)
    before = run.plan
    run.run(2000)
    assert [step for step, _ in run.decisions] == [3]
    assert need(run.plan) < need(before)
    assert 1.04 * need(run.plan) <= TARGET


def test_a_jump_that_went_too_far_keeps_the_configured_batch() -> None:
    """What was overshot is chosen anew: the crop pays, not the batch of the option file (E, settled semantics)."""
    run = PlayedRun(controller("jump", max_lq_size=512), lambda _step: 1.12).run(300)
    assert run.plan.batch_size == START.batch_size
    assert run.plan["lq_size"] < run.first["lq_size"]


def test_a_batch_below_the_configured_one_comes_back_before_crops_grow() -> None:
    """The first plan runs out of memory at once, the plan shrinks, and what comes next restores the batch."""
    run = PlayedRun(controller("jump"), lambda step: 1.3 if step < 3 else 1.0).run(1000)
    shrunk = next(one for _, one in run.decisions if isinstance(one, PlanChange))
    assert shrunk.plan.batch_size == 6
    later = [one.plan for _, one in run.decisions[1:] if isinstance(one, PlanChange)]
    assert later[0].batch_size == START.batch_size


@pytest.mark.parametrize("share", [1.0, 0.93, 0.87, 0.8, 0.72, 1.1])
def test_crops_are_multiples_of_eight_where_that_costs_little(share: float) -> None:
    """The best plan has some crop; one that is a multiple of 8 and uses 98 % as much is taken instead."""
    limit = int(share * LIMIT)
    plain = fresh(max_batch_size=128, start=plan(32, 32))
    change = plain.begin(PeakReading(0, limit=limit), 0)
    assert change is not None
    expected = {(b, x): plain.expected_bytes(plan(b, x)) or 0 for b in range(32, 65) for x in range(40, 97)}
    side = max(x for x in range(40, 97) if expected[32, x] <= expected[change.plan.batch_size, change.plan["lq_size"]])
    most = max(expected[b, side] for b in range(32, 65) if expected[b, side] <= max(expected[32, side], 1))
    near = [
        x
        for x in range(side // 8 * 8, int(0.9 * side), -8)
        if any(0.98 * most <= expected[b, x] <= most for b in range(32, 65))
    ]
    assert change.plan["lq_size"] % 8 == 0 or not near


@pytest.mark.parametrize(("policy", "is_traced"), [("jump", True), ("jump", False), ("step", False)])
def test_a_start_below_the_smallest_crop_grows_out_of_it(policy: str, is_traced: bool) -> None:
    """It stuck at its crop with a false reason (step), or at 8 % use (jump without a trace)."""
    one = DynamicBatchSizeOptimizer(policy=policy, min_lq_size=64, adjustment_frequency=10)  # type: ignore[arg-type]
    if is_traced:
        one.controller.set_prior((traced(), ALLOCATED))
    run = PlayedRun(one, start=plan(4, 16)).run(600)
    assert run.plan["lq_size"] >= 64
    assert need(run.plan) > 0.7 * LIMIT


@pytest.mark.parametrize(("margin", "stays"), [(0.05, False), (0.30, True)])
def test_the_safety_margin_is_the_width_of_the_band_under_jump(margin: float, stays: bool) -> None:
    """C15: a plan within the band is left alone, however much would fit."""
    one = controller("jump", safety_margin=margin, warmup_period=True, max_lq_size=512)
    start = plan(8, 96)
    assert 0.55 < need(start) / LIMIT < 0.8
    run = PlayedRun(one, start=start).run(250)
    assert (run.plan == start) is stays


def test_what_others_leave_bounds_the_first_plan() -> None:
    one = controller("jump")
    one.on_run_start(RunFacts(AXES, START))
    change = one.begin(PeakReading(0, limit=LIMIT, available=LIMIT // 2), 0)
    assert change is not None
    assert 1.02 * need(change.plan) <= LIMIT / 2
    assert replace(change, reason="").plan == change.plan
