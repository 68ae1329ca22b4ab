"""Peaks as the highest of a step's moments: exact where they are, from above where not, and never falling."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainauto.memory.cost.moments import Moments, moments_of
from trainauto.memory.cuda_allocator.allocator import AllocationEvent
from trainauto.memory.tracing.live_module import LiveModuleTracer
from trainauto.memory.tracing.trace import Trace

SIZES = [(2, 4), (2, 9), (2, 16), (5, 4), (5, 9), (5, 16), (7, 10)]
OTHERS = [(1, 1), (1, 300), (40, 3), (3, 77), (64, 64)]


class Attending(nn.Module):
    """Writes out a matrix of all pairs, has scores for every text, and a bias that no batch grows."""

    def __init__(self, window: int = 1) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(30, 8), nn.Linear(8, 200)
        self.window = window

    def forward(self, ids: Tensor) -> Tensor:
        padded = nn.functional.pad(ids, (0, -ids.shape[1] % self.window))
        x = self.embedding(padded)
        bias = torch.zeros(padded.shape[1], padded.shape[1])
        mixed = (x @ x.transpose(1, 2) + bias).softmax(-1) @ x
        return self.head(mixed.mean(1)).softmax(-1)


def traced(module: nn.Module, trains: bool) -> Callable[[int, int], Trace]:
    def run(copied: nn.Module, ids: Tensor) -> Tensor | None:
        if trains:
            return copied(ids).square().sum()
        with torch.no_grad():
            copied(ids)
        return None

    optimizer = torch.optim.Adam(module.parameters()) if trains else None
    return LiveModuleTracer(module, run, lambda b, s: torch.zeros(b, s, dtype=torch.int64), optimizer).trace


@pytest.mark.parametrize("trains", [True, False], ids=["training", "inference"])
def test_every_other_batch_is_predicted_to_the_byte(trains: bool) -> None:
    trace = traced(Attending(), trains)
    traces = {size: (trace(*size),) for size in SIZES}
    held = traces[SIZES[0]][0].held_bytes
    moments = moments_of(traces, held)
    assert moments.residual == 0
    assert len(moments.coefficients) > 1  # more than one moment is the peak somewhere
    for samples, tokens in OTHERS:
        peak = trace(samples, tokens).peak_bytes - held
        assert float(moments.bytes(samples, tokens)) == pytest.approx(peak, abs=0.5)


def test_rounded_sizes_are_fitted_from_above() -> None:
    trace = traced(Attending(window=6), trains=False)
    traces = {size: (trace(*size),) for size in SIZES}
    moments = moments_of(traces, 0)
    assert moments.residual > 0.01
    for size, (of,) in traces.items():
        assert of.peak_bytes <= moments.bytes(*size) + 1


def made(events: Sequence[tuple[int, int]]) -> Trace:
    return Trace(0, max(size for _, size in events), {}, (), tuple(AllocationEvent(*event) for event in events))


def test_moments_that_would_fall_are_lifted() -> None:
    # The peak of a batch of b texts of s tokens: 1000 + b - 10 s for a step that nobody would write.
    traces = {(b, s): (made([(1, 1000 + b - 10 * s), (1, 0)]),) for b, s in SIZES}
    b, s = np.meshgrid([1, 2, 5, 90], [1, 4, 16, 200])
    bytes_ = moments_of(traces, 0).bytes(b, s)
    assert (np.diff(bytes_, axis=0) >= 0).all()
    assert (np.diff(bytes_, axis=1) >= 0).all()
    assert all(of.peak_bytes <= float(moments_of(traces, 0).bytes(*size)) + 1 for size, (of,) in traces.items())


def test_a_part_that_no_longer_batch_needs_is_no_moment_of_its_own() -> None:
    moments = Moments(np.array([[0.0, 3, 0, 0, 0, 0], [0.0, 0, 0, 1, 0, 0]]))
    assert moments.bytes(2, [1, 3, 5]).tolist() == [6, 6, 10]
    assert moments.bytes([0, 1], 0).tolist() == [3, 3]  # as one sample of one token


def test_too_few_traces_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 7 traces"):
        moments_of({(2, s): (made([(1, s)]),) for s in range(1, 9)}, 0)
