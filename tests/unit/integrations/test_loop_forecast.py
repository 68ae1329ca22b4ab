"""What traces of a loop's step leave alone."""

import logging

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.amp.grad_scaler import GradScaler
from torch.utils.data import TensorDataset

from trainauto import AdaptiveLoop, ModelObjective, Range
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


@pytest.mark.parametrize(("budget", "is_short"), [("36MiB", True), ("80MiB", False)])
def test_an_optimizer_whose_temporaries_do_not_fit_takes_one_weight_after_another_from_the_start(
    budget: str, is_short: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Weights of 16 MiB: gradients and the temporaries of Adam's foreach take 32 MiB, those of its largest layer 18."""
    caplog.set_level(logging.INFO, "trainauto")
    net = nn.Sequential(*(nn.Linear(512, 512) for _ in range(16)))
    optimizer = torch.optim.Adam(net.parameters(), foreach=True)
    objective = ModelObjective("fit", optimizer, lambda model, batch: model(batch[0]).square().mean())
    data = TensorDataset(torch.rand(64, 512))
    with AdaptiveLoop(net, objective, data, batch_size=Range(4, 16), memory_budget=budget) as loop:
        step = loop.step(next(loop.batches(1)))
    assert step.trained
    assert not step.out_of_memory
    assert optimizer.param_groups[0]["foreach"] is not is_short
    assert ("it updates one weight after another (foreach=False)" in caplog.text) is is_short
    assert caplog.text.count("traced") == 1 + is_short
    tracer = LoopTracer(loop.training.model, loop.training.loader.dataset, clips=False)
    phases = tracer.trace(Plan.of(batch_size=4)).phase_peaks_bytes
    held = tracer.trace(Plan.of(batch_size=4)).persistent_bytes
    assert (phases["optimizer"] - held < 20 * 2**20) is is_short
