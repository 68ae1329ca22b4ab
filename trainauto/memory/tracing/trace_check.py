"""Whether traces still show what the torch that is installed allocates: a few small steps, traced and run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.profiler_events import profiled
from trainauto.memory.tracing.trace import TraceError, trace

SIDE = 64
LEAST_BYTES = 4096
"""Below are numbers as tensors and statistics, which kernels make for themselves."""

Make = Callable[[], Callable[[], object]]
"""Makes a step: what it keeps between its calls, and the call."""


def differing_steps() -> list[str]:
    """Return the names of steps whose trace allocates or frees other bytes than the step itself, or cannot be made.

    The step itself runs on the CPU, outside of any dispatch mode, and torch's profiler tells what it allocates.
    """
    with _one_thread():
        return [name for name, make in STEPS.items() if not _is_the_same(make)]


def _is_the_same(make: Make) -> bool:
    step = make()
    _, events = profiled(step, step)
    real = [event.size_bytes for event in events if event.is_tensor]
    try:
        with fake_world():
            traced = trace(make()).sizes()
    except TraceError:
        return False
    return _large(real) == _large(traced)


def _large(sizes: list[int]) -> list[int]:
    return [size for size in sizes if abs(size) >= LEAST_BYTES]


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # what kernels allocate follows their number
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _step_of(function: Callable[[Tensor], Tensor]) -> Make:
    """Return what makes a forward and a backward pass of a function."""

    def make() -> Callable[[], object]:
        weight = torch.ones(SIDE, SIDE, requires_grad=True)

        def step() -> None:
            weight.grad = None
            function(weight.tanh()).sum().backward()  # type: ignore[no-untyped-call]

        return step

    return make


def _training() -> Callable[[], object]:
    network = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.GELU(), nn.Conv2d(16, 3, 3))
    optimizer = torch.optim.AdamW(network.parameters())

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        image = torch.ones(2, 3, 24, 24)
        with torch.autocast("cpu", torch.bfloat16):
            loss = network(image).float().square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1e-6)
        optimizer.step()

    return step


def _linear(x: Tensor) -> Tensor:
    # Of an input that is not contiguous: product and bias are two operators.
    turned = x.view(2, SIDE // 2, SIDE).transpose(0, 1)
    return nn.functional.linear(turned, torch.ones(SIDE, SIDE), torch.ones(SIDE)).sin()


STEPS: dict[str, Make] = {
    "gradients that meet": _step_of(lambda x: x.sin() * x.cos() + x.exp()),
    "a view's gradient": _step_of(lambda x: (x[:32] * x[32:]).sin()),
    "indexing": _step_of(lambda x: x.sin()[torch.arange(48)].cos()),
    "gather": _step_of(lambda x: x.sin().gather(0, torch.zeros(48, SIDE, dtype=torch.long)).cos()),
    "a bias": _step_of(_linear),
    "attention": _step_of(lambda x: nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])),
    "a training step": _training,
}
