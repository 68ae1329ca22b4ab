"""Stand-ins of layers in 4 bits take what bitsandbytes' layers take, block by block."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from tests.four_bits import needs_bitsandbytes
from trainauto.memory.tracing.fake_tensors import fake_copy, fake_world
from trainauto.memory.tracing.four_bit_linear import FourBitLinear, empty_weights, four_bit_layers, kept_tensors
from trainauto.memory.tracing.profiler_events import profiled
from trainauto.memory.tracing.trace import trace

ROWS, COLUMNS, SAMPLES = 320, 256, 24
LEAST_BYTES = 4096
WEIGHTS = ROWS * COLUMNS

Step = Callable[[], None]


class Layer(NamedTuple):
    """How a layer is, and what is asked of it.

    Attributes:
        compute: the format that it computes in.
        given: the format of its input.
        bias: it has one.
        nested: its statistics are quantised, too.
        settled: both passes unpack into the same format.
    """

    compute: torch.dtype = torch.float32
    given: torch.dtype = torch.float32
    bias: bool = False
    nested: bool = True
    settled: bool = True

    def step_of(self, layer: nn.Module) -> Step:
        """Return a forward and a backward pass."""
        weight = torch.ones(SAMPLES, COLUMNS, dtype=self.given, requires_grad=True)

        def step() -> None:
            weight.grad = None
            layer(weight.tanh().view(2, -1, COLUMNS)).sum().backward()

        return step


F32, F16 = torch.float32, torch.bfloat16

LAYERS: dict[str, Layer] = {
    "float32": Layer(),
    "float32 and a bias": Layer(bias=True),
    "bfloat16": Layer(F16, F16),
    "cast to bfloat16": Layer(F16, bias=True),
    "unpacked into one format, multiplied in another": Layer(F16, settled=False),
    "statistics as they are": Layer(nested=False),
}

NOTED = {
    "float32": """
        -24576 24576 5120 5120 -5120 327680 30720 -5120 -327680 -30720 5120 327680 -5120 24576 -327680 24576
        -24576 -24576
    """,
    "bfloat16": """
        -12288 12288 5120 5120 -5120 163840 15360 -5120 -163840 -15360 5120 163840 -5120 12288 -163840 12288
        -12288 -12288
    """,
    "cast to bfloat16": """
        -24576 24576 12288 5120 5120 -5120 163840 15360 -5120 -163840 30720 -15360 -12288 -30720 15360 5120
        163840 -5120 12288 -163840 -15360 24576 -12288 24576 -24576 -24576
    """,
    "unpacked into one format, multiplied in another": """
        -24576 24576 12288 5120 5120 -5120 163840 15360 -5120 -163840 30720 -15360 -12288 -30720 15360 5120
        327680 -5120 163840 -327680 12288 -163840 -15360 24576 -12288 24576 -24576 -24576
    """,
    "statistics as they are": """
        -24576 24576 327680 30720 -327680 -30720 327680 24576 -327680 24576 -24576 -24576
    """,
}
"""Bytes that are taken and given back, in order, in a step of bitsandbytes 0.50.2 and torch 2.13 on the CPU."""

GOLDEN = {name: [int(size) for size in sizes.split()] for name, sizes in NOTED.items()}
GOLDEN["float32 and a bias"] = GOLDEN["float32"]


def real_layer(how: Layer) -> Any:
    import bitsandbytes

    arguments = {"compute_dtype": how.compute, "compress_statistics": how.nested, "quant_type": "nf4"}
    layer = bitsandbytes.nn.Linear4bit(COLUMNS, ROWS, bias=how.bias, **arguments).to("cpu")
    layer.support_avx512bf16_for_cpu = False
    if how.settled:
        layer.weight.quant_state.dtype = how.compute
    return layer.requires_grad_(False)


def stand_in(how: Layer) -> FourBitLinear:
    kept = empty_weights(ROWS, COLUMNS, torch.empty(0))
    if not how.nested:
        kept = {"packed": kept["packed"], "absmax": torch.empty(WEIGHTS // 64), "code": kept["code"]}
    bias = nn.Parameter(torch.empty(ROWS), requires_grad=False) if how.bias else None
    return FourBitLinear(ROWS, COLUMNS, kept, bias, how.compute, how.compute if how.settled else F32)


def large(sizes: list[int]) -> list[int]:
    return [size for size in sizes if abs(size) >= LEAST_BYTES]


def traced(how: Layer, make: Callable[[Layer], nn.Module]) -> list[int]:
    real = make(how)
    with fake_world() as mode:
        layer = fake_copy(real, mode, {})
        return large(trace(how.step_of(layer), held=[layer]).sizes())


@pytest.mark.parametrize("name", LAYERS)
def test_a_step_takes_what_was_noted_of_a_real_one(name: str) -> None:
    assert traced(LAYERS[name], stand_in) == GOLDEN[name]


@needs_bitsandbytes
@pytest.mark.parametrize("name", LAYERS)
def test_a_step_takes_what_a_real_one_takes(name: str) -> None:
    how = LAYERS[name]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step = how.step_of(real_layer(how))
        _, events = profiled(step, step)
    finally:
        torch.set_num_threads(threads)
    assert large([event.size_bytes for event in events if event.is_tensor]) == GOLDEN[name]
    assert traced(how, real_layer) == GOLDEN[name]


@needs_bitsandbytes
@pytest.mark.parametrize("name", LAYERS)
def test_a_copy_keeps_what_a_real_layer_keeps(name: str) -> None:
    real = real_layer(LAYERS[name])
    with fake_world() as mode:
        (copied,) = four_bit_layers(fake_copy(nn.Sequential(real, nn.Linear(2, 2)), mode, {}))
        assert {key: (one.shape, one.dtype) for key, one in kept_tensors(copied).items()} == {
            key: (one.shape, one.dtype) for key, one in kept_tensors(real).items()
        }
    assert type(real).__name__ == "Linear4bit"
    made = stand_in(LAYERS[name])
    assert {key: (one.shape, one.dtype) for key, one in kept_tensors(made).items()} == {
        key: (one.shape, one.dtype) for key, one in kept_tensors(real).items()
    }
