"""Runs of two tasks in which nothing is wrong: automations that watch them let them be."""

import sys
from pathlib import Path

import pytest

from tests.acceptance import ACCEPTANCE

sys.path.append(str(Path(__file__).parents[2] / "scripts" / "bench"))

from watched_tasks import TASKS, clipped_share, run

from trainauto.core.decisions import ClipAt

AUTOMATIONS = {
    "AdaptiveGradientClipping": {},
    "IntelligentEarlyStopping": {},
    "IntelligentLearningRateScheduler": {},
    "StopFile": {},
    "StopAtLowLoss": {"loss": 0.0},
}
SEEDS, STEPS = (range(10), 2000) if ACCEPTANCE else (range(1), 200)


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
