"""The controller against a simulated memory: it settles in the band, forgets a spike, remembers a failure (C, E)."""

import inspect
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, BatchShape, Plan, work
from trainauto.core.records import OutOfMemory, PeakReading, StepRecord

LIMIT = 2**30
AXES = (Axis("lq_size", "px", 8, 200, 4, power=2), Axis("batch_size", "samples", 1, 64))
START = Plan.of(batch_size=4, lq_size=32)
FREQUENCY, LOOKAHEAD = 10, 4


def memory(plan: Plan) -> int:
    return int(60e6 + 11_000 * plan.batch_size * plan["lq_size"] ** 2)


def record_of(step: int, plan: Plan, peak_bytes: int, **changes: Any) -> StepRecord:
    """Return what is noted of a step under a plan, with further ``changes``."""
    usual: dict[str, Any] = {"data_seconds": 0, "step_seconds": 0, "learning_rates": {}}
    return StepRecord(
        step=step,
        plan=plan,
        drawn=plan,
        shape=BatchShape(plan.batch_size, plan["lq_size"]),
        first_sample=0,
        losses={},
        grad_norms={},
        peak=PeakReading(peak_bytes, limit=LIMIT),
        **{**usual, **changes},
    )


class Simulation:
    """Steps of a run whose memory is known; larger plans act after a lookahead, as the loader's do."""

    def __init__(self, automation: DynamicBatchSizeOptimizer, plan: Plan = START) -> None:
        self.automation, self.plan, self.step = automation, plan, 0
        self.coming: list[tuple[int, Plan]] = []
        self.changes: list[tuple[int, PlanChange]] = []
        automation.check(RunFacts(AXES, plan))
        automation.on_run_start(RunFacts(AXES, plan))

    def run(self, steps: int, peak_of: Callable[[Plan, int], int] = lambda plan, step: memory(plan)) -> None:
        for _ in range(steps):
            self.step += 1
            self.plan = next((plan for at, plan in reversed(self.coming) if at <= self.step), self.plan)
            self.automation_sees(peak_of(self.plan, self.step))

    def automation_sees(self, peak: int) -> None:
        self.apply(self.automation.on_step_end(record_of(self.step, self.plan, peak)))

    def apply(self, change: PlanChange | None) -> None:
        if change is None:
            return
        self.changes.append((self.step, change))
        smaller = change.plan.capped_by(self.plan) == change.plan
        self.coming.append((self.step + 1 if smaller else self.step + LOOKAHEAD, change.plan))


def controller(**arguments: object) -> DynamicBatchSizeOptimizer:
    defaults: dict[str, object] = {
        "adjustment_frequency": FREQUENCY,
        "min_batch_size": 2,
        "min_lq_size": 16,
        "policy": "step",
    }
    return DynamicBatchSizeOptimizer(**{**defaults, **arguments})  # type: ignore[arg-type]


def test_settles_in_the_band_crop_first() -> None:
    """C02, C03: the crop before the batch. C06: and no swinging."""
    simulation = Simulation(controller(max_lq_size=96))
    simulation.run(2000)
    usage = memory(simulation.plan) / LIMIT
    assert 0.80 <= usage <= 0.85
    grown = [change.plan for _, change in simulation.changes]
    crops = [plan["lq_size"] for plan in grown]
    batches = [plan.batch_size for plan in grown]
    assert crops == sorted(crops)
    assert 96 in crops
    assert set(batches[: crops.index(96)]) == {4}
    assert all(memory(plan) <= 0.85 * LIMIT for plan in grown)
    settled = simulation.changes[-1][0]
    simulation.run(500)
    assert simulation.changes[-1][0] == settled


def test_steps_of_the_discriminator_alone_change_no_plan() -> None:
    """They take less: crops would grow, and the generator's first step would not fit."""
    automation, plan = controller(), START
    automation.check(RunFacts(AXES, plan))
    automation.on_run_start(RunFacts(AXES, plan))
    alone = [record_of(step, plan, memory(plan) // 2, left_out=("g",)) for step in range(1, 500)]
    assert [automation.on_step_end(record) for record in alone] == [None] * len(alone)


def test_nothing_is_judged_before_the_first_period_is_complete() -> None:
    """Fault 22: decisions were made from memory at start-up. E05, E06, E17."""
    simulation = Simulation(controller(adjustment_frequency=25))
    simulation.run(24)
    assert simulation.changes == []
    simulation.run(1)
    assert [step for step, _ in simulation.changes] == [25]


def test_a_spike_shrinks_once_and_the_plan_comes_back() -> None:
    """Fault 5: one transient spike collapsed the plan for good. E04, E08: each period has peaks of its own."""
    simulation = Simulation(controller(max_lq_size=96))
    simulation.run(2000)
    settled, before = simulation.plan, len(simulation.changes)
    start = simulation.step
    simulation.run(60, lambda plan, step: memory(plan) + (LIMIT // 4 if start + 3 <= step < start + 6 else 0))
    shrunk = simulation.changes[before][1].plan
    assert shrunk.batch_size < settled.batch_size
    simulation.run(2000)
    assert simulation.plan == settled


def test_steady_use_above_target_never_stays() -> None:
    """Fault 6: a dead band let steady use sit above the target."""
    simulation = Simulation(controller(), Plan.of(batch_size=8, lq_size=100))
    simulation.run(3000)
    assert memory(simulation.plan) <= 0.85 * LIMIT
    tail = len(simulation.changes)
    simulation.run(1000)
    assert len(simulation.changes) == tail


def oom(plan: Plan, pieces: int = 2) -> OutOfMemory:
    return OutOfMemory(1, plan, BatchShape(plan.batch_size, plan["lq_size"]), "g", "no memory", pieces, LIMIT)


def test_out_of_memory_shrinks_both_waits_and_is_remembered() -> None:
    """C06, C07, C08: both shrink, and growth waits. E21: by a quarter, and what failed is remembered."""
    automation = controller()
    simulation = Simulation(automation, Plan.of(batch_size=8, lq_size=40))
    change = automation.on_out_of_memory(oom(simulation.plan))
    assert isinstance(change, PlanChange)
    assert change.plan == Plan.of(batch_size=6, lq_size=28)
    simulation.apply(change)
    assert "the plan is new: the plan shrinks, and no plan as large is tried for 20 periods" in change.reason
    simulation.run(2 * FREQUENCY - 1)
    assert len(simulation.changes) == 1  # the cooldown is twice a period
    simulation.run(18 * FREQUENCY)
    failed = work(Plan.of(batch_size=8, lq_size=40), AXES)
    assert len(simulation.changes) > 1
    assert all(work(later.plan, AXES) < failed for _, later in simulation.changes[1:])
    simulation.run(3000)
    assert (
        work(simulation.plan, AXES) > failed
    )  # it was something else that took the memory: nothing is blocked for ever
    assert automation.get_vram_stats()["oom_recovery_count"] == 1


def test_max_adjustments_blocks_growth_never_protection() -> None:
    """Fault 20: ``max_adjustments`` was never enforced (C22)."""
    automation = controller(max_adjustments=2)
    simulation = Simulation(automation)
    simulation.run(500)
    assert len(simulation.changes) == 2
    simulation.run(FREQUENCY, lambda plan, step: int(0.99 * LIMIT))
    assert len(simulation.changes) == 3


KEYS = {
    "peak_usage", "avg_usage", "current_usage", "current_batch_size", "current_lq_size", "oom_recovery_count",
    "target_usage", "safety_margin", "adjustments", "adjustment_history", "vram_history",
}  # fmt: skip


def test_stats_hold_every_documented_key_always() -> None:
    """C34, C35: the source's own example failed with KeyError on an empty history."""
    automation = controller()
    assert set(automation.get_vram_stats()) == KEYS
    simulation = Simulation(automation)
    simulation.run(100)
    stats = automation.get_vram_stats()
    assert set(stats) == KEYS
    assert stats["adjustments"] == len(simulation.changes) == len(stats["adjustment_history"])
    assert stats["current_lq_size"] == simulation.coming[-1][1]["lq_size"]
    assert 0 < stats["avg_usage"] <= stats["peak_usage"] < 1


def test_target_parameters_steer() -> None:
    """Fault 21: setters only recorded a value (C32)."""
    automation = controller()
    simulation = Simulation(automation)
    automation.set_target_parameters(batch_size=6, lq_size=48)
    simulation.run(2000)
    assert simulation.plan == Plan.of(batch_size=6, lq_size=48)


def test_in_a_loop_of_ones_own_it_changes_the_loader() -> None:
    """C30, C31, C33, C36, E09, E10: the documented calls, in their documented order."""

    class Loader:
        plan = START

        def update_plan(self, plan: Plan) -> None:
            self.plan = plan

    automation, loader = controller(), Loader()
    automation.set_dynamic_wrappers(loader, dataset=None)
    automation.start_monitoring_period()
    answers = []
    for _ in range(FREQUENCY):
        automation.observe(PeakReading(memory(loader.plan), limit=LIMIT))
        answers.append(automation.update_vram_monitoring())
    assert answers[:-1] == [(None, None)] * (FREQUENCY - 1)
    assert answers[-1] == (None, 8)
    assert loader.plan == Plan.of(batch_size=4, lq_size=40)
    automation.handle_oom_recovery(2, 32)
    assert loader.plan == Plan.of(batch_size=2, lq_size=32)
    assert (automation.get_vram_stats()["current_batch_size"], automation.get_vram_stats()["current_lq_size"]) == (
        2,
        32,
    )


def test_resume_goes_on_within_a_period() -> None:
    """Fault 11: the controller's own half of it (E21)."""
    whole, first, second = controller(), controller(), controller()
    unbroken, resumed = Simulation(whole), Simulation(first)
    unbroken.run(57)
    resumed.run(57)
    second.load_state_dict(first.state_dict())
    resumed.automation = second
    second.on_run_start(RunFacts(AXES, resumed.coming[-1][1]))
    unbroken.run(300)
    resumed.run(300)
    assert unbroken.changes == resumed.changes


def test_bounds_are_checked_before_the_run() -> None:
    """C39: bounds that leave nothing to choose are refused."""
    with pytest.raises(ValueError, match="max_lq_size 16 is below min_lq_size 32"):
        DynamicBatchSizeOptimizer(max_lq_size=16)
    with pytest.raises(ValueError, match="safety_margin"):
        DynamicBatchSizeOptimizer(safety_margin=0.9)
    with pytest.raises(InputError, match=r"no lq_size lies in 32\.\.256"):
        DynamicBatchSizeOptimizer().check(RunFacts((Axis("lq_size", "px", 8, 24, 8, power=2),), START))


def test_status_lines_say_peak_and_target(caplog: pytest.LogCaptureFixture) -> None:
    """E12, C39: where memory stands is said every 50 steps."""
    caplog.set_level(logging.INFO, "trainauto")
    Simulation(controller(adjustment_frequency=100)).run(50)
    assert any("period's peak" in line and "target 85%" in line for line in caplog.messages)


def test_peaks_decide_and_not_what_is_in_use_now() -> None:
    """E01: decisions were made from what was in use at that moment (3 %), while the logger showed the peak (75 %)."""
    automation = controller()
    automation.set_current_parameters(batch_size=8, lq_size=32)
    for _ in range(FREQUENCY):
        automation.observe(PeakReading(int(0.97 * LIMIT), limit=LIMIT, current=int(0.03 * LIMIT)))
        batch, crop = automation.update_vram_monitoring()
    assert (batch, crop) == (-2, None)


def test_nothing_is_judged_before_the_parameters_are_known() -> None:
    """E07: a controller that was not told what is trained with asks for nothing."""
    automation = controller()
    for _ in range(3 * FREQUENCY):
        automation.observe(PeakReading(LIMIT // 9, limit=LIMIT))
        assert automation.update_vram_monitoring() == (None, None)


def test_history_is_of_whole_periods_and_ends_at_its_size() -> None:
    """C09, C11, C21, E03, E04: the peak of each period, the highest of all, and the last step for display."""
    automation = controller(max_lq_size=32, max_batch_size=4, vram_history_size=3)
    simulation = Simulation(automation)
    simulation.run(50, lambda plan, step: step * 10**6)
    simulation.run(1, lambda plan, step: 7 * 10**6)
    stats = automation.get_vram_stats()
    assert stats["vram_history"] == [30e6 / LIMIT, 40e6 / LIMIT, 50e6 / LIMIT]
    assert stats["avg_usage"] == pytest.approx(40e6 / LIMIT)
    assert (stats["peak_usage"], stats["current_usage"]) == (50e6 / LIMIT, 7e6 / LIMIT)
    assert simulation.changes == []


def test_every_change_is_kept_with_its_reason() -> None:
    """C10: when, from what, to what, and why; changes after running out of memory too."""
    automation = controller(max_lq_size=96)
    simulation = Simulation(automation)
    simulation.run(200)
    change = automation.on_out_of_memory(oom(simulation.plan))
    assert change is not None
    history = automation.get_vram_stats()["adjustment_history"]
    asked = [(step, change.plan.to_dict(), change.reason) for step, change in simulation.changes]
    assert [(kept["iteration"], kept["new"], kept["reason"]) for kept in history[:-1]] == asked
    assert "lq_size 32 -> 40" in history[0]["reason"]
    assert [kept["old"] for kept in history] == [START.to_dict(), *(kept["new"] for kept in history[:-1])]
    assert isinstance(change, PlanChange)
    assert (history[-1]["new"], history[-1]["reason"]) == (change.plan.to_dict(), change.reason)
    assert "out of memory" in change.reason


def test_a_period_that_begins_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """E09, E15: at the start, while nothing is decided yet, the log says so."""
    caplog.set_level(logging.INFO, "trainauto")
    Simulation(controller())
    assert caplog.messages == ["DynamicBatchSizeOptimizer: a period of 10 steps begins with batch_size 4, lq_size 32"]


def test_defaults_are_the_documented_ones() -> None:
    """C14, C15, C16, C17, C18, C19, C20, C21, C22."""
    taken = inspect.signature(DynamicBatchSizeOptimizer).parameters
    ours = {"policy", "objective", "target_batch_size", "target_may_grow", "warmup_period", "min_tokens", "max_tokens"}
    assert {name: parameter.default for name, parameter in taken.items() if name not in ours} == {
        "target_vram_usage": 0.85,
        "safety_margin": 0.05,
        "adjustment_frequency": 100,
        "min_batch_size": 2,
        "max_batch_size": 64,
        "min_lq_size": 32,
        "max_lq_size": 256,
        "vram_history_size": 50,
        "max_adjustments": 100,
    }


CONSERVATIVE = {
    "target_vram_usage": 0.80, "safety_margin": 0.10, "adjustment_frequency": 50, "min_batch_size": 2,
    "max_batch_size": 32, "min_lq_size": 64, "max_lq_size": 192, "vram_history_size": 100, "max_adjustments": 50,
}  # fmt: skip
OLD_KEYS = {
    "target_vram_usage": 0.85, "safety_margin": 0.05, "adjustment_frequency": 100, "min_batch_size": 1,
    "max_batch_size": 32,
}  # fmt: skip
AFTER_OOM = {"target_vram_usage": 0.75, "safety_margin": 0.10, "max_batch_size": 16, "max_lq_size": 128}
LESS_OFTEN = {"adjustment_frequency": 500, "safety_margin": 0.15}


@pytest.mark.parametrize("arguments", [CONSERVATIVE, OLD_KEYS, AFTER_OOM, LESS_OFTEN])
def test_numbers_of_the_documented_examples_are_taken(arguments: dict[str, Any]) -> None:
    """C23, C24 (files with the old keys alone), C41, C42."""
    automation = DynamicBatchSizeOptimizer(**arguments)
    kept = asdict(automation.controller.settings)
    for axis in automation.controller.bounded(()):
        kept |= {f"min_{axis.name}": axis.minimum, f"max_{axis.name}": axis.maximum}
    assert {name: kept[name] for name in arguments} == arguments
    axes = (Axis("lq_size", "px", 8, 512, 4, power=2), Axis("batch_size", "samples", 1, 64))
    automation.check(RunFacts(axes, Plan.of(batch_size=4, lq_size=64)))


def test_nearly_full_memory_is_warned_of_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """E19: use above 95 %."""
    simulation = Simulation(controller())
    shares = [0.5, 0.96, 0.97, 0.9, 0.99]
    simulation.run(len(shares), lambda plan, step: int(shares[step - 1] * LIMIT))
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert [message.split("used ")[1] for message in warnings] == [
        "96.0% of the memory there is",
        "99.0% of the memory there is",
    ]


def test_a_resume_under_lower_bounds_goes_down_to_them() -> None:
    """C42: bounds are the option file's, not the checkpoint's."""
    simulation = Simulation(controller())
    simulation.run(400)
    grown = simulation.plan
    resumed = controller(max_lq_size=grown["lq_size"] - 5, max_batch_size=3)
    resumed.load_state_dict(simulation.automation.state_dict())
    again = Simulation(resumed, grown)
    again.run(1)
    (change,) = (change for _, change in again.changes)
    assert change.plan == Plan.of(batch_size=3, lq_size=(grown["lq_size"] - 5) // 4 * 4)
    assert "beyond the bounds" in change.reason
