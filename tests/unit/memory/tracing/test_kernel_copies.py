"""What a CPU's convolutions copy within themselves, against torch's own profiler."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from trainauto.memory.cost.memory_forecast import MemoryForecast, PlanBytes, warn_if_doubtful
from trainauto.memory.cost.ratio_prior import PROCESS
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.trace import Trace, trace

WIDTH = 32


class Block(nn.Module):
    """Two convolutions whose insides are kept, or not."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.GELU()]
        self.body = nn.Sequential(*layers, nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Own(nn.Module):
    """A network that calls ``torch.utils.checkpoint`` itself."""

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.last = nn.Conv2d(WIDTH, 3, 3, padding=1)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return self.last(x)


def step_of(network: nn.Module, image: Tensor) -> Callable[[], None]:
    def step() -> None:
        for parameter in network.parameters():
            parameter.grad = None
        network(image).abs().mean().backward()

    return step


def traced(reentrant: bool | None) -> Trace:
    with fake_world():
        network = Own(reentrant)
        return trace(step_of(network, torch.ones(2, 3, 96, 96)), held=[network])


def profiled_bytes(reentrant: bool | None) -> int:
    """Return the most that a step allocates at one time, copies within kernels included."""
    step = step_of(Own(reentrant), torch.ones(2, 3, 96, 96))
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as session:
        step()
    live, peak = 0, 0
    for event in session.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


@pytest.mark.parametrize("reentrant", [None, False, True], ids=["kept", "checkpointed", "reentrant"])
def test_copies_are_what_live_bytes_lack(reentrant: bool | None) -> None:
    fake, real = traced(reentrant), profiled_bytes(reentrant)
    least, most = (size - fake.held_bytes for size in (fake.peak_bytes, fake.peak_with_copies_bytes))
    assert 0.98 * least < real < 1.02 * most
    if torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512":
        assert real == pytest.approx(most, rel=0.02)


def test_a_checkpointed_network_is_foretold_with_its_copies(caplog: pytest.LogCaptureFixture) -> None:
    """They are a fifth of what it takes; of the same network that keeps everything they are a tenth."""

    def median(reentrant: bool | None) -> float:
        fake = traced(reentrant)
        peak, copies = fake.peak_bytes, fake.peak_with_copies_bytes
        plan = PlanBytes(fake.held_bytes, peak, fake.phase_peaks_bytes, None, 0.0, peak_with_copies_bytes=copies)
        foresight = MemoryForecast.of({(2, 96): plan}, 1, 0.0)
        again = MemoryForecast.from_dict(foresight.to_dict())
        assert again.peaks_on("cpu") == foresight.peaks_on("cpu")
        warn_if_doubtful(foresight)
        return foresight.peaks_on("cpu")[1].median_ratio

    assert median(reentrant=False) == pytest.approx(1.2, abs=0.03)
    assert "the prediction is uncertain" in caplog.text
    assert PROCESS.median_ratio < median(reentrant=None) < 1.12
