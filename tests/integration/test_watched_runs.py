"""Real runs of two tasks: automations let healthy ones be, and answer what is planted."""

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest

from tests.acceptance import ACCEPTANCE, only_in_acceptance

sys.path.append(str(Path(__file__).parents[2] / "scripts" / "bench"))

from watched_tasks import SQUARED, TASKS, clipped_share, run
from watching import GUARD, Planted, flipped, jump, jump_for_a_while, spoilt

from trainauto.core.decisions import ClipAt, GoBack, PlanChange, RateFactor

AUTOMATIONS = {
    "AdaptiveGradientClipping": {},
    "IntelligentEarlyStopping": {},
    "IntelligentLearningRateScheduler": {},
    "SpikeGuard": {},
    "StopFile": {},
    "StopAtLowLoss": {"loss": 0.0},
}
pytestmark = pytest.mark.timeout(1200)  # thousands of steps, in an acceptance run
SEEDS, STEPS = (range(10), 2000) if ACCEPTANCE else (range(1), 150)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TASKS)
def test_nothing_fires_where_nothing_is_wrong(name: str, seed: int, tmp_path: Path) -> None:
    """No rate is changed, no run ended; clipping takes as much as half of a gradient from next to no step."""
    course = run(TASKS[name], seed, STEPS, AUTOMATIONS, folder=tmp_path)
    assert len(course.trained) == STEPS
    assert [one for _, one in course.decisions if not isinstance(one, ClipAt)] == []
    assert course.reason == ""
    assert clipped_share(course) < 0.2
    assert clipped_share(course, by=2) <= 0.005
    assert course.measured[STEPS] < course.measured[50], "it learns"


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lowered_where_batches_grow(seed: int) -> None:
    """To 32 times as many samples a step, after 300 steps."""
    steps = 1500 if ACCEPTANCE else 25
    course = run(TASKS["bytes"], seed, steps, AUTOMATIONS, grown=(steps // 5, 32))
    assert [one for _, one in course.decisions if not isinstance(one, ClipAt | PlanChange)] == []
    assert len(course.trained) == steps
    assert fmean(course.trained[-10:]) < fmean(course.trained[:10]), "it learns"


@only_in_acceptance
def test_a_rate_that_jumps_up_is_answered() -> None:
    """To 60 times its value at step 600."""
    course = run(TASKS["bytes"], 0, 1000, {"IntelligentLearningRateScheduler": {}}, rate=jump)
    step, decision = course.decisions[0]
    assert 600 < step <= 660
    assert isinstance(decision, RateFactor)
    assert decision.factor == 0.5
    assert "the loss diverges" in decision.reason


@only_in_acceptance
def test_a_loss_that_comes_back_slowly_is_answered_once() -> None:
    """The rate is 60 times as high for 40 steps; 2000 steps later the loss is not back yet."""
    course = run(TASKS["bytes"], 0, 3000, {"IntelligentLearningRateScheduler": {}}, rate=jump_for_a_while)
    assert [decision.factor for _, decision in course.decisions if isinstance(decision, RateFactor)] == [0.5]
    assert fmean(course.trained[2500:2600]) > 1.1 * fmean(course.trained[500:600])


@only_in_acceptance
def test_other_data_cost_two_halvings_at_the_most() -> None:
    """Half of the samples are noise from step 1000 on."""
    course = run(TASKS["bytes"], 0, 4000, {"IntelligentLearningRateScheduler": {}}, worse=(1000, 0.5))
    factors = [decision.factor for _, decision in course.decisions if isinstance(decision, RateFactor)]
    assert factors in ([0.5], [0.5, 0.25])


@only_in_acceptance
def test_damaged_targets_spoil_less_where_gradients_are_clipped() -> None:
    off, on = (run(SQUARED, 0, 1000, section, damaged=0.002) for section in (None, {"AdaptiveGradientClipping": {}}))
    assert on.measured[1000] < 0.7 * off.measured[1000]
    assert clipped_share(on, by=2) < 0.05


@only_in_acceptance
def test_a_run_that_learns_by_heart_is_ended_after_its_best() -> None:
    course = run(TASKS["bytes"], 0, 3000, {"IntelligentEarlyStopping": {}}, samples=400)
    best = min(course.measured, key=course.measured.__getitem__)
    assert len(course.trained) == best + 500 < 3000
    assert f"after step {best}" in course.reason


@only_in_acceptance
@pytest.mark.parametrize(("plant", "words"), [(flipped, "the loss spikes"), (spoilt, "are not finite")])
def test_what_damages_a_run_is_undone(plant: Callable[[], Planted], words: str) -> None:
    """Weights that turn a thousandfold, and gradients that are no numbers, after step 1030: back to step 1000."""
    steps, (off, on) = 1100, (run(TASKS["bytes"], 0, 1100, section, plant=plant()) for section in (None, GUARD))
    (asked,) = [decision for _, decision in on.decisions]
    assert isinstance(asked, GoBack)
    assert 1028 <= asked.good_until <= 1031
    assert words in asked.reason
    assert len(on.trained) == steps
    assert on.measured[steps] < 2.3
    assert len(off.trained) == 1030 or off.measured[steps] > 1.5 * on.measured[steps]
