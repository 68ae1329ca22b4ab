"""Traces: counted by hand, against real steps, and where they must refuse."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import Plan
from trainauto.memory.cuda_allocator.allocator import CachingAllocator, replay
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.host_reads import AnsweredReads
from trainauto.memory.tracing.trace import Trace, TraceError, trace

sys.path.append(str(Path(__file__).parents[4] / "scripts" / "bench"))
from trace_cases import OwnModule, small_cases

NETWORKS = ("Compact", "RRDBNet", "SPAN", "SwinIR-light", "GPT", "GAN", "own module")
FLOAT = 4


def same(first: Trace, second: Trace) -> bool:
    """Say whether two traces agree in every figure but the order of events."""
    figures = [(t.persistent_bytes, t.peak_bytes, t.phase_peaks_bytes) for t in (first, second)]
    return figures[0] == figures[1]


def training(
    build: Callable[[], nn.Module],
    *shape: int,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    **settings: Any,
) -> Callable[[], None]:
    """Return the step of a plain training loop, as a person writes it."""
    network = build()
    steps = optimizer(network.parameters(), lr=0.1, **settings)

    def step() -> None:
        loss = network(torch.ones(shape)).float().square().mean()
        loss.backward()
        steps.step()
        steps.zero_grad(set_to_none=True)

    return step


# --- counted by hand ---


@pytest.mark.parametrize("fake", [True, False])
def test_bytes_events_and_peak_of_a_few_operators(fake: bool) -> None:
    def step() -> None:
        a = torch.zeros(1000)  # 4000
        b = a + 1  # 8000
        view = b.view(10, 100)[3:]
        del a, b  # the view keeps b: 4000
        _ = view * 2  # 7 rows, 2800: 6800

    if fake:
        with fake_world():
            result = trace(step)
    else:
        result = trace(step)
    assert [size for _, size in result.events] == [4000, 4000, 0, 2800, 0, 0]
    idents = [ident for ident, _ in result.events]
    assert [idents[0], idents[1]] == [idents[2], idents[-1]] or [idents[0], idents[1]] == [idents[2], idents[-2]]
    assert result.peak_bytes == 8000
    assert result.persistent_bytes == 0
    assert result.initial == ()


def test_phases_and_persistent_bytes_of_one_layer() -> None:
    """100 x 50 weights, no bias: what lives when is known."""
    weight, out = 100 * 50 * FLOAT, 8 * 50 * FLOAT
    layer = nn.Linear(100, 50, bias=False)
    optimizer = torch.optim.Adam(layer.parameters(), foreach=False)
    batch = torch.ones(8, 100)

    def step() -> None:
        layer(batch).backward(torch.ones(8, 50))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    result = trace(step, held=[layer, batch])
    state = 2 * weight + FLOAT  # two moments and a step count
    assert result.persistent_bytes == weight + state + 8 * 100 * FLOAT
    # The output, and the gradient that is passed in.
    assert result.phase_peaks_bytes["forward"] == result.persistent_bytes + 2 * out
    assert result.phase_peaks_bytes["backward"] >= result.persistent_bytes + weight + out
    # Adam's denominator: a root of the size of the weight, and its quotient, while the gradient lives.
    assert result.phase_peaks_bytes["optimizer"] == result.persistent_bytes + 3 * weight
    assert result.peak_bytes == max(result.phase_peaks_bytes.values())


def test_the_first_step_is_not_the_one_that_counts() -> None:
    with fake_world():
        first = trace(training(lambda: nn.Linear(64, 64), 2, 64), steps=1)
    with fake_world():
        second = trace(training(lambda: nn.Linear(64, 64), 2, 64))
    assert second.persistent_bytes - first.persistent_bytes == 2 * (64 * 64 + 64) * FLOAT + 2 * FLOAT


def test_only_what_is_held_counts_when_nothing_touches_it() -> None:
    unused = nn.Linear(10, 10)
    assert trace(lambda: torch.ones(5)).peak_bytes == 20
    assert trace(lambda: torch.ones(5), held=[unused]).persistent_bytes == 110 * FLOAT


def test_what_is_first_touched_in_the_step_that_counts_was_there_before() -> None:
    kept = torch.ones(1000)
    result = trace(lambda: kept + 1, steps=1)
    assert result.persistent_bytes == 4000
    assert result.peak_bytes == 8000
    assert [size for _, size in result.events] == [4000, 0]


def test_a_resized_storage_is_allocated_anew() -> None:
    def step() -> None:
        grown = torch.empty(10)
        grown.resize_(1000)
        del grown

    with fake_world():
        fake = trace(step)
    assert fake.peak_bytes == trace(step).peak_bytes == 4000


def test_events_feed_the_allocator() -> None:
    with fake_world():
        result = trace(
            training(lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 3, 3)), 2, 3, 64, 64)
        )
    allocator = CachingAllocator(expandable=False)
    replay(result.initial, allocator)
    assert allocator.requested_bytes == result.persistent_bytes
    replay(result.events, allocator)
    assert allocator.peak_requested_bytes == result.peak_bytes
    assert result.reserved_bytes(expandable=True) >= result.peak_bytes


# --- against real steps ---


@pytest.mark.parametrize("name", NETWORKS)
def test_traces_equal_real_steps(name: str, tmp_path: Path) -> None:
    case = next(case for case in small_cases(tmp_path) if case.name == name)
    (plan,) = case.plans
    fake, real = case.fake(torch.float32).trace(plan), case.real(torch.float32).trace(plan)
    assert same(fake, real)
    assert fake.peak_bytes > fake.persistent_bytes > 0


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.Adam, {"fused": True, "amsgrad": True}),
        (torch.optim.RMSprop, {}),
    ],
)
def test_optimizers(optimizer: Callable[..., torch.optim.Optimizer], settings: dict[str, Any]) -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    with fake_world():
        fake = trace(training(build, 4, 32, optimizer=optimizer, **settings))
    assert same(fake, trace(training(build, 4, 32, optimizer=optimizer, **settings)))


def fake_own_module(checkpointed: bool) -> Trace:
    with fake_world():
        with AnsweredReads():  # its initial weights are drawn until all are within bounds
            step = training(lambda: OwnModule(features=8, checkpointed=checkpointed), 2, 3, 16, 16)
        return trace(step)


def test_checkpointing_is_seen() -> None:
    fakes = [fake_own_module(checkpointed) for checkpointed in (True, False)]
    for checkpointed, fake in zip((True, False), fakes, strict=True):
        real = trace(training(lambda: OwnModule(features=8, checkpointed=checkpointed), 2, 3, 16, 16))  # noqa: B023
        assert same(fake, real)
    assert fakes[0].peak_bytes < 0.9 * fakes[1].peak_bytes


def test_float16_with_loss_scaling() -> None:
    def step_of() -> Callable[[], None]:
        layer = nn.Conv2d(3, 8, 3)
        optimizer = torch.optim.Adam(layer.parameters())
        scaler = torch.amp.GradScaler("cpu")

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.float16):
                loss = layer(torch.ones(2, 3, 16, 16)).float().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            assert loss.item() < 1e9

        return step

    with fake_world():
        fake = trace(step_of())
    assert same(fake, trace(step_of()))


def test_a_second_plan_is_traced_as_the_first_would_have_been(tmp_path: Path) -> None:
    case = next(case for case in small_cases(tmp_path) if case.name == "own module")
    run = case.fake(torch.float32)
    first, second = Plan.of(batch_size=2, lq_size=8), Plan.of(batch_size=3, lq_size=13, micro_batches=3)
    once = run.trace(first)
    assert same(run.trace(second), case.fake(torch.float32).trace(second))
    assert same(run.trace(first), once)


def test_the_copies_of_the_first_step_are_not_taken_for_what_a_run_holds(tmp_path: Path) -> None:
    """Before the first pass every buffer is copied, since any might change; from then on those that did."""
    case = next(case for case in small_cases(tmp_path) if case.name == "SwinIR-light")
    run, plan = case.fake(torch.float32), Plan.of(batch_size=1, lq_size=8)
    assert same(run.trace(plan), run.trace(plan))


# --- what a model asks of its data ---


def traced(forward: Callable[[nn.Module, Tensor], Tensor], side: int = 8) -> Trace:
    """Trace training of a module with this forward."""

    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(side, side)

        def forward(self, x: Tensor) -> Tensor:
            return forward(self.layer, x)

    with fake_world():
        return trace(training(Asking, 64, side))


def wide(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x.repeat(50, 1)).sigmoid().square()


def test_a_branch_that_memory_follows_is_refused() -> None:
    def forward(layer: nn.Module, x: Tensor) -> Tensor:
        return wide(layer, x) if x.mean() > 0 else layer(x)

    with pytest.raises(TraceError, match=r"depends on data: test_trace\.py:\d+ .*forward\) asks a tensor for whether"):
        traced(forward)


@pytest.mark.parametrize("threshold", [-100.0, 0.5, 255.0])
def test_a_branch_upon_a_number_is_refused(threshold: float) -> None:
    def forward(layer: nn.Module, x: Tensor) -> Tensor:
        return wide(layer, x) if x.abs().max().item() > abs(threshold) else layer(x)

    with pytest.raises(TraceError, match="for a number, and the peak is"):
        traced(forward)


def test_a_size_out_of_a_tensor_is_refused() -> None:
    def forward(layer: nn.Module, x: Tensor) -> Tensor:
        return layer(x[: int(x.sum().long())])

    with pytest.raises(TraceError, match=r"test_trace\.py:\d+ .* reads a whole number out of a tensor"):
        traced(forward)


def test_a_result_whose_size_follows_data_is_refused() -> None:
    with pytest.raises(TraceError, match=r"aten\.nonzero\.default gives depends on data, at test_trace\.py:\d+"):
        traced(lambda layer, x: layer(x[x.sum(1) > 0]))


def test_a_loop_that_ends_when_values_are_small_is_refused() -> None:
    def forward(layer: nn.Module, x: Tensor) -> Tensor:
        while x.abs().mean() > 0.1:
            x = x / 2
        return layer(x)

    with pytest.raises(TraceError, match="without end"):
        traced(forward)


@pytest.mark.parametrize("worth", [True, False])
def test_a_check_that_raises_is_no_branch(worth: bool) -> None:
    def forward(layer: nn.Module, x: Tensor) -> Tensor:
        if bool(torch.isnan(x).any()) is worth:
            raise ValueError("not a number, or no number at all")
        return layer(x)

    assert same(traced(forward), traced(lambda layer, x: (torch.isnan(x).any(), layer(x))[1]))


def test_an_operator_without_a_fake_kernel_is_named() -> None:
    library = torch.library.Library("trainauto_test", "FRAGMENT")
    library.define("mystery(Tensor x) -> Tensor")
    library.impl("mystery", lambda x: x.clone(), "CPU")
    with pytest.raises(TraceError, match=r"trainauto_test\.mystery\.default has no kernel for fake tensors"):
        traced(lambda layer, x: torch.ops.trainauto_test.mystery(layer(x)))


def test_a_step_that_fails_says_where() -> None:
    with pytest.raises(TraceError, match=r"RuntimeError: .+, at test_trace\.py:\d+"):
        traced(lambda layer, x: F.linear(x, torch.ones(3, 3)))


def test_sparse_tensors_are_refused() -> None:
    with pytest.raises(TraceError, match=r"layout torch\.sparse_coo cannot be followed"):
        trace(lambda: torch.eye(3).to_sparse())


def test_no_steps_are_no_trace() -> None:
    with pytest.raises(ValueError, match="steps must be at least 1"):
        trace(lambda: None, steps=0)


# --- no more steps than are needed ---


def counted(step: Callable[[], None]) -> tuple[Callable[[], None], list[int]]:
    """Return the step, and a list that grows with every time it runs."""
    times: list[int] = []

    def run() -> None:
        times.append(1)
        step()

    return run, times


def test_a_step_that_leaves_what_it_found_is_not_run_again() -> None:
    def step() -> None:
        layer(torch.ones(8, 20)).square().sum().backward()
        layer.weight.grad = None

    with fake_world():
        layer = nn.Linear(20, 10, bias=False)
        run, times = counted(step)
        short = trace(run, held=[layer], ends_early=True)
        assert len(times) == 1
        whole = trace(run, held=[layer])
        assert len(times) == 3
    assert same(short, whole)
    assert [size for _, size in short.events] == [size for _, size in whole.events]


def test_a_step_that_leaves_more_than_it_found_is_run_again() -> None:
    def step() -> None:
        layer.zero_grad(set_to_none=True)
        layer(torch.ones(8, 20)).square().sum().backward()

    with fake_world():
        layer = nn.Linear(20, 10, bias=False)
        run, times = counted(step)
        result = trace(run, held=[layer], ends_early=True)
    assert len(times) == 2
    assert result.persistent_bytes == 2 * 20 * 10 * FLOAT  # the gradient of the step before, too
    with fake_world():
        layer = nn.Linear(20, 10, bias=False)
        layer.weight.grad = torch.zeros(10, 20)
        run, times = counted(step)
        assert same(trace(run, held=[layer], ends_early=True), result)
    assert len(times) == 1
