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
    check_monotone,
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


def test_bytes_follow_what_two_steps_took(calmed: list[bool]) -> None:
    cost = MeasuredCost.of_steps(step, smaller=(2, 100), larger=(4, 200))
    for samples, tokens in ((8, 300), (1, 50)):
        predicted = int(cost.cost(np.array([samples]), np.array([tokens]), NONE)[0])
        assert predicted == pytest.approx(8 * 2**20 + samples * tokens * 64 * 2**10, rel=0.05)
    check_monotone(cost, 512, 64)
    assert calmed == [True]
    assert 1 < cost.margin(0.025) < cost.margin(0.01) < 1.1


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


def test_a_line_that_begins_below_nothing_goes_through_the_larger_step() -> None:
    def grows_faster(samples: int, tokens: int) -> None:
        torch.ones(samples * tokens * tokens * 64)

    cost = MeasuredCost.of_steps(grows_faster, smaller=(2, 100), larger=(4, 200))
    assert cost.constant_bytes == 0
    assert int(cost.cost(np.array([4]), np.array([200]), NONE)[0]) == pytest.approx(4 * 200 * 200 * 256, rel=0.05)


def test_steps_that_do_not_differ_are_refused() -> None:
    with pytest.raises(InputError, match="measure larger ones"):
        MeasuredCost.of_steps(step, smaller=(2, 100), larger=(2, 100))
