"""Optimizer state before the first step."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tests.optimizer_failures import FailsInOptimizer
from trainauto.engine.optimizer_state import (
    _starts_with_zeros,
    _with_small_weights,
    empty_step,
    make_optimizer_state,
)
from trainauto.engine.run_errors import OptimizerOutOfMemoryError


class Quantised(Optimizer):
    """Keeps one map for all weights in the state of each, as bitsandbytes' do."""

    def __init__(self, weights: list[nn.Parameter], quantisation_map: Tensor) -> None:
        super().__init__(weights, {"lr": 0.1})
        self.quantisation_map = quantisation_map

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for weight in self.param_groups[0]["params"]:
            state = self.state[weight]
            state["moment"] = state.get("moment", torch.zeros_like(weight)) + weight.grad
            state["map"] = self.quantisation_map
            weight.sub_(state["moment"] * state["map"][-1])


class Derived(torch.optim.AdamW):
    """Of a class of torch's."""


class Counting(torch.optim.AdamW):
    """Has a step of its own around that of torch's class."""

    taken = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.taken += 1
        super().step()
        with torch.no_grad():
            self.param_groups[0]["params"][0].mul_(0.9)


@pytest.mark.parametrize("prepare", [lambda optimizer: make_optimizer_state([optimizer]), empty_step])
def test_a_step_of_its_own_is_not_taken_before_training(prepare: Any) -> None:
    """It would move weights, and count, though rate and gradients are zero."""
    weight = nn.Parameter(torch.ones(4))
    optimizer, weight.grad = Counting([weight]), torch.ones(4)
    prepare(optimizer)
    assert (optimizer.taken, len(optimizer.state)) == (0, 0)
    assert torch.equal(weight, torch.ones(4))


@pytest.mark.parametrize("prepare", [lambda optimizer: make_optimizer_state([optimizer]), empty_step])
def test_optimizers_of_other_libraries_are_left_alone(prepare: Any) -> None:
    """B18: what their states share is not set to zero, and no step is counted."""
    optimizer = Quantised([nn.Parameter(torch.ones(4))], torch.linspace(-1, 1, 256))
    optimizer.param_groups[0]["params"][0].grad = torch.ones(4)
    prepare(optimizer)
    assert not optimizer.state
    assert optimizer.quantisation_map[-1] == 1


@pytest.mark.parametrize("kind", [torch.optim.AdamW, Derived])
def test_those_of_torch_and_what_is_derived_from_them_are_prepared(kind: type[Optimizer]) -> None:
    weight = nn.Parameter(torch.ones(4))
    optimizer = kind([weight], lr=0.1)  # type: ignore[call-arg]
    make_optimizer_state([optimizer])
    assert set(optimizer.state[weight]) == {"step", "exp_avg", "exp_avg_sq"}
    assert not any(value.any() for value in optimizer.state[weight].values())


@pytest.mark.parametrize("has_state", [False, True])
def test_an_empty_step_that_runs_out_of_memory_leaves_rates_counts_and_weights_alone(has_state: bool) -> None:
    """The rate stayed 0, and nothing was trained from then on; the count stayed 1, and the first step was too small."""
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizer = torch.optim.Adam(weights, lr=0.1, foreach=True)
    if has_state:
        make_optimizer_state([optimizer])
    for weight in weights:
        weight.grad = torch.ones(3)
    with pytest.raises(RuntimeError, match="can't allocate"), FailsInOptimizer(8):
        empty_step(optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert not any(float(value.sum()) for state in optimizer.state.values() for value in state.values())
    assert bool(optimizer.state) is has_state
    assert all(bool((weight == 1).all()) for weight in weights)


def test_state_that_all_at_once_leaves_no_room_for_is_made_one_weight_after_another() -> None:
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizer = torch.optim.Adam(weights, lr=0.1, foreach=True)
    with FailsInOptimizer(8):
        make_optimizer_state([optimizer])
    assert len(optimizer.state) == 2
    assert (optimizer.param_groups[0]["foreach"], optimizer.param_groups[0]["lr"]) == (False, 0.1)
    scarce = torch.optim.Adam(weights, lr=0.1)
    with FailsInOptimizer(3), pytest.raises(OptimizerOutOfMemoryError, match="changed no weight"):
        make_optimizer_state([scarce])
    assert (len(scarce.state), scarce.param_groups[0]["lr"], weights[0].grad) == (0, 0.1, None)


def test_an_optimizer_for_a_card_is_tried_on_the_cpu() -> None:
    """Its rate is a tensor and its steps can be captured, which torch's optimizers refuse on the CPU."""
    weight = nn.Parameter(torch.ones(3, 3))
    for kind, starts_with_zeros in ((torch.optim.AdamW, True), (torch.optim.NAdam, False)):
        optimizer = kind([weight], lr=torch.tensor(0.1), capturable=True)  # type: ignore[operator]
        small = _with_small_weights(optimizer)
        assert (small.param_groups[0]["lr"], small.param_groups[0]["capturable"]) == (pytest.approx(0.1), False)
        assert _starts_with_zeros(optimizer) == starts_with_zeros
        assert optimizer.param_groups[0]["capturable"]
        assert not optimizer.state
