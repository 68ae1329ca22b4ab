"""Both documents' calls in a loop of one's own, with readings handed in (C29 to C36, E07, E09 to E13)."""

import logging
from typing import Any

import pytest

from trainauto.automations import DynamicBatchSizeOptimizer, TrainingAutomations
from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, Plan, work
from trainauto.core.records import PeakReading
from trainauto.data.documented_names import DocumentedSetters
from trainauto.data.dynamic_dataset import SampleKey

LIMIT = 2**30
FREQUENCY = 10
AXES = (Axis("lq_size", "px", 16, 128, power=2), Axis("batch_size", "samples", 2, 64))


def memory(batch: int, side: int) -> int:
    return int(60e6 + 11_000 * batch * side**2)


def controller(**arguments: Any) -> DynamicBatchSizeOptimizer:
    defaults: dict[str, Any] = {"adjustment_frequency": FREQUENCY, "min_lq_size": 16, "max_lq_size": 128}
    return DynamicBatchSizeOptimizer(**{**defaults, **arguments})


class OnlySetters:
    """A loader of somebody else's."""

    def __init__(self, batch: int = 4, side: int = 32) -> None:
        self.sizes = [(batch, side)]

    @property
    def now(self) -> tuple[int, int]:
        return self.sizes[-1]

    def update_batch_size(self, batch_size: int) -> None:
        self.sizes.append((batch_size, self.now[1]))

    def update_lq_size(self, lq_size: int) -> None:
        self.sizes.append((self.now[0], lq_size))


def documented_loop(automation: DynamicBatchSizeOptimizer, loader: OnlySetters, steps: int, factor: float = 1) -> None:
    """The document's loop; what does not fit is answered as it says."""
    for _ in range(steps):
        peak = int(factor * memory(*loader.now))
        if peak > LIMIT:
            batch, side = loader.now
            automation.handle_oom_recovery(batch // 2, side // 2)
            loader.update_batch_size(automation.current_batch_size or 0)
            loader.update_lq_size(automation.current_lq_size or 0)
            continue
        automation.observe(PeakReading(peak, limit=LIMIT, current=peak // 9))
        batch_adjustment, lq_adjustment = automation.update_vram_monitoring()
        if batch_adjustment is not None or lq_adjustment is not None:
            batch = (automation.current_batch_size or 0) + (batch_adjustment or 0)
            side = (automation.current_lq_size or 0) + (lq_adjustment or 0)
            loader.update_batch_size(max(automation.min_batch_size, min(automation.max_batch_size, batch)))
            loader.update_lq_size(max(automation.min_lq_size, min(automation.max_lq_size, side)))


@pytest.mark.parametrize("policy", ["jump", "step"])
def test_the_loop_as_documented_fills_the_memory(policy: str) -> None:
    """C36: what is suggested is added to the plan of now, and counts from the next call on."""
    automation, loader = controller(policy=policy), OnlySetters()
    automation.set_current_parameters(4, 32)
    automation.start_monitoring_period()
    documented_loop(automation, loader, 60 * FREQUENCY)
    assert 0.72 <= memory(*loader.now) / LIMIT <= 0.85  # a fifth sample of 128 px would not fit
    assert (automation.current_batch_size, automation.current_lq_size) == loader.now
    stats = automation.get_vram_stats()
    assert stats["adjustments"] == len(stats["adjustment_history"]) > 0
    assert stats["oom_recovery_count"] == 0


def test_nothing_happens_in_the_first_period() -> None:
    """E05, E06, E17, E18: in a loop of one's own both policies wait for a whole period of real steps."""
    for policy in ("jump", "step"):
        automation = controller(policy=policy, adjustment_frequency=25)
        automation.set_current_parameters(4, 32)
        answers = []
        for _ in range(25):
            automation.observe(PeakReading(memory(4, 32), limit=LIMIT))
            answers.append(automation.update_vram_monitoring())
        assert answers[:24] == [(None, None)] * 24
        assert answers[24] != (None, None)


def test_wrappers_of_nothing_leave_the_loop_to_itself() -> None:
    """E10: ``set_dynamic_wrappers(None, None)``."""
    automation = controller()
    automation.set_dynamic_wrappers(None, None)
    automation.set_current_parameters(4, 32)
    automation.start_monitoring_period()
    for _ in range(FREQUENCY):
        automation.observe(PeakReading(memory(4, 32), limit=LIMIT))
        found = automation.update_vram_monitoring()
    assert found[1] is not None


def test_loaders_that_have_setters_only() -> None:
    """C36, contradiction 15: sizes reach the loader, or the crop the dataset beside it."""
    automation, loader = controller(policy="step"), OnlySetters()
    automation.set_dynamic_wrappers(loader, None)
    automation.set_current_parameters(4, 32)
    for _ in range(FREQUENCY):
        automation.observe(PeakReading(memory(4, 32), limit=LIMIT))
        automation.update_vram_monitoring()
    assert loader.now == (4, 40)

    class BatchOnly:
        batch_size = 4

        def update_batch_size(self, batch_size: int) -> None:
            self.batch_size = batch_size

    dataset, batches = OnlySetters(), BatchOnly()
    automation = controller()
    automation.set_dynamic_wrappers(batches, dataset)
    automation.set_current_parameters(6, 48)
    assert (batches.batch_size, dataset.now[1]) == (6, 48)


def test_what_is_read_of_it() -> None:
    """C29, C36: bounds and present values are there to be read."""
    automation = controller(min_batch_size=3, max_batch_size=48)
    assert (automation.min_batch_size, automation.max_batch_size) == (3, 48)
    assert (automation.min_lq_size, automation.max_lq_size) == (16, 128)
    assert (automation.current_batch_size, automation.current_lq_size) == (None, None)


def test_current_parameters_within_bounds_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    """C31: the second call counts like the first, and begins a period of its own."""
    automation = controller(policy="step")
    automation.set_current_parameters(1000, 1000)
    assert (automation.current_batch_size, automation.current_lq_size) == (64, 128)
    assert "is out of bounds" in caplog.text
    automation = controller(policy="step")
    automation.set_current_parameters(1, 1)
    assert (automation.current_batch_size, automation.current_lq_size) == (2, 16)
    for _ in range(FREQUENCY - 1):
        automation.observe(PeakReading(LIMIT // 9, limit=LIMIT))
        automation.update_vram_monitoring()
    automation.set_current_parameters(8, 32)
    answers = []
    for _ in range(FREQUENCY):
        automation.observe(PeakReading(memory(8, 32), limit=LIMIT))
        answers.append(automation.update_vram_monitoring())
    assert answers[0] == (None, None)  # the period of the values before is gone
    assert automation.get_vram_stats()["adjustment_history"][0]["old"]["batch_size"] == 8
    assert answers[-1] == (None, 8)


def test_recovery_keeps_the_floors_and_remembers_what_failed() -> None:
    """C07, C33, E21. Fault 9: below the minima there is nothing, and the plan that failed is not suggested again."""
    automation, loader = controller(policy="step"), OnlySetters(8, 64)
    automation.set_current_parameters(8, 64)
    automation.handle_oom_recovery(1, 4)
    assert (automation.current_batch_size, automation.current_lq_size) == (2, 16)
    loader.sizes = [(2, 16)]
    documented_loop(automation, loader, 19 * FREQUENCY)
    failed = work(Plan.of(batch_size=8, lq_size=64), AXES)
    assert len(loader.sizes) > 3
    assert all(batch * side**2 < failed for batch, side in loader.sizes)
    documented_loop(automation, loader, 60 * FREQUENCY)
    assert loader.now[0] * loader.now[1] ** 2 > failed  # but nothing is blocked for ever


def test_recovery_with_the_sizes_that_failed_shrinks_all_the_same() -> None:
    automation = controller()
    automation.set_current_parameters(8, 64)
    automation.handle_oom_recovery(8, 64)
    assert (automation.current_batch_size, automation.current_lq_size) == (6, 48)
    assert automation.get_vram_stats()["oom_recovery_count"] == 1


def test_a_step_that_failed_is_not_taken_for_the_plan_after_it() -> None:
    """A loop may call both for one step; what was measured of it counts in the peak only."""
    automation = controller(policy="step", adjustment_frequency=2)
    automation.set_current_parameters(8, 64)
    automation.handle_oom_recovery(4, 32)
    automation.observe(PeakReading(LIMIT, limit=LIMIT))
    assert automation.update_vram_monitoring() == (None, None)
    for _ in range(2):
        automation.observe(PeakReading(memory(4, 32), limit=LIMIT))
        found = automation.update_vram_monitoring()
    assert found == (None, None)  # the cooldown, and no pressure from the step that failed
    assert automation.get_vram_stats()["peak_usage"] == 1.0


def test_a_target_below_the_present_plan_is_gone_to() -> None:
    """C32: smaller values than the present ones shrink the plan."""
    automation, loader = controller(), OnlySetters(8, 64)
    automation.set_current_parameters(8, 64)
    automation.set_target_parameters(batch_size=4, lq_size=40)
    documented_loop(automation, loader, 2)
    assert loader.now == (4, 40)
    documented_loop(automation, loader, 20 * FREQUENCY)
    assert loader.now == (4, 40)


def test_a_target_said_before_the_present_plan(caplog: pytest.LogCaptureFixture) -> None:
    automation, loader = controller(), OnlySetters(8, 64)
    automation.set_target_parameters(batch_size=4, lq_size=40)
    automation.set_current_parameters(8, 64)
    assert (automation.current_batch_size, automation.current_lq_size) == (8, 64)
    documented_loop(automation, loader, 2)
    assert loader.now == (4, 40)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_pieces_of_a_step_are_kept_and_shown() -> None:
    """``target_batch_size`` in a loop of one's own: the pieces to run a step in are there to be read."""
    automation = controller()
    automation.set_current_parameters(8, 64, micro_batches=2)
    automation.handle_oom_recovery(6, 48)
    assert (automation.current_batch_size, automation.current_micro_batches) == (6, 2)
    whole = controller(policy="step", target_batch_size=20)
    whole.set_current_parameters(20, 64)
    for _ in range(FREQUENCY):
        whole.observe(PeakReading(int(0.95 * LIMIT), limit=LIMIT))
        whole.update_vram_monitoring()
    whole.observe(PeakReading(LIMIT // 2, limit=LIMIT))
    whole.update_vram_monitoring()
    assert (whole.current_batch_size, whole.current_micro_batches) == (20, 2)


def test_without_a_limit_it_is_said_once_that_there_is_nothing_to_fill(caplog: pytest.LogCaptureFixture) -> None:
    automation = controller()
    automation.set_current_parameters(4, 32)
    for _ in range(3):
        automation.observe(PeakReading(2**20))
        assert automation.update_vram_monitoring() == (None, None)
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    assert "set a budget" in caplog.text


def test_use_now_and_peak_are_two_figures(caplog: pytest.LogCaptureFixture) -> None:
    """C34, E03, E12, E14: ``current_usage`` is what is in use, ``peak_usage`` the peak; the status line says both."""
    caplog.set_level(logging.INFO, "trainauto")
    automation = controller(adjustment_frequency=100)
    automation.set_current_parameters(4, 32)
    for step in range(50):
        peak = 800 * 2**20 if step == 20 else 640 * 2**20
        automation.observe(PeakReading(peak, limit=LIMIT, current=31 * 2**20))
        automation.update_vram_monitoring()
    stats = automation.get_vram_stats()
    assert stats["current_usage"] == pytest.approx(31 / 1024)
    assert stats["peak_usage"] == pytest.approx(800 / 1024)
    (line,) = [message for message in caplog.messages if "in use" in message]
    assert line == (
        "DynamicBatchSizeOptimizer: in use 3.0% (0.03 GiB), period's peak 78.1% (0.78 of 1.00 GiB), target 85%"
    )
    small = controller(adjustment_frequency=100)
    small.set_current_parameters(4, 32)
    for _ in range(50):
        small.observe(PeakReading(40 * 2**20, limit=64 * 2**20, current=2**20))
        small.update_vram_monitoring()
    assert "in use 1.6% (1.00 MiB), period's peak 62.5% (40.00 of 64.00 MiB)" in caplog.messages[-1]


def test_the_section_of_an_option_file_without_the_file() -> None:
    """C12, C13, C24, C29: looked up by name, switched off by ``enabled``, nothing unknown accepted."""
    given = {"target_vram_usage": 0.8, "min_batch_size": 1, "max_batch_size": 32}
    found = TrainingAutomations({"enabled": True, "DynamicBatchSizeOptimizer": {"enabled": True, **given}})
    assert found
    assert "DynamicBatchSizeOptimizer" in found.automations
    automation = found.automations["DynamicBatchSizeOptimizer"]
    assert isinstance(automation, DynamicBatchSizeOptimizer)
    assert (automation.target_vram_usage, automation.min_batch_size, automation.max_lq_size) == (0.8, 1, 256)
    assert "DynamicBatchSizeOptimizer" in TrainingAutomations({"dynamic_batch_size_optimizer": {}}).automations
    assert not TrainingAutomations({"enabled": False, "DynamicBatchSizeOptimizer": {}})
    assert not TrainingAutomations({"DynamicBatchSizeOptimizer": {"enabled": False}})
    with pytest.raises(InputError, match="DynamicBatchSizeOptimizer"):
        TrainingAutomations({"DynamicBatchSizeOptimiser": {}})
    with pytest.raises(InputError, match="max_batchsize"):
        TrainingAutomations({"DynamicBatchSizeOptimizer": {"max_batchsize": 3}})


def test_settings_may_be_changed_by_a_loop_and_are_checked() -> None:
    steering = controller()
    steering.target_vram_usage = 0.7
    assert (steering.target_vram_usage, steering.get_vram_stats()["target_usage"]) == (0.7, 0.7)
    assert steering.controller.settings.target_vram_usage == 0.7
    with pytest.raises(ValueError, match="safety_margin"):
        steering.safety_margin = 0.8


def test_a_loader_refuses_to_set_what_its_plans_do_not_have() -> None:
    class Texts(DocumentedSetters):
        plan = Plan.of(tokens=280)

        def update_plan(self, plan: Plan) -> None:
            self.plan = plan

    loader = Texts()
    loader.update_size(300)
    assert loader.plan == Plan.of(tokens=300)
    with pytest.raises(ValueError, match="does not count samples"):
        loader.update_batch_size(7)
    assert SampleKey(1, 48, 7).lq_size == 48
