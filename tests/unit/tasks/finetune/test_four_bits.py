"""Weights in 4 bits: what is refused where they cannot be, what they take, and that a layer stays as it was packed."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.four_bits import bitsandbytes_like, needs_bitsandbytes, packed_like
from trainauto.core.errors import InputError, Problem
from trainauto.tasks.finetune import four_bits
from trainauto.tasks.finetune.four_bits import (
    FourBits,
    bytes_in_four_bits,
    check_four_bits,
    kept_tensors,
    settle,
    weights_of,
)

CPU = FourBits(torch.device("cpu"), torch.float32)
Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Has checks find a package, of a version."""

    def installed(package: Any, version: str = "0.50.2") -> None:
        monkeypatch.setattr(four_bits, "find_spec", lambda _name: None if package is None else package)
        monkeypatch.setattr(four_bits, "_version", lambda: version)
        monkeypatch.setitem(sys.modules, "bitsandbytes", package)

    return installed


def refused(wanted: FourBits = CPU) -> Problem:
    with pytest.raises(InputError) as caught:
        check_four_bits(wanted)
    (problem,) = caught.value.problems
    assert problem.argument == "load_in_4bit"
    assert "\n" not in problem.message
    return problem


def test_without_the_package(install: Install) -> None:
    """D27: it is an extra of its own."""
    install(None)
    problem = refused()
    assert problem.message == "weights in 4 bits need the package bitsandbytes"
    assert problem.advice == 'pip install "trainauto[quantization]", or write load_in_4bit: false.'


@pytest.mark.parametrize(("version", "said"), [("0.49.1", "0.49.1"), ("", "one without a version")])
def test_an_older_package(install: Install, version: str, said: str) -> None:
    install(bitsandbytes_like(), version)
    problem = refused()
    assert problem.message == f"weights in 4 bits need bitsandbytes 0.50 or newer, and {said} is installed"
    assert "--upgrade" in problem.advice


@pytest.mark.parametrize("version", ["0.50.2", "0.51.0.dev0", "1.0"])
def test_a_package_that_works_is_taken(install: Install, version: str) -> None:
    install(bitsandbytes_like(), version)
    check_four_bits(CPU)


@pytest.mark.parametrize(
    ("package", "said"),
    [
        (bitsandbytes_like(library_error="libx.so: cannot open\nmore"), "cannot be loaded (libx.so: cannot open)"),
        (bitsandbytes_like(product_off=0.3), "the product of a small matrix of weights up to 1 is off by 0.3"),
        (bitsandbytes_like(product_off=float("nan")), "off by nan"),
        (bitsandbytes_like(gradient_off=0.0), "the gradient of a small matrix of weights up to 1 is off by 1"),
    ],
)
def test_what_it_cannot_do_here_is_said(install: Install, package: Any, said: str) -> None:
    """Issue 21: nothing is kept otherwise in silence, nor computed wrongly."""
    install(package)
    problem = refused()
    assert problem.message.startswith("bitsandbytes 0.50.2 cannot keep weights in 4 bits on this CPU: ")
    assert said in problem.message
    assert "python -m bitsandbytes" in problem.advice


def test_a_build_without_kernels_for_cards(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(bitsandbytes_like())
    monkeypatch.setattr(four_bits, "_name_of", lambda _device: "a card")
    problem = refused(FourBits(torch.device("cuda"), torch.bfloat16))
    assert problem.message.endswith("4 bits on a card: its library was built without kernels for cards")


def test_running_out_of_memory_is_no_refusal(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(bitsandbytes_like())

    def fails(_wanted: FourBits) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(four_bits, "_try_matrix", fails)
    with pytest.raises(torch.OutOfMemoryError):
        check_four_bits(CPU)


def test_what_weights_take() -> None:
    """By hand, of 96 x 48: 2304 packed, 72 blocks, one block of blocks, their mean, both codes; a bias beside."""
    model = nn.Sequential(packed_like(nn.Linear(48, 96)), nn.Linear(3, 2))
    assert [weights_of(one) for one in model.parameters()] == [96 * 48, 96, 6, 2]
    assert bytes_in_four_bits(model) == (2304 + 72 + 4 + 4 + 64 + 1024, 4 * (96 + 6 + 2))
    assert bytes_in_four_bits(model[1]) == (0, 4 * 8)


def test_layers_are_settled() -> None:
    layer = packed_like(nn.Linear(48, 96))
    settle(nn.Sequential(layer, nn.Linear(3, 2)))
    assert layer.support_avx512bf16_for_cpu is False
    assert layer.weight.quant_state.dtype == torch.bfloat16  # type: ignore[union-attr]


def real_layer(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Any:
    """A layer of bitsandbytes, as transformers makes them."""
    import bitsandbytes

    torch.manual_seed(0)
    arguments = {"compute_dtype": dtype, "compress_statistics": True, "quant_type": "nf4"}
    return bitsandbytes.nn.Linear4bit(columns, rows, bias=False, **arguments).to("cpu")


@needs_bitsandbytes
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_this_machine_is_tried(dtype: torch.dtype) -> None:
    state = torch.random.get_rng_state()
    check_four_bits(FourBits(torch.device("cpu"), dtype))
    assert torch.equal(torch.random.get_rng_state(), state)


@needs_bitsandbytes
@pytest.mark.parametrize(("rows", "columns"), [(96, 96), (33, 50), (1024, 2048)])
def test_what_a_layer_keeps(rows: int, columns: int) -> None:
    """What the stand-in of traces is to be made of."""
    kept = kept_tensors(real_layer(rows, columns))
    blocks = -(-rows * columns // 64)
    assert {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in kept.items()} == {
        "packed": ((-(-rows * columns // 2), 1), torch.uint8),
        "absmax": ((blocks,), torch.uint8),
        "nested_absmax": ((-(-blocks // 256),), torch.float32),
        "offset": ((), torch.float32),
        "code": ((16,), torch.float32),
        "nested_code": ((256,), torch.float32),
    }


@needs_bitsandbytes
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_evaluation_changes_nothing(dtype: torch.dtype) -> None:
    """On CPUs with AVX512-BF16 it would pack the weights anew, and cut what is before the layer off from gradients."""
    layer = real_layer(64, 128, dtype)
    settle(layer)
    before = {name: tensor.clone() for name, tensor in kept_tensors(layer).items()}
    inputs = torch.randn(4, 128)

    def trained() -> tuple[torch.Tensor, torch.Tensor]:
        asked = inputs.clone().requires_grad_()
        said = layer.train()(asked)
        return said.detach(), torch.autograd.grad(said.sum(), asked)[0]

    first = trained()
    with torch.inference_mode():
        evaluated = layer.eval()(inputs)
    assert torch.equal(evaluated, first[0])
    assert all(torch.equal(one, other) for one, other in zip(trained(), first, strict=True))
    after = kept_tensors(layer)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
