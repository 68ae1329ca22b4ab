"""Networks that are too large are refused while they are built."""

from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from trainauto.builders import network_bounds
from trainauto.builders.network_bounds import defaults_of, within_reason
from trainauto.core.errors import InputError


def test_weights_that_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_bounds, "free_memory_bytes", lambda: 2**20)
    with pytest.raises(InputError, match=r"more than 0\.5 MiB of weights") as caught, within(wide=512):
        nn.Linear(512, 512)
    assert caught.value.problems[0].argument == "wide"
    for without_data in (torch.device("meta"), FakeTensorMode()):
        with within(wide=512), without_data:
            nn.Linear(512, 512)
    nn.Linear(512, 512)


def test_parts_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_bounds, "MOST_TENSORS", 10)
    with pytest.raises(InputError, match="more than 10 tensors"), within():
        nn.Sequential(*(nn.Linear(1, 1) for _ in range(10**8)))


def test_what_no_machine_has() -> None:
    with pytest.raises(InputError, match="network 'x' does not fit the memory") as caught, within(wide=9, deep=40):
        torch.empty(2**50)
    assert caught.value.problems[0].argument == "deep"


@pytest.mark.parametrize(
    ("arguments", "suspect"),
    [
        ({"wide": 0, "deep": 3}, "wide"),
        ({"splits": [8], "deep": 3}, "splits"),
        ({"deep": 3}, "deep"),
        ({"wide": 5, "deep": 3}, ""),
        ({}, ""),
    ],
)
def test_what_a_constructor_fails_at_is_named_with_its_place(arguments: dict[str, Any], suspect: str) -> None:
    said = r"network 'x' cannot be made: IndexError: .*, at test_network_bounds.py:"
    with pytest.raises(InputError, match=said) as caught, within(**arguments):
        [][1]
    assert caught.value.problems[0].argument == suspect


def network(wide: int = 4, deep: int = 2, splits: tuple[int, ...] = (2, 4)) -> None: ...


def within(**arguments: Any) -> AbstractContextManager[None]:
    return within_reason("network 'x'", arguments, defaults_of(network))
