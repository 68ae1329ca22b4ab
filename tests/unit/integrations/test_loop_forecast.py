"""What traces of a loop's step leave alone."""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.amp.grad_scaler import GradScaler
from torch.utils.data import TensorDataset

from trainauto import AdaptiveLoop, ModelObjective
from trainauto.core.plan import Plan
from trainauto.integrations.loop_forecast import LoopTracer
from trainauto.integrations.loop_model import LoopModel
from trainauto.integrations.map_samples import MapSamples


def test_a_trace_leaves_model_optimizer_and_scaler_alone() -> None:
    net, scaler = nn.Linear(4, 1), GradScaler("cpu")
    optimizer = torch.optim.AdamW(net.parameters())
    objective = ModelObjective("fit", optimizer, lambda model, batch: model(batch[0]).square().mean(), scaler=scaler)
    loop = AdaptiveLoop(net, objective, TensorDataset(torch.rand(20, 4)), batch_size=4)
    model, samples = loop.training.model, loop.training.loader.dataset
    assert isinstance(model, LoopModel)
    assert isinstance(samples, MapSamples)
    tracer = LoopTracer(model, samples, clips=True)
    small, large = (tracer.trace(Plan.of(batch_size=batch)).peak_bytes for batch in (4, 4096))
    assert 4 * 4096 * 4 < large - small < 4 * 4096 * 4 * 8
    assert not any(isinstance(value, FakeTensor) for value in vars(scaler).values())
    assert not optimizer.state
    assert all(weight.grad is None and not isinstance(weight, FakeTensor) for weight in net.parameters())
    step = loop.step(next(loop.batches()))
    assert step.trained
