"""Steps of a live module are traced on a copy: what they take, and that the module notices nothing."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainauto.memory.tracing.live_module import CudaAutocastError, FakeTwin, LiveModuleTracer
from trainauto.memory.tracing.profiler_events import profiled
from trainauto.memory.tracing.trace import TraceError

WIDTH = 32


class Keeping(nn.Module):
    """Keeps what it made, counts in a buffer, drops out, and has a hook of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, batch_first=True)
        self.head = nn.Linear(WIDTH, 50, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("calls", torch.zeros(1))
        self.kept: Tensor | None = None
        self.seen: list[Tensor] = []
        self.layer.register_forward_hook(self.note)

    def note(self, _module: nn.Module, _arguments: Any, output: Tensor) -> None:
        self.seen.append(output)

    def forward(self, ids: Tensor) -> Tensor:
        self.calls += 1
        self.kept = self.layer(self.embedding(ids))
        return self.head(self.kept)


def ids_of(samples: int, tokens: int) -> Tensor:
    return torch.zeros(samples, tokens, dtype=torch.int64)


def loss_of(module: nn.Module, ids: Tensor) -> Tensor:
    return nn.functional.cross_entropy(module(ids).flatten(0, 1), ids.flatten())


def test_the_live_module_and_its_optimizer_stay_as_they_are() -> None:
    module = Keeping()
    adam = torch.optim.AdamW(module.parameters(), lr=0.1)
    loss_of(module, ids_of(2, 3)).backward()
    adam.step()
    module.kept, module.seen[:] = None, []
    weights, state = copy.deepcopy(module.state_dict()), copy.deepcopy(adam.state_dict())
    gradients = [weight.grad.clone() for weight in module.parameters()]
    before = {name: value for name, value in vars(module).items() if name != "kept"}
    versions = [weight._version for weight in module.parameters()]
    random_state = torch.get_rng_state()

    tracer = LiveModuleTracer(module, loss_of, ids_of, adam)
    assert tracer.trace(4, 8).peak_bytes > 0

    assert module.kept is None
    assert module.seen == []
    assert {name: value for name, value in vars(module).items() if name != "kept"} == before
    assert [weight._version for weight in module.parameters()] == versions
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(a, b) for a, b in zip(module.state_dict().values(), weights.values(), strict=True))
    assert all(torch.equal(a.grad, b) for a, b in zip(module.parameters(), gradients, strict=True))
    now = adam.state_dict()
    assert now["param_groups"] == state["param_groups"]
    assert all(torch.equal(now["state"][0][name], state["state"][0][name]) for name in state["state"][0])
    assert len(tracer.twin.module.seen) > 0  # hooks ran, on the copy


@pytest.mark.parametrize("trains", [True, False], ids=["training", "inference"])
def test_the_peak_is_that_of_a_real_step(trains: bool) -> None:
    module = Keeping()
    module.layer._forward_hooks.clear()  # what it keeps would grow with every step
    adam = torch.optim.AdamW(module.parameters()) if trains else None

    def step(ids: Tensor) -> None:
        if adam is None:
            module(ids)
            return
        loss_of(module, ids).backward()
        adam.step()
        module.zero_grad(set_to_none=True)

    step(ids_of(6, 20))
    module.kept = None
    before, events = profiled(lambda: step(ids_of(6, 20)), lambda: step(ids_of(6, 20)))
    state = sum(value.nbytes for values in (adam.state.values() if adam else ()) for value in values.values())
    live = peak = sum(event.size_bytes for event in before if event.is_tensor)  # what is kept from step to step
    for event in events:
        live += event.size_bytes if event.is_tensor else 0
        peak = max(peak, live)
    real = peak + state + sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))

    def run(copied: nn.Module, ids: Tensor) -> Tensor | None:
        return loss_of(copied, ids) if trains else (copied(ids), None)[1]

    traced = LiveModuleTracer(module, run, ids_of, adam).trace(6, 20)
    assert traced.peak_bytes == pytest.approx(real, rel=1e-3)


def test_the_optimizer_of_the_copy_has_not_stepped_and_steps_the_copy() -> None:
    module = Keeping()
    adam = torch.optim.AdamW(module.parameters(), lr=0.25, amsgrad=True)
    loss_of(module, ids_of(1, 2)).backward()
    adam.step()
    twin = FakeTwin(module, adam)
    assert isinstance(twin.optimizer, torch.optim.AdamW)
    assert len(twin.optimizer.state) == 0
    assert twin.optimizer.param_groups[0]["lr"] == 0.25
    assert twin.optimizer.param_groups[0]["amsgrad"]
    assert {id(p) for p in twin.optimizer.param_groups[0]["params"]} == {id(p) for p in twin.module.parameters()}


def test_cuda_autocast_is_refused_wherever_it_is_opened() -> None:
    def under_autocast(module: nn.Module, ids: Tensor) -> Tensor:
        was_enabled = torch.is_autocast_enabled("cuda")
        torch.set_autocast_enabled("cuda", True)
        try:
            return loss_of(module, ids)
        finally:
            torch.set_autocast_enabled("cuda", was_enabled)

    with pytest.raises(CudaAutocastError, match="measure two steps"):
        LiveModuleTracer(Keeping(), under_autocast, ids_of).trace(1, 2)
    tracer = LiveModuleTracer(Keeping(), loss_of, ids_of)
    torch.set_autocast_enabled("cuda", True)
    try:
        with pytest.raises(CudaAutocastError):
            tracer.trace(1, 2)
    finally:
        torch.set_autocast_enabled("cuda", False)
    assert tracer.trace(1, 2).peak_bytes > 0


def test_cpu_autocast_is_traced() -> None:
    def in_bfloat16(module: nn.Module, ids: Tensor) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            module(ids)

    module = Keeping()
    plain = LiveModuleTracer(module, lambda m, ids: (m(ids), None)[1], ids_of).trace(8, 64)
    assert LiveModuleTracer(module, in_bfloat16, ids_of).trace(8, 64).peak_bytes != plain.peak_bytes


def test_parameters_are_gone_through_a_few_times_whatever_their_number() -> None:
    class Counting(nn.ParameterList):
        times = 0

        def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
            type(self).times += 1
            return super().parameters(recurse)

    module = Counting([nn.Parameter(torch.zeros(1)) for _ in range(50)])
    adam = torch.optim.AdamW(list(module.parameters()))
    Counting.times = 0
    FakeTwin(module, adam)
    assert Counting.times < 5


def test_what_cannot_be_copied_is_said() -> None:
    class Locked(nn.Module):
        def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
            raise RuntimeError("there is only one of me")

    with pytest.raises(TraceError, match="there is only one of me"):
        FakeTwin(Locked())
    compiled = torch.compile(nn.Linear(2, 2), backend="eager")
    with pytest.raises(TraceError, match="compiled"):
        FakeTwin(compiled)
    with pytest.raises(TraceError, match="1 parameters that are not the module's"):
        FakeTwin(nn.Linear(2, 2), torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1))


def test_a_step_that_fails_is_said_and_sizes_are_checked() -> None:
    tracer = LiveModuleTracer(nn.Linear(3, 2), lambda module, batch: module(batch).sum(), torch.empty)
    with pytest.raises(TraceError, match="test_live_module"):
        tracer.trace(2, 4)
    assert tracer.trace(2, 3).peak_bytes > 0
    with pytest.raises(ValueError, match="at least 1"):
        tracer.trace(0, 3)
