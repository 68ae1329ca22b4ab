"""Memory is read, capped and given back on the card of the run, by one reader (no card is needed to see that)."""

import ast
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import trainauto
from trainauto.builders.memory import preset_for
from trainauto.builders.precision import choose_precision
from trainauto.builders.summary import device_name
from trainauto.engine.snapshot import StepSnapshot
from trainauto.memory.monitor import budget
from trainauto.memory.monitor.device_use import HEADROOM_BYTES
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.release import release_memory
from trainauto.options.load import load_options

PACKAGE = Path(trainauto.__file__).parent
OPTIONS = Path(__file__).parents[3] / "assets" / "valid_options.yml"
SECOND_CARD = torch.device("cuda", 1)
GIB = 2**30

TAKES_NO_DEVICE = {
    *("is_available", "device_count", "current_device"),
    *("get_rng_state_all", "set_rng_state_all"),
    "memory_snapshot",  # of every card; each segment says which
    "empty_cache",  # gives back what this process has cached, on every card
}


@cache
def calls() -> list[tuple[str, ast.Call]]:
    return [
        (f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}", node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]


def test_every_call_about_a_card_says_which() -> None:
    """Fault 13: device 0 was hard-coded. That ranks agree on a plan belongs to the issue that brings ranks."""
    found = 0
    for place, call in calls():
        called, arguments = ast.unparse(call.func), [*call.args, *(keyword.value for keyword in call.keywords)]
        given = [ast.unparse(argument) for argument in arguments]
        where = f"{place}: {ast.unparse(call)}"
        room, _, name = called.rpartition(".")
        if room == "torch.cuda" and name not in TAKES_NO_DEVICE:
            found += 1
            assert any("device" in argument for argument in given), where
        if called == "torch.device" and given[0] == "'cuda'":
            assert len(given) == 2, where
            assert not given[1].isdigit(), where
        assert name != "cuda", where  # .cuda() takes the current card
        assert not any(argument.startswith("'cuda:") for argument in given), where
    assert found >= 8


def test_the_meter_alone_begins_peaks_afresh_and_the_loop_alone_opens_its_windows() -> None:
    """Fault 7: logger and automation shared one peak counter, which each of them reset for the other."""
    resets = {place.split(":")[0] for place, call in calls() if "reset_peak" in ast.unparse(call.func)}
    windows = {place.split(":")[0] for place, call in calls() if ast.unparse(call.func).endswith("meter.window")}
    # Benchmarks of plans have a process of their own and no loop; plans and tiles are measured before the first
    # batch is drawn, and validation runs between steps. A function over texts is its own loop.
    others = {
        "forecast/benchmark_steps.py",
        "inference/upscale.py",
        "engine/probe.py",
        "engine/validation_room.py",
        "tasks/text/map_texts.py",
        "tasks/text/measured_cost.py",
        "integrations/huggingface/evaluation.py",
    }
    assert (resets, windows) == ({"memory/monitor/meter.py"}, {"engine/loop.py", "engine/run_validation.py", *others})
    readers = {place.split(":")[0] for place, call in calls() if ".max_memory_" in ast.unparse(call.func)}
    assert readers <= {"memory/monitor/meter.py"}
    for package in ("reporting", "automations", "control"):
        for path in (PACKAGE / package).glob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert "torch.cuda" not in text, path
            # In a loop of one's own there is no engine, and the controller has the only meter.
            assert "monitor.meter" not in text or path.name == "own_loop.py", path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Stand in for the driver: note which card each question is about."""
    answers: dict[str, Any] = {
        "get_device_properties": SimpleNamespace(total_memory=12 * GIB, name="NVIDIA GeForce RTX 3060", uuid="second"),
        "memory_stats": {
            "allocated_bytes.all.peak": 5 * GIB,
            "allocated_bytes.all.current": 2 * GIB,
            "reserved_bytes.all.peak": 6 * GIB,
            "reserved_bytes.all.current": 4 * GIB,
            "num_alloc_retries": 3,
        },
        "mem_get_info": (5 * GIB, 12 * GIB),
        "memory_allocated": 2 * GIB,
        "get_rng_state": torch.get_rng_state(),
        **dict.fromkeys(("reset_peak_memory_stats", "set_per_process_memory_fraction", "set_rng_state")),
    }
    seen: list[tuple[str, Any]] = []

    def standing_in(name: str) -> Any:
        def answer(*arguments: Any, device: Any = None) -> Any:
            cards = [argument for argument in (*arguments, device) if isinstance(argument, torch.device)]
            seen.append((name, cards[0] if cards else None))
            return answers[name]

        return answer

    for name in answers:
        monkeypatch.setattr(torch.cuda, name, standing_in(name))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)  # asked only where there is a card
    return seen


def test_the_second_card_is_asked_about_the_second_card(asked: list[tuple[str, Any]]) -> None:
    """Fault 13: as above, for what is passed on. E02, E03: the allocator's own peak, of that card."""
    meter = MemoryMeter(SECOND_CARD)
    with meter.window() as window:
        pass
    assert meter.limit_bytes == 12 * GIB
    assert meter.now_bytes() == 2 * GIB
    reading = window.reading
    assert reading is not None
    assert (reading.allocated, reading.reserved, reading.current) == (5 * GIB, 6 * GIB, 2 * GIB)
    assert (reading.device_used, reading.limit, reading.alloc_retries) == (7 * GIB, 12 * GIB, 0)
    assert reading.available == 9 * GIB - HEADROOM_BYTES  # others hold 3 GiB
    assert budget.enforce(6 * GIB, SECOND_CARD)
    snapshot = StepSnapshot([nn.Conv2d(1, 1, 1)], SECOND_CARD)
    snapshot.take()
    snapshot.restore()
    release_memory(SECOND_CARD)
    meter.cap_at_available()
    meter.lift_limit()
    preset = preset_for(SECOND_CARD, None)
    assert preset is not None
    assert preset.name == "RTX 3060 12GB"
    assert "cuda:1 NVIDIA" in device_name(SECOND_CARD)
    assert {name for name, _ in asked} == {
        *("get_device_properties", "memory_stats", "mem_get_info", "memory_allocated", "get_rng_state"),
        *("reset_peak_memory_stats", "set_per_process_memory_fraction", "set_rng_state"),
    }
    assert {card for _, card in asked} == {SECOND_CARD}


def test_a_run_takes_the_card_that_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 13: a process that was given the second card trains there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda wanted: None)  # loads a compiler, for seconds
    assert choose_precision(load_options(OPTIONS, ["device=auto"])).device == SECOND_CARD
