"""Bytes of a training step on texts, out of seven traces."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainauto.memory.tracing.live_module import LiveModuleTracer
from trainauto.tasks.text.traced_cost import TracedCost

NONE = np.zeros(1, np.int64)


@pytest.mark.parametrize("longest", [3, 40])
def test_cost_of_a_training_step_is_that_of_a_trace(longest: int) -> None:
    encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    adam = torch.optim.AdamW(encoder.parameters())

    def loss_of(module: nn.Module, batch: Tensor) -> Tensor:
        return module(batch).square().mean()

    tracer = LiveModuleTracer(encoder, loss_of, lambda samples, tokens: torch.empty(samples, tokens, 16), adam)
    cost = TracedCost.of_step(tracer, longest)
    traced = tracer.trace(9, 33)
    assert cost.held_bytes == 3 * sum(weight.nbytes for weight in encoder.parameters()) + 4 * len(
        adam.param_groups[0]["params"]
    )
    assert int(cost.cost(9, 33, NONE)) == traced.peak_bytes - cost.held_bytes
    assert (np.diff(cost.cost(np.arange(1, 60), longest, NONE)) >= 0).all()
