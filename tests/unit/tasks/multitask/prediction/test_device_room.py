"""Devices by name, and their memory."""

import logging
import platform
from pathlib import Path

import pytest
import torch

from trainauto.core import free_memory
from trainauto.core.cgroup import MemoryLimit
from trainauto.core.errors import InputError
from trainauto.core.units import GIB, MIB
from trainauto.tasks.multitask.prediction import device_room
from trainauto.tasks.multitask.prediction.device_room import obtainable_bytes, usable_device


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_a_card_that_is_not_there_becomes_the_cpu_and_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    device_room._say_that_the_cpu_is_taken.cache_clear()
    with caplog.at_level(logging.WARNING):
        devices = [usable_device("cuda:0") for _ in range(3)]
    assert devices == [torch.device("cpu")] * 3
    assert [record.message for record in caplog.records] == [
        "cuda:0 is not there: memory is predicted and watched on the CPU instead. This is logged once."
    ]


def test_no_device_is_refused() -> None:
    with pytest.raises(InputError, match="'gpu0' is none; write 'cuda:0' or 'cpu'"):
        usable_device("gpu0")


@pytest.mark.skipif(platform.system() != "Linux", reason="other systems do not tell")
def test_a_machine_tells_what_it_can_still_give(monkeypatch: pytest.MonkeyPatch) -> None:
    free = obtainable_bytes(torch.device("cpu"))
    assert free is not None
    assert 16 * MIB < free < 2**14 * GIB
    limit = MemoryLimit(8 * MIB, 3 * MIB, Path("group"))
    monkeypatch.setattr(free_memory, "tightest_memory_limit", lambda: limit)
    assert obtainable_bytes(torch.device("cpu")) == 5 * MIB
    monkeypatch.setattr(free_memory, "tightest_memory_limit", lambda: None)
    monkeypatch.setattr(free_memory, "MEMORY_FACTS", Path("not there"))
    assert obtainable_bytes(torch.device("cpu")) is None
