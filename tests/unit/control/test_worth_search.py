"""``objective: throughput`` and ``goodput``: from the option file's batch to the one that is worth most a second."""

import json
import re
from typing import Any

import pytest

from tests.unit.automations.test_dynamic_batch_size import AXES, FREQUENCY, LIMIT, START, controller, memory, record_of
from trainauto.control.noise import Noise
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.noise_scale import NoiseSample
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
def test_goes_to_where_the_device_is_just_busy_and_rests(policy: str) -> None:
    plan, changes = play(4000, busy_from=6 * 64**2, policy=policy)
    assert plan["lq_size"] == 64
    assert 6 <= plan.batch_size <= 8  # the edge is at 6, less what a quarter leaves open
    assert "M units/s" in changes[-1].reason
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


def gone(scale: float, busy_from: int = 24 * 32**2, **arguments: Any) -> tuple[Plan, list[PlanChange]]:
    """Train with gradients of a noise scale on a device that takes as long for nothing as for so many pixels."""
    automation = controller(objective="goodput", policy="jump", **{"max_batch_size": 48, **arguments})
    plan, changes = automation.controller.initial_plan(START), []
    automation.on_run_start(RunFacts(AXES, plan))
    sampled = 0
    for step in range(1, 1501):
        noise = {}
        if automation.measures_noise(step):
            sampled += 1
            spread = 1.0 * scale / plan.batch_size  # tr(S) over samples, beside a mean of square 1
            noise = {"g": NoiseSample(1.0 + 2 * spread, 1.0 + spread, 2, plan.batch_size)}
        record = record_of(
            step,
            plan,
            min(LIMIT, memory(plan)),
            step_seconds=1e-6 * (busy_from + plan.batch_size * plan["lq_size"] ** 2),
            units=plan.batch_size * (2 * plan["lq_size"]) ** 2,
            noise=noise,
            learning_rates={"g": 1e-3},
        )
        decision = automation.on_step_end(record)
        if decision is not None:
            changes.append(decision)
            plan = decision.plan
    assert sampled >= 8
    return plan, changes


@pytest.mark.parametrize(("scale", "least", "most"), [(0.5, 4, 4), (8, 9, 20), (60, 20, 48), (10_000, 40, 48)])
def test_goodput_grows_as_far_as_samples_are_worth_it(scale: float, least: int, most: int) -> None:
    """The best batch is sqrt(24 * scale): speed goes with b / (24 + b), worth with 1 / (scale + b)."""
    plan, changes = gone(scale)
    assert plan["lq_size"] == START["lq_size"], "how large a crop is, is a choice of quality"
    assert least <= plan.batch_size <= most
    assert all(change.plan.batch_size >= START.batch_size for change in changes)
    if changes:
        assert f"noise scale {scale:.3g}" in changes[-1].reason
        assert "is worth" in changes[-1].reason


def test_goodput_stays_with_the_files_batch_where_the_device_is_busy() -> None:
    plan, changes = gone(100, busy_from=0)
    assert plan == START
    assert len(changes) == 2  # one larger batch was tried, since nothing was known of speed


def test_it_says_what_other_objectives_would_take(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    gone(8)
    said = [line for line in caplog.messages if "other objectives would choose" in line][-1]
    assert re.search(r"`memory` batch_size \d+, lq_size 1\d\d, `throughput` batch_size \d+, lq_size 32", said)


def test_goodput_never_passes_what_memory_admits() -> None:
    plan, changes = gone(10_000, busy_from=10**9, max_batch_size=10_000, target_vram_usage=0.2, safety_margin=0.05)
    assert plan.batch_size > 2 * START.batch_size
    assert all(memory(change.plan) <= 0.2 * LIMIT for change in changes)


def test_the_next_run_begins_with_the_files_batch_again_and_knows_speeds() -> None:
    arguments = {"objective": "goodput", "policy": "jump", "max_batch_size": 48}
    automation = controller(**arguments)
    planner = automation.controller._planner
    planner._speeds.observe(4096, 0.1)
    state = {"plan": START.with_batch_size(30).to_dict(), "conditions": {}, "steering": planner.state_dict()}
    state["conditions"] = automation.controller._conditions(LIMIT, automation.controller.bounded(AXES))
    later = controller(**arguments)
    later.check(RunFacts(AXES, START))
    assert later.controller.load_calibration(json.loads(json.dumps(state)), RunFacts(AXES, START), LIMIT) is None
    assert later.controller._planner._speeds.works == [4096]


def test_a_falling_rate_freezes_what_is_known() -> None:
    noise = Noise()
    noise.see_rate(1.0, 4)
    noise.see_rate(4.0, 16)  # a rate that follows the batch, and comes back
    noise.see_rate(1.0, 4)
    assert noise.is_due(4)
    assert not noise.is_due(5)
    for _ in range(8):
        noise.see({"g": NoiseSample(3.0, 2.0, 2, 8)}, cost=0.2)
    assert noise.every == 16  # a fifth of a step in sixteen
    assert not noise.is_due(4)
    assert noise.is_due(16)
    known = noise.least
    noise.see_rate(0.49, 4)
    assert noise.is_frozen
    assert not noise.is_due(16)
    again = Noise()
    again.load_state_dict(json.loads(json.dumps(noise.state_dict())))
    assert (again.least, again.is_frozen, again.every) == (known, True, 16)


def test_where_parts_say_nothing_none_is_asked_for_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    noise = Noise()
    for step in range(1, 200):
        if noise.is_due(step):
            noise.see({"g": NoiseSample(1.0, 1.0, 1, 8)}, cost=None)
        noise.see_rate(1e-3, 8)
    assert noise.is_frozen
    assert noise.least is None
    assert caplog.text.count("cannot be seen here") == 1


def test_the_smallest_scale_of_several_optimizers_counts() -> None:
    noise = Noise()
    for _ in range(8):
        noise.see({"g": NoiseSample(3.0, 2.0, 2, 8), "d": NoiseSample(12.0, 2.0, 2, 8)}, cost=None)
    assert noise.expected == noise.scales["g"].value
    noise.see({"late": NoiseSample(3.0, 2.0, 2, 8)}, cost=None)
    assert noise.least is None, "one of them is not known yet"


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
