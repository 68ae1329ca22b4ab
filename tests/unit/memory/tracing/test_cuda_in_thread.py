"""The CPU does as CUDA does in one thread and for a while; everybody else, and everything after, is as before."""

import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import optimizer as grouping
from torch.optim.optimizer import _default_to_fused_or_foreach

from trainauto.memory.tracing.cuda_in_thread import as_on_cuda
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.trace import trace

LOW = torch.bfloat16


def seen() -> dict[str, Any]:
    """Return what tells both apart: types under autocast, what is kept for backward, how optimizers group."""
    rows = torch.ones(4, 8)
    wide = torch.ones(2, 2, 16, 8, requires_grad=True)
    weight = nn.Parameter(torch.ones(8, 8))
    with torch.autocast("cpu", LOW):
        types = [rows.to(LOW).exp().dtype, F.mse_loss(rows.to(LOW), rows.to(LOW)).dtype, F.linear(rows, weight).dtype]
        norms = [F.layer_norm(rows.to(LOW), (8,)).dtype, torch.cat([rows, rows.to(LOW)]).dtype]
    kept = F.dropout(wide, 0.5).grad_fn
    grouped = _default_to_fused_or_foreach([weight], False)
    return {"types": types, "norms": norms, "dropout": type(kept).__name__, "grouped": grouped}


def test_only_within_and_only_in_the_thread_that_entered() -> None:
    before = seen()
    within: dict[str, Any] = {}
    elsewhere: dict[str, Any] = {}
    with as_on_cuda():
        within.update(seen())
        thread = threading.Thread(target=lambda: elsewhere.update(seen()))
        thread.start()
        thread.join(timeout=60)
        with as_on_cuda():
            assert seen() == within
        assert seen() == within
    assert elsewhere == before
    assert within["types"] == [torch.float32, torch.float32, LOW]
    assert before["types"] != within["types"]
    assert (before["dropout"], within["dropout"]) == ("MulBackward0", "NativeDropoutBackward0")
    assert within["grouped"] != before["grouped"]
    assert seen() == before


def test_another_thread_computes_what_it_would_have() -> None:
    """Values and gradients, with autocast and dropout, bit for bit."""

    def result() -> list[Tensor]:
        torch.manual_seed(3)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        rows = torch.randn(2, 5, 16)
        with torch.autocast("cpu", LOW):
            out = layer(rows)
            loss = F.mse_loss(out, rows) + F.batch_norm(out.transpose(1, 2), None, None, training=True).sum()
        loss.backward()
        return [out.detach(), *(weight.grad for weight in layer.parameters() if weight.grad is not None)]

    expected, given = result(), []
    with as_on_cuda():
        thread = threading.Thread(target=lambda: given.extend(result()))
        thread.start()
        thread.join(timeout=60)
    assert len(given) == len(expected) > 10
    assert all(torch.equal(a, b) for a, b in zip(given, expected, strict=True))


def test_a_failure_within_leaves_nothing_behind() -> None:
    before, replaced = seen(), (torch.clear_autocast_cache, grouping._get_foreach_kernels_supported_devices)
    with pytest.raises(KeyError), as_on_cuda():
        raise KeyError
    assert seen() == before
    assert (torch.clear_autocast_cache, grouping._get_foreach_kernels_supported_devices) == replaced


def test_what_a_step_keeps_is_what_a_card_keeps() -> None:
    """A mask of a byte an element, not of four."""

    def peak() -> int:
        with fake_world():
            rows = torch.ones(64, 64, requires_grad=True)
            return trace(lambda: F.dropout(rows, 0.5).sum().backward(), steps=1).peak_bytes

    on_cpu = peak()
    with as_on_cuda():
        on_card = peak()
    assert on_cpu - on_card >= 3 * 64 * 64
