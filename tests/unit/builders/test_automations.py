"""Automations as an option file asks for them, with what fills in where it is silent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.commands import tiny_options
from trainauto.automations import AUTOMATIONS, Automation, DynamicBatchSizeOptimizer, PlanSchedule
from trainauto.builders import automations
from trainauto.builders.automations import build_automations, is_controller
from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, Plan
from trainauto.core.run_events import DETAIL
from trainauto.options.cards import find_card
from trainauto.options.load import LoadedOptions, load_options
from trainauto.storage.run_metadata import as_yaml

NAME = "DynamicBatchSizeOptimizer"
AXES = (Axis("lq_size", "px", 1, 96, power=2), Axis("batch_size", "samples", 1, 1024))
FACTS = RunFacts(AXES, Plan.of(lq_size=16, batch_size=4))
Built = tuple[list[Automation], LoadedOptions]
Build = Callable[..., Built]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def built(controller: dict[str, Any], budget: str | None = "60MiB", name: str = NAME, **others: Any) -> Built:
        options = tiny_options(tmp_path, training_automations={name: controller, **others})
        if budget:
            options["memory"] = {"cpu_budget": budget}
        file = tmp_path / "run.yml"
        file.write_text(as_yaml(options).replace('"', ""))
        return build_automations(load_options(file), FACTS, torch.device("cpu"))

    return built


def block(build: Build, controller: dict[str, Any], **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        build(controller, **more)
    return str(caught.value)


@pytest.mark.parametrize("budget", ["60MiB", None])
def test_options_hold_every_argument_that_is_in_force(build: Build, budget: str | None) -> None:
    given = {"min_lq_size": 64, "adjustment_frequency": 7}
    (built,), resolved = build(given, budget, name="dynamic_batch_size_optimizer")
    assert isinstance(built, DynamicBatchSizeOptimizer)
    switch = resolved.options.training_automations.active[NAME]
    assert switch.arguments == {
        "target_vram_usage": 0.55 if budget else 0.85,
        "safety_margin": 0.05,
        "adjustment_frequency": 7,
        "min_batch_size": 1 if budget else 2,
        "max_batch_size": 4 if budget else 64,
        "min_lq_size": 64,
        "max_lq_size": 64 if budget else 256,
        "vram_history_size": 50,
        "max_adjustments": 100,
        "policy": "jump",
        "objective": "memory",
        "target_batch_size": None,
        "target_may_grow": False,
        "warmup_period": False,
    }
    assert (built.target_vram_usage, built.adjustment_frequency) == (0.55 if budget else 0.85, 7)
    written = {key.rpartition(".")[2] for key in resolved.unwritten} ^ switch.arguments.keys()
    assert written == given.keys()
    assert all(key.startswith(f"training_automations.{NAME}.") for key in resolved.unwritten)


def test_a_card_gives_its_preset(
    build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    card = find_card("NVIDIA GeForce RTX 4090", 24 * 2**30)
    monkeypatch.setattr(automations, "preset_for", lambda _device, _budget_bytes: card)
    with caplog.at_level(DETAIL):
        (built,), resolved = build({"max_batch_size": 2})
    assert isinstance(built, DynamicBatchSizeOptimizer)
    assert built.target_vram_usage == 0.9
    arguments = resolved.options.training_automations.active[NAME].arguments
    assert [arguments[f"{end}_{axis}"] for axis in ("lq_size", "batch_size") for end in ("min", "max")] == [
        16,
        512,
        2,
        2,
    ]
    assert "memory preset: RTX 4090 24GB (documented: traiNNer-redux" in caplog.text
    assert "min_batch_size 2 (preset 4, moved to suit the file), max_batch_size 2 (file)" in caplog.text


def test_an_automation_of_a_plugin_gets_what_it_takes(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Automation):
        def __init__(self, max_lq_size: int | None, min_lq_size: int = 3, width: float = 1.5) -> None:
            self.taken = (max_lq_size, min_lq_size, width)

    for table, entry in (("_entries", Mine), ("_shown", "Mine")):
        monkeypatch.setitem(getattr(AUTOMATIONS, table), "mine", entry)
    arguments = []
    for given in ({}, {"min_lq_size": 64}, {"max_lq_size": None}):
        (built,), resolved = build(given, name="Mine")
        arguments.append(resolved.options.training_automations.active["Mine"].arguments)
        assert tuple(arguments[-1][name] for name in ("max_lq_size", "min_lq_size", "width")) == vars(built)["taken"]
    assert [one["max_lq_size"] for one in arguments] == [16, 64, None]


def test_what_does_not_run_stays_as_it_is_given(build: Build) -> None:
    built, resolved = build({"enabled": False, "max_lq_size": 8}, plan_schedule={"changes": [{"step": 3}]})
    assert [type(one) for one in built] == [PlanSchedule]
    assert resolved.options.model_dump()["training_automations"] == {
        "enabled": True,
        NAME: {"enabled": False, "max_lq_size": 8},
        "PlanSchedule": {"enabled": True, "changes": [{"step": 3}]},
    }
    assert not resolved.unwritten


@pytest.mark.parametrize("budget", ["60MiB", None])
def test_a_misspelt_key_beside_a_preset_gets_its_suggestion(build: Build, budget: str | None) -> None:
    said = block(build, {"max_batchsize": 32}, budget=budget)
    assert (
        ":5: automation 'DynamicBatchSizeOptimizer' has no argument 'max_batchsize'\n        max_batchsize: 32\n"
        in said
    )
    assert "Did you mean 'max_batch_size'?" in said


@pytest.mark.parametrize(
    ("controller", "shown", "what"),
    [
        ({"max_lq_size": 16, "min_lq_size": 32}, "max_lq_size: 16", "max_lq_size 16 is below min_lq_size 32"),
        ({"max_batch_size": 1, "min_batch_size": 2}, "max_batch_size: 1", "max_batch_size 1 is below min_batch_size 2"),
        (
            {"safety_margin": 0.5, "target_vram_usage": 0.5},
            "safety_margin: 0.5",
            "safety_margin must lie in [0, target",
        ),
        ({"target_vram_usage": 85}, "target_vram_usage: 85", "got 85; did you mean 0.85, 85 per cent?"),
        ({"min_lq_size": 128}, "min_lq_size: 128", "no lq_size lies in 128..128"),
    ],
)
def test_written_bounds_that_contradict_are_refused_where_they_stand(
    build: Build, controller: dict[str, Any], shown: str, what: str
) -> None:
    said = block(build, controller)
    first, line, caret = said.splitlines()[:3]
    assert what in first
    column = 5 + shown.index(" ") + 1
    assert f"run.yml:{first.split(':')[1]}:{column}: " in first
    assert (line, caret) == (f"        {shown}", " " * (3 + column) + "^")


def test_a_wrong_type_is_one_problem_of_its_own(build: Build) -> None:
    assert "min_lq_size takes a whole number, but 'many' is text" in block(build, {"min_lq_size": "many"})


def test_only_what_steers_by_memory_is_a_controller() -> None:
    assert [is_controller(name) for name in ("dynamic_batch_size_optimizer", "PlanSchedule", "Unknown")] == [
        True,
        False,
        False,
    ]
