"""What tests of weights in 4 bits share: most need the package bitsandbytes, which the tests' environment lacks."""

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

has_bitsandbytes = find_spec("bitsandbytes") is not None
needs_bitsandbytes = pytest.mark.skipif(not has_bitsandbytes, reason="needs the package bitsandbytes")


class _NoLibrary:
    """What bitsandbytes has in place of a library that it cannot load."""

    compiled_with_cuda = False

    def __init__(self, error_msg: str) -> None:
        self.error_msg = error_msg


def bitsandbytes_like(product_off: float = 0.0, gradient_off: float = 1.0, library_error: str = "") -> Any:
    """Return what checks ask of the package, without packing anything.

    Args:
        product_off: is added to products.
        gradient_off: gradients are multiplied by it.
        library_error: why its library cannot be loaded; empty where it is.
    """
    library: Any = _NoLibrary(library_error) if library_error else SimpleNamespace(compiled_with_cuda=False)

    def packed(weight: Tensor, **_others: Any) -> tuple[Tensor, None]:
        return weight, None

    def product(inputs: Tensor, weight: Tensor, quant_state: None) -> Tensor:
        exact = inputs * gradient_off + (inputs * (1 - gradient_off)).detach()
        return exact @ weight.T + product_off

    return SimpleNamespace(
        cextension=SimpleNamespace(lib=library, ErrorHandlerMockBNBNativeLibrary=_NoLibrary),
        functional=SimpleNamespace(quantize_4bit=packed),
        matmul_4bit=product,
    )


def packed_like(layer: torch.nn.Linear) -> torch.nn.Linear:
    """Return a layer whose weight looks as one in 4 bits does, with numbers that mean nothing."""
    shape = layer.weight.shape
    blocks = -(-shape.numel() // 64)
    weight = torch.nn.Parameter(torch.zeros((shape.numel() + 1) // 2, 1, dtype=torch.uint8), requires_grad=False)
    weight.quant_state = SimpleNamespace(  # type: ignore[attr-defined]
        shape=shape,
        dtype=torch.float32,
        absmax=torch.zeros(blocks, dtype=torch.uint8),
        offset=torch.zeros(()),
        code=torch.zeros(16),
        state2=SimpleNamespace(absmax=torch.zeros(-(-blocks // 256)), code=torch.zeros(256)),
    )
    layer.weight = weight
    layer.support_avx512bf16_for_cpu = True
    layer.compute_dtype = torch.bfloat16  # type: ignore[assignment]
    return layer
