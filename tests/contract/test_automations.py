"""What every registered automation promises."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch

from trainauto.automations import AUTOMATIONS, Automation
from trainauto.automations.plan_schedule import PlannedChange
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, BatchShape, Plan
from trainauto.core.records import PeakReading, StepRecord, ValidationRecord

AXES = (Axis("lq_size", "px", 8, 64, 8, power=2), Axis("batch_size", "samples", 1, 64))
START = Plan.of(batch_size=4, lq_size=16)
FACTS = RunFacts(AXES, START)
ARGUMENTS: dict[str, dict[str, Any]] = {
    "DynamicBatchSizeOptimizer": {"adjustment_frequency": 3, "min_batch_size": 1, "min_lq_size": 8, "max_lq_size": 64},
    "AdaptiveGradientClipping": {"warmup_steps": 2, "history_size": 8},
    "IntelligentEarlyStopping": {"patience": 2},
    "IntelligentLearningRateScheduler": {"plateau_patience": 100},
    "SpikeGuard": {"max_rollbacks": 2},
    "StopAtLowLoss": {"loss": 1.0, "patience": 3},
    "StopFile": {},
    "PlanSchedule": {"changes": [PlannedChange(3, lq_size=32), PlannedChange(6, batch_size=9)]},
}


def record(step: int, plan: Plan = START) -> StepRecord:
    return StepRecord(
        step=step,
        plan=plan,
        drawn=plan,
        shape=BatchShape(plan.batch_size, plan["lq_size"]),
        first_sample=(step - 1) * plan.batch_size,
        losses={"l1": 1.0},
        learning_rates={"g": 1e-3},
        grad_norms={"g": 1.0},
        data_seconds=0.0,
        step_seconds=0.1,
        peak=PeakReading(allocated=100 * plan.batch_size * plan["lq_size"] ** 2, limit=10**7),
    )


@pytest.fixture(params=sorted(AUTOMATIONS))
def automation(request: pytest.FixtureRequest) -> Automation:
    return AUTOMATIONS.get(request.param)(**ARGUMENTS[request.param])


def test_has_a_name_of_its_own_and_the_engines_events(automation: Automation) -> None:
    """C29: automations are looked up by name."""
    assert automation.name
    assert AUTOMATIONS.get(automation.name) is type(automation)
    assert isinstance(automation, Automation)


def test_steps_give_decisions_within_the_axes(automation: Automation) -> None:
    automation.check(FACTS)
    automation.on_run_start(FACTS)
    plan = START
    for step in range(1, 20):
        decision = automation.on_step_end(record(step, plan))
        if isinstance(decision, PlanChange):
            assert decision.reason
            assert all(axis.admits(decision.plan[axis.name]) for axis in AXES)
            plan = decision.plan
    automation.on_validation_end(ValidationRecord(19, "val", {"psnr": 1.0}, {}, (), 0.1, 0))


def test_expectations_are_bytes_or_unknown(automation: Automation) -> None:
    automation.on_run_start(FACTS)
    for step in range(1, 8):
        automation.on_step_end(record(step))
        expected = automation.expected_bytes(START)
        assert expected is None or expected > 0
    if automation.name == "DynamicBatchSizeOptimizer":
        # Both policies have measured this very plan for two periods by now.
        assert expected == pytest.approx(100 * 4 * 16**2, rel=0.05)


def test_state_is_plain_and_resumes_exactly(automation: Automation, tmp_path) -> None:  # type: ignore[no-untyped-def]
    automation.on_run_start(FACTS)
    plan = START
    for step in range(1, 5):
        decision = automation.on_step_end(record(step))
        plan = decision.plan if isinstance(decision, PlanChange) else plan
    torch.save(automation.state_dict(), tmp_path / "state.pt")
    other = type(automation)(**ARGUMENTS[automation.name])
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    other.on_run_start(RunFacts(AXES, plan))
    for step in range(5, 20):
        assert other.on_step_end(record(step, plan)) == automation.on_step_end(record(step, plan))


def test_can_be_pickled(automation: Automation) -> None:
    """Fault 19: lambdas and local classes break on platforms that spawn."""
    assert type(pickle.loads(pickle.dumps(automation))) is type(automation)


def test_plan_schedule_asks_for_what_was_planned() -> None:
    schedule = AUTOMATIONS.get("planschedule")(**ARGUMENTS["PlanSchedule"])
    schedule.on_run_start(FACTS)
    asked = {step: d.plan for step in range(1, 10) if isinstance(d := schedule.on_step_end(record(step)), PlanChange)}
    assert asked == {3: Plan.of(batch_size=4, lq_size=32), 6: Plan.of(batch_size=9, lq_size=32)}


@pytest.mark.parametrize(
    "change", [PlannedChange(3, lq_size=33), PlannedChange(3, lq_size=128), PlannedChange(1, batch_size=99)]
)
def test_plan_schedule_refuses_what_the_run_cannot_do(change: PlannedChange) -> None:
    with pytest.raises(InputError, match=f"at step {change.step} is not admissible"):
        AUTOMATIONS.get("PlanSchedule")(changes=[change]).check(FACTS)
    for steps in ([2, 2], [0]):
        with pytest.raises(ValueError, match="steps must be different"):
            AUTOMATIONS.get("PlanSchedule")(changes=[PlannedChange(step, lq_size=16) for step in steps])


def test_state_replaces_whatever_has_been_seen_since(automation: Automation) -> None:
    """A rollback loads an earlier state into an automation that has seen more: it decides as a new one would."""
    automation.on_run_start(FACTS)
    for step in range(1, 5):
        automation.on_step_end(record(step))
    state = automation.state_dict()
    kept = pickle.loads(pickle.dumps(state))
    for step in range(5, 60):
        automation.on_step_end(replace(record(step), losses={"l1": 0.5}, grad_norms={"g": 3.0}))
        automation.on_validation_end(ValidationRecord(step, "val", {"psnr": float(step)}, {}, (), 0.1, 0))
    assert state == kept, "what was handed out is not changed any more"
    other = type(automation)(**ARGUMENTS[automation.name])
    for one in (automation, other):
        one.load_state_dict(kept)
        one.on_run_start(FACTS)
    assert automation.state_dict() == other.state_dict()
    for step in range(5, 80):
        mine, new = (one.on_step_end(record(step)) for one in (automation, other))
        assert mine == new, step
