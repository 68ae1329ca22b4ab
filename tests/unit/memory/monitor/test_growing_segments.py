"""Expandable segments that are switched on once torch is loaded: what torch itself then says of its settings."""

import logging
from collections.abc import Iterator

import pytest
import torch

from trainauto.core import process
from trainauto.memory.cuda_allocator.segments import planned_segments
from trainauto.memory.monitor import meter
from trainauto.memory.monitor.meter import let_segments_grow
from trainauto.memory.monitor.meter import settings_in_force as settings

CARD = torch.device("cuda", 0)


needs_a_reader = pytest.mark.skipif(
    not hasattr(torch._C, "_accelerator_getAllocatorSettings"), reason="torch 2.11 tells it where CUDA is alone"
)


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process of Linux in which torch was loaded without settings."""
    monkeypatch.setattr(meter.platform, "system", lambda: "Linux")
    for name in process.ALLOCATOR_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    before = settings()
    torch._C._accelerator_setAllocatorSettings("")
    yield
    torch._C._accelerator_setAllocatorSettings(before)


@needs_a_reader
@pytest.mark.usefixtures("untouched")
def test_torch_takes_them_up_at_run_time() -> None:
    let_segments_grow(torch.device("cpu"))
    assert settings() == ""
    let_segments_grow(CARD)
    assert settings() == "expandable_segments:True"


@needs_a_reader
@pytest.mark.usefixtures("untouched")
def test_what_was_set_too_late_in_the_environment_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", process.GROWING)
    let_segments_grow(CARD)
    assert settings() == "expandable_segments:True"


@needs_a_reader
@pytest.mark.usefixtures("untouched")
def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._C._accelerator_setAllocatorSettings("max_split_size_mb:64")  # code of the user
    let_segments_grow(CARD)
    assert settings() == "max_split_size_mb:64"
    torch._C._accelerator_setAllocatorSettings("")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False")
    let_segments_grow(CARD)
    assert settings() == ""


@needs_a_reader
@pytest.mark.usefixtures("untouched")
def test_what_lies_on_the_card_already_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: 30 * 2**20)
    with caplog.at_level(logging.INFO):
        let_segments_grow(CARD)
        let_segments_grow(CARD)
    assert len(caplog.messages) == 1
    assert "30 MiB" in caplog.text
    assert "set_environment()" in caplog.text


def test_a_plan_assumes_what_a_run_will_have() -> None:
    assert planned_segments({}, "Linux") == "expandable"
    assert planned_segments({}, "Windows") == "native"
    assert planned_segments({"PYTORCH_ALLOC_CONF": process.GROWING}, "Windows") == "native"  # what is set here itself
    assert planned_segments({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}, "Linux") == "native"
    assert planned_segments({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}, "Linux") == "native"
    both = {"PYTORCH_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:64"}
    assert planned_segments(both, "Windows") == "expandable"


def test_torch_211_tells_its_settings_in_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}
    monkeypatch.delattr(torch._C, "_accelerator_getAllocatorSettings", raising=False)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"allocator_settings": told})
    assert settings() == ""
    told["expandable_segments"] = True
    assert settings() == process.GROWING
