"""Optimizer state before the first step."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.engine.optimizer_state import empty_step, make_optimizer_state


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
