"""Bytes by two measured steps, where a module cannot be traced."""

import json

import numpy as np
import pytest
import torch

from trainauto.core.errors import InputError
from trainauto.data.packing import (
    FewestBatches,
    PackedBatchSampler,
    PackingMismatchError,
    SampleSizes,
)
from trainauto.memory.monitor import budget
from trainauto.tasks.text.measured_cost import MeasuredCost

NONE = np.zeros(1, np.int64)


def step(samples: int, tokens: int) -> None:
    """Take 8 MiB, and 64 KiB a token."""
    held = [torch.ones(2 * 2**20), torch.ones(samples * tokens * 16 * 2**10)]
    del held


@pytest.fixture(autouse=True)
def calmed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Leave the allocator of the tests' process as it is; what it keeps free is given back before each step."""
    calls: list[bool] = []
    monkeypatch.setattr(budget, "calm_allocator", lambda: calls.append(True))
    return calls


def test_saved_figures_make_the_same_cost_and_so_a_position_can_be_resumed() -> None:
    cost = MeasuredCost.of_steps(step, smaller=(2, 100), larger=(4, 200))
    saved = json.loads(json.dumps([cost.constant_bytes, cost.bytes_per_unit]))
    same, noisier = MeasuredCost(cost.base, *saved), MeasuredCost(cost.base, saved[0] + 4096, saved[1])
    sizes = SampleSizes(np.arange(1, 200))

    def sampler(price: MeasuredCost) -> PackedBatchSampler:
        bound = int(price.cost(np.array([8]), np.array([200]), NONE)[0])
        return PackedBatchSampler(sizes, FewestBatches(price, bound))

    begun = sampler(cost)
    state = begun.advanced(begun.state_dict(), 2)
    sampler(same).load_state_dict(state)
    with pytest.raises(PackingMismatchError, match="bound was"):
        sampler(noisier).load_state_dict(state)


def test_steps_that_do_not_differ_are_refused() -> None:
    with pytest.raises(InputError, match="measure larger ones"):
        MeasuredCost.of_steps(step, smaller=(2, 100), larger=(2, 100))
