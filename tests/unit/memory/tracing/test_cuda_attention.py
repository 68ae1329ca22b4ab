"""Which kernel CUDA takes for attention, and what it keeps; byte for byte beside the allocator on a simulated card."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainauto.memory.tracing.cuda_attention import kernel_of
from trainauto.memory.tracing.cuda_in_thread import as_on_cuda
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.libraries import Hardware, planned_for

T4, ADA, H100 = Hardware.of((7, 5), 40), Hardware.of((8, 9), 128), Hardware.of((9, 0), 132)
HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32


def heads(dtype: torch.dtype, length: int = 64, size: int = 32, number: int = 4) -> Tensor:
    return torch.empty(2, number, length, size, dtype=dtype, device="meta", requires_grad=True)


def kernel(query: Tensor, key: Tensor | None = None, value: Tensor | None = None, **settings: object) -> str:
    mask, dropout = settings.get("mask"), settings.get("dropout", 0.0)
    key = query if key is None else key
    given = (query, key, key if value is None else value, mask, dropout, settings.get("is_causal", False))
    return kernel_of(*given, settings.get("is_grouped", False))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("card", "query", "settings", "expected"),
    [
        (ADA, heads(HALF), {}, "flash"),
        (ADA, heads(FULL), {}, "efficient"),
        (ADA, heads(FULL, size=6), {}, "math"),
        (T4, heads(FULL, size=6), {}, "efficient"),
        (T4, heads(HALF), {}, "efficient"),
        (T4, heads(BRAIN), {}, "math"),
        (ADA, heads(HALF, size=256), {"dropout": 0.1}, "efficient"),
        (H100, heads(HALF, size=256), {"dropout": 0.1}, "flash"),
        (ADA, heads(HALF, size=264), {}, "efficient"),
        (ADA, heads(HALF), {"mask": heads(HALF, 64, 64)}, "efficient"),
        (ADA, heads(HALF, size=30), {}, "flash"),
        (ADA, heads(HALF, size=30), {"mask": heads(HALF, 64, 64)}, "math"),
        (ADA, heads(HALF), {"key": heads(HALF, 32), "is_causal": True}, "efficient"),
        (ADA, heads(HALF), {"value": heads(HALF, size=16)}, "efficient"),
        (ADA, heads(HALF).transpose(2, 3), {}, "math"),
        (ADA, heads(HALF)[0], {}, "math"),
        (ADA, heads(HALF), {"key": heads(HALF, number=2)}, "math"),
        (ADA, heads(HALF), {"key": heads(HALF, number=2), "is_grouped": True}, "flash"),
        (ADA, heads(torch.float64), {}, "math"),
    ],
)
def test_the_kernel_is_the_one_that_cuda_takes(
    card: Hardware, query: Tensor, settings: dict[str, object], expected: str
) -> None:
    with planned_for(card):
        assert kernel(query, **settings) == expected  # type: ignore[arg-type]


def test_what_code_allows_decides() -> None:
    half = heads(HALF)
    with planned_for(H100):
        for allowed, expected in {
            (SDPBackend.EFFICIENT_ATTENTION,): "efficient",
            (SDPBackend.CUDNN_ATTENTION,): "efficient",
            (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH): "efficient",
            (SDPBackend.MATH,): "math",
        }.items():
            with sdpa_kernel(list(allowed)):
                assert kernel(half) == expected
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
            kernel(heads(FULL))


@pytest.mark.parametrize("kind", [torch.bool, HALF])
@pytest.mark.parametrize("kept", [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
def test_it_gives_what_torch_gives_and_gradients_of_a_trained_bias(kind: torch.dtype, kept: SDPBackend) -> None:
    """Shapes, formats and gradients, with heads that share keys where the kernel takes such."""
    with as_on_cuda(), fake_world(), sdpa_kernel(kept):
        query, key, value = (torch.empty(2, 4, length, 32, dtype=HALF, requires_grad=True) for length in (63, 50, 50))
        mask = torch.empty(63, 50, dtype=kind, requires_grad=kind == HALF)
        result = functional.scaled_dot_product_attention(query, key, value, mask, 0.1)
        trained = [query, key, value, *([mask] if kind == HALF else [])]
        gradients = torch.autograd.grad(result.float().sum(), trained)
    assert (result.shape, result.dtype) == (query.shape, HALF)
    assert [gradient.shape for gradient in gradients] == [tensor.shape for tensor in trained]
