"""Ranks that wait for each other in each forward pass have as many of them, whatever samples they have."""

from math import ceil
from types import SimpleNamespace
from typing import Any

import pytest

from trainauto.core.plan import BatchShape, Plan
from trainauto.engine.gradients import passes_of_all, planned_split

PLANS = [
    Plan.of(tokens=64).with_micro_batches(3),
    Plan.of(tokens=64).with_micro_batches(4),
    Plan.of(tokens=64),
    Plan.of(batch_size=8, micro_batches=4),
]


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("plan", PLANS)
def test_no_rank_has_more_passes_than_are_agreed(ranks: int, plan: Plan) -> None:
    for samples in range(1, 8 * ranks):
        counts = {ceil((samples - rank) / ranks) for rank in range(ranks)}
        batch: Any = SimpleNamespace(step_samples=samples, plan=plan, shape=BatchShape(1, 8))
        group: Any = SimpleNamespace(world_size=ranks)
        agreed = passes_of_all(batch, group)
        own = []
        for count in counts - {0}:
            split = planned_split(plan, count, 8).micro_batches
            own.append(ceil(count / ceil(count / split)))  # parts are as large as the largest
        assert max(own) == agreed, samples
