"""Compares attention as a trace on the CPU follows it with what the card's own takes, on random calls.

    python attention.py SEED CALLS

Each call is one of random shapes, formats, masks and allowed kernels; its forward and backward pass are traced, then
run. Prints how often each kernel was taken, as JSON; fails at the first that differs.
"""

import contextlib
import gc
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainauto.memory.tracing.cuda_attention import kernel_of
from trainauto.memory.tracing.cuda_in_thread import as_on_cuda
from trainauto.memory.tracing.fake_tensors import fake_world, warm_up
from trainauto.memory.tracing.libraries import AMPERE, card_hardware, card_libraries
from trainauto.memory.tracing.trace import trace

NAMES = {
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.MATH: "math",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}
CUDNN_LAST = "TORCH_CUDNN_SDPA_DEPRIORITIZED"
"""Set, torch prefers its own kernels on Hopper, too: cuDNN is not simulated."""
WAIT_S = 0.02
"""Backward's thread lets go of the last tensors after the call that waits for it has returned."""
SMALL = 0.002
"""Counters and states of random generators, as a share of the peak, beside 8 KiB."""


@dataclass(frozen=True)
class Call:
    """A call of attention, its tensors unmade."""

    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    dtype: torch.dtype
    is_turned: bool
    mask: tuple[tuple[int, ...], torch.dtype, bool] | None
    dropout: float
    is_causal: bool
    is_grouped: bool
    allowed: tuple[SDPBackend, ...]

    def made(self, device: str) -> tuple[list[Tensor], Tensor | None]:
        """Return queries, keys and values, and the mask."""
        given = []
        for batch, heads, length, size in self.shapes:
            shape = (batch, length, heads, size) if self.is_turned else (batch, heads, length, size)
            tensor = torch.empty(shape, dtype=self.dtype, device=device, requires_grad=True)
            given.append(tensor.transpose(1, 2) if self.is_turned else tensor)
        if self.mask is None:
            return given, None
        shape, dtype, trains = self.mask
        return given, torch.empty(shape, dtype=dtype, device=device, requires_grad=trains)

    def kernels(self) -> contextlib.AbstractContextManager[None]:
        """Allow what it allows; all where it names nothing."""
        return sdpa_kernel(list(self.allowed)) if self.allowed else contextlib.nullcontext()

    def attended(self, given: list[Tensor], mask: Tensor | None) -> Tensor:
        """Call it."""
        with self.kernels():
            return functional.scaled_dot_product_attention(
                *given, mask, self.dropout, self.is_causal, enable_gqa=self.is_grouped
            )

    def step(self, given: list[Tensor], mask: Tensor | None) -> Callable[[], None]:
        """Return a step: forward and backward."""

        def step() -> None:
            result = self.attended(given, mask)
            sources = [*given, *([mask] if mask is not None and mask.requires_grad else [])]
            torch.autograd.grad(result, sources, torch.empty_like(result))

        return step


def drawn(dice: random.Random) -> Call:
    """Return a random call."""
    batch, heads, length = dice.choice((1, 3, 8)), dice.choice((2, 4, 8)), dice.choice((64, 100, 257, 512))
    size = dice.choice((6, 30, 32, 64, 72, 128, 200, 256, 264))
    keys = dice.choice((length, length, 77))
    is_grouped = dice.random() < 0.2
    few = dice.choice((heads // 2, heads)) if is_grouped else heads
    value_size = size if dice.random() < 0.85 else size // 2
    dtype = dice.choice((torch.float32, torch.float16, torch.bfloat16))
    mask = None
    if dice.random() < 0.5:
        shape = dice.choice(((length, keys), (batch, 1, length, keys), (batch, heads, length, keys)))
        kind = dice.choice((torch.bool, dtype))
        mask = (shape, kind, kind != torch.bool and dice.random() < 0.4)
    allowed = dice.choice(
        (
            (),
            (),
            (),
            (SDPBackend.MATH,),
            (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH),
            (SDPBackend.FLASH_ATTENTION,),
        )
    )
    return Call(
        ((batch, heads, length, size), (batch, few, keys, size), (batch, few, keys, value_size)),
        dtype,
        dice.random() < 0.5,
        mask,
        dice.choice((0.0, 0.0, 0.1)),
        mask is None and dice.random() < 0.4,
        is_grouped,
        allowed,
    )


def traced(call: Call) -> int:
    """Return the most that a call holds beyond what was there before, by a trace on fake tensors of the CPU."""
    with as_on_cuda(), fake_world():
        given, mask = call.made("cpu")
        held = [*given, *([] if mask is None else [mask])]
        found = trace(call.step(given, mask), held=held, libraries=card_libraries())
    return found.peak_bytes - found.persistent_bytes


def taken(call: Call) -> int:
    """Return the same of a call on the card."""
    given, mask = call.made("cuda")
    step = call.step(given, mask)
    step()
    gc.collect()
    time.sleep(WAIT_S)
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    step()
    return int(torch.cuda.memory_stats()["requested_bytes.all.peak"] - before)


def chosen(call: Call) -> str | None:
    """Return the kernel that torch takes on the card; ``None`` where it takes none."""
    given, mask = call.made("cuda")
    with call.kernels():
        try:
            number = torch._fused_sdp_choice(*given, mask, call.dropout, call.is_causal, enable_gqa=call.is_grouped)
        except RuntimeError:
            return None
    return NAMES[SDPBackend(number)]


def predicted(call: Call) -> str | None:
    """Return the kernel that a trace takes."""
    given, mask = call.made("cpu")
    with call.kernels():
        try:
            return kernel_of(*given, mask, call.dropout, call.is_causal, call.is_grouped)
        except RuntimeError:
            return None


def main(seed: int, calls: int) -> None:
    """Compare, call after call."""
    warm_up()
    dice, kernels = random.Random(seed), Counter[str | None]()
    while kernels.total() < calls:
        call = drawn(dice)
        kernel = chosen(call)
        assert predicted(call) == kernel, f"{predicted(call)}, not {kernel}: {call}"
        if kernel is not None and (call.dtype != torch.bfloat16 or card_hardware().capability >= AMPERE):
            expected, real = traced(call), taken(call)
            assert abs(real - expected) <= SMALL * real + 8192, f"{kernel}: {expected} bytes, not {real}: {call}"
        kernels[kernel] += 1
    print(json.dumps(kernels), flush=True)
    os._exit(0)  # see kernel_buffers.py


if __name__ == "__main__":
    os.environ[CUDNN_LAST] = "1"
    main(int(sys.argv[1]), int(sys.argv[2]))
