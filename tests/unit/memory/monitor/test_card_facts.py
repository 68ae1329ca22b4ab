"""Who is on a card, from lists as NVML gives them; NVML itself is stood in for where there is none."""

from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
import torch

from trainauto.memory.monitor import card_facts, driver_facts


def test_a_process_is_there_once_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "41").mkdir()
    (tmp_path / "41" / "comm").write_text("python\n")
    found = card_facts.merge_processes([(40, 300), (41, 5000), (40, 100), (42, None)], tmp_path)
    assert found == [
        {"pid": 41, "name": "python", "bytes": 5000},
        {"pid": 40, "name": None, "bytes": 300},
        {"pid": 42, "name": None, "bytes": None},
    ]


def test_nvml_that_is_not_there_is_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    assert list(driver_facts.nvml_facts()) == ["missing"]


def test_nvml_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"nvmlInit": None, "nvmlDeviceGetCount": 1, "nvmlSystemGetDriverVersion": b"570.86"}
    for name, value in {**answers, "nvmlSystemGetCudaDriverVersion_v2": 12080}.items():
        monkeypatch.setattr(pynvml, name, lambda value=value: value)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: f"Card {handle}")
    assert driver_facts.nvml_facts() == {"driver": "570.86", "cuda": 12080, "cards": ["Card 0"]}


def test_a_card_that_tells_half(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(handle: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    properties = SimpleNamespace(name="Card", total_memory=8000, major=7, minor=5)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(card_facts, "nvml_handle", lambda device: "handle")
    monkeypatch.setattr(card_facts, "used_bytes", lambda device: 6000)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetEccMode", refused)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda handle: (1, 0))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", refused)
    (card,) = card_facts.cards()
    assert (card["bf16"], card["ecc"], card["mig"], card["processes"]) == (False, None, True, None)
    monkeypatch.setattr(card_facts, "nvml_handle", lambda device: None)
    (card,) = card_facts.cards()
    assert (card["ecc"], card["mig"], card["processes"], card["used_bytes"]) == (None, None, None, 6000)
