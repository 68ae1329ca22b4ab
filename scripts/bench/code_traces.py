"""What traces of code lose in the process that asks, if the CPU does not do as CUDA does there; and that they need not.

    python scripts/bench/code_traces.py

Three models, one plan each: traced with the CPU as it is, with the CPU of this thread as on CUDA (what ``plan`` does),
and in a process of its own that is as on CUDA for good (what option files are traced in). Prints a table of MiB.
"""

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainauto.core.plan import Plan
from trainauto.core.units import MIB
from trainauto.forecast import traced_code
from trainauto.forecast.plan_request import PlanRequest
from trainauto.memory.tracing.cuda_autocast import cast_as_cuda
from trainauto.memory.tracing.cuda_operators import compute_as_cuda
from trainauto.memory.tracing.fake_tensors import group_as_cuda
from trainauto.tasks.sr.archs import ARCHS


class Gpt(nn.Module):
    """Four blocks, dropout in all of them, attention fused."""

    def __init__(self, width: int = 256, words: int = 2000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.Sequential(
            *(nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True) for _ in range(4))
        )
        self.head = nn.Linear(width, words)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.blocks(self.embedding(ids)))


def classifier() -> nn.Module:
    """Return a convolutional network with batch norm, whose weights outweigh its activations."""
    layers = [(3, 256), *[(256, 256)] * 6]
    blocks = [nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in layers]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def _words(model: nn.Module, ids: Tensor) -> Tensor:
    with torch.autocast("cuda", torch.bfloat16):
        return functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


def _restored(model: nn.Module, images: tuple[Tensor, Tensor]) -> Tensor:
    with torch.autocast("cuda", torch.bfloat16):
        return functional.l1_loss(model(images[0]), images[1])


def _classes(model: nn.Module, labelled: tuple[Tensor, Tensor]) -> Tensor:
    return functional.cross_entropy(model(labelled[0]), labelled[1])


CASES: dict[str, tuple[PlanRequest, Plan]] = {
    "convolutions, batch norm, fp32": (
        PlanRequest(classifier, _classes, (("batch", 3, 8, 8), ("batch", torch.int64))),
        Plan.of(batch_size=4),
    ),
    "GPT with dropout, bf16": (
        PlanRequest(Gpt, _words, ("batch", "tokens", torch.int64), bounds={"tokens": (8, 512)}),
        Plan.of(batch_size=8, tokens=256),
    ),
    "SwinIR-light, bf16": (
        PlanRequest(
            lambda: ARCHS.get("swinir_light")(scale=2),
            _restored,
            (("batch", 3, "side", "side"), ("batch", 3, "2*side", "2*side")),
            bounds={"side": (16, 128, 8)},
        ),
        Plan.of(batch_size=4, side=48),
    ),
}


def peaks(as_on_cuda: Any = None) -> dict[str, int]:
    """Return the peak of each case, bytes; ``as_on_cuda`` takes the place of what a thread does."""
    with mock.patch.object(traced_code, "as_on_cuda", as_on_cuda) if as_on_cuda else nullcontext():
        return {name: traced_code.CodeTracer(request).trace(plan).peak_bytes for name, (request, plan) in CASES.items()}


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


def main() -> None:
    """Print the table; ``--for-good`` is the process of its own."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if "--for-good" in sys.argv:
        cast_as_cuda()
        compute_as_cuda()
        group_as_cuda()
        print(json.dumps(peaks(_as_it_is)))
        return
    command = [sys.executable, __file__, "--for-good"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for_good: dict[str, int] = json.loads(answer.splitlines()[-1])
    plain, within = peaks(_as_it_is), peaks()
    print(
        "| model | CPU as it is, MiB | as on CUDA in this thread | as on CUDA in its own process | as it is, off by |"
    )
    print("|---|---:|---:|---:|---:|")
    for name in CASES:
        columns = " | ".join(f"{found[name] / MIB:.2f}" for found in (plain, within, for_good))
        print(f"| {name} | {columns} | {plain[name] / within[name] - 1:+.1%} |")


if __name__ == "__main__":
    main()
