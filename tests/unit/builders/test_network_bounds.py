"""Networks that are too large are refused while they are built."""

import pytest
import torch
from torch import nn

from trainauto.builders import network_bounds
from trainauto.builders.network_bounds import within_reason
from trainauto.core.errors import InputError


def test_weights_that_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_bounds, "free_memory_bytes", lambda: 2**20)
    with pytest.raises(InputError, match=r"more than 0\.5 MiB of weights"), within_reason("network 'x'"):
        nn.Linear(512, 512)
    with within_reason("network 'x'"), torch.device("meta"):
        nn.Linear(512, 512)
    nn.Linear(512, 512)


def test_parts_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_bounds, "MOST_TENSORS", 10)
    with pytest.raises(InputError, match="more than 10 tensors"), within_reason("network 'x'"):
        nn.Sequential(*(nn.Linear(1, 1) for _ in range(10**8)))


def test_what_no_machine_has() -> None:
    with pytest.raises(InputError, match="network 'x' does not fit the memory"), within_reason("network 'x'"):
        torch.empty(2**50)
    with pytest.raises(RuntimeError, match="another"), within_reason("network 'x'"):
        raise RuntimeError("another")
