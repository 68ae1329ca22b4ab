"""NVML's word on a card, on a machine that has none: NVML and the driver are stood in for."""

from types import SimpleNamespace

import pynvml
import pytest
import torch

from trainauto.memory.monitor import device_use

SECOND_CARD = torch.device("cuda", 1)


@pytest.fixture(autouse=True)
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards as torch knows them; the driver says 3000 of 8000 bytes are free on the second."""
    device_use._handle.cache_clear()
    uuids = {torch.device("cuda", 0): "first", SECOND_CARD: "second"}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda card: SimpleNamespace(uuid=uuids[card]))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda card: {SECOND_CARD: (3000, 8000)}[card])
    yield
    device_use._handle.cache_clear()


def test_nvml_is_asked_for_the_very_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 13: cards are found by UUID, not by a number that CUDA_VISIBLE_DEVICES shifts."""
    starts: list[int] = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: starts.append(1))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
    used = {"GPU-first": 100, "GPU-second": 4242}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle, version: SimpleNamespace(used=used[handle]))
    assert device_use.used_bytes(SECOND_CARD) == 4242
    assert device_use.used_bytes(SECOND_CARD) == 4242
    assert len(starts) == 1


def test_without_nvml_the_driver_tells() -> None:
    """No stand-in here: this machine has no NVML, or it does not know the card's name."""
    assert device_use.used_bytes(SECOND_CARD) == 5000


def test_nvml_that_fails_in_mid_run_is_no_failure_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(handle: object, version: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lost)
    assert device_use.used_bytes(SECOND_CARD) == 5000
