"""Keys and spellings of the traiNNer family: automations under ``train``, and in snake_case."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainauto.automations import AUTOMATIONS, DynamicBatchSizeOptimizer
from trainauto.core.errors import InputError, Problem
from trainauto.core.registry import Registry, in_one_word
from trainauto.options.load import LoadedOptions, load_options

Loader = Callable[..., LoadedOptions]
Reporter = Callable[..., tuple[Problem, ...]]

NESTED = """name: nested
datasets:
  train: {type: GTImageDataset, dataroot_gt: a}
network_g: {type: span}
train:
  total_samples: 100
  losses: [{type: l1loss}]
  optim_g: {type: Adam}
  training_automations:
    dynamic_batch_size_optimizer:
      max_lq_size: 96
"""
ON_TOP = """training_automations:
  PlanSchedule: {enabled: false}
"""
ITEM = "train:training_automations:dynamic_batch_size_optimizer:max_lq_size=64"


def test_automations_nested_under_train_are_those_of_the_top_level(load: Loader) -> None:
    loaded = load(text=NESTED)
    assert loaded.options.training_automations.active["dynamic_batch_size_optimizer"].arguments == {"max_lq_size": 96}
    assert loaded.tree["training_automations"] == {"dynamic_batch_size_optimizer": {"max_lq_size": 96}}
    path = ("training_automations", "dynamic_batch_size_optimizer", "max_lq_size")
    place = loaded.places.of_value(path)
    assert (place.line, place.column, place.text) == (11, 20, "      max_lq_size: 96")
    assert loaded.places.of_key(path[:1]).line == 9


@pytest.mark.parametrize("text", [NESTED, NESTED.replace("  training_automations", "training_automations")])
@pytest.mark.parametrize("item", [ITEM, ITEM.removeprefix("train:")])
def test_the_command_line_reaches_them_by_either_path(load: Loader, text: str, item: str) -> None:
    loaded = load(item, text=text)
    (one,) = loaded.options.training_automations.active.values()
    assert one.arguments == {"max_lq_size": 64}
    path = ("training_automations", "dynamic_batch_size_optimizer", "max_lq_size")
    assert str(loaded.places.of_value(path)) == f"--force_yml:1:{len(item) - 1}"


def test_the_command_line_may_bring_train_as_a_whole(load: Loader) -> None:
    item = "train={total_iter: 3, losses: [{type: l1}], optim_g: {type: Adam}, training_automations: {enabled: false}}"
    loaded = load(item, text=NESTED.split("  training_automations")[0])
    assert not loaded.options.training_automations.enabled


def test_both_places_at_once_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "options.yml"
    file.write_text(NESTED + ON_TOP)
    with pytest.raises(InputError) as caught:
        load_options(file)
    assert str(caught.value) == (
        f"{file}:9:3: training_automations is there twice, at the top level ({file}:12:1) and under train\n"
        "      training_automations:\n"
        "      ^\n"
        "  Keep one of the two."
    )


@pytest.mark.parametrize(
    ("item", "what"),
    [
        ("train:training_automations:X=false", "training_automations.X takes a section of keys, but false is given"),
        ("train:training_automations=", "training_automations takes a section of keys, but nothing is given"),
        ("train:training_automations:enabled=1", "training_automations.enabled takes true or false"),
    ],
)
def test_problems_point_to_where_it_was_written(problems: Reporter, item: str, what: str) -> None:
    (problem,) = problems(item, text=NESTED)
    assert problem.message.startswith(what)
    assert problem.place is not None
    assert problem.place.text == item


def test_a_wrong_value_in_the_nested_section_is_shown_there(problems: Reporter) -> None:
    (problem,) = problems(text=NESTED.replace("      max_lq_size: 96", "      enabled: 1"))
    assert problem.place is not None
    assert (problem.place.line, problem.place.column, problem.place.text) == (11, 16, "      enabled: 1")


def test_a_misspelt_section_under_train_is_told_its_name(problems: Reporter) -> None:
    (problem,) = problems(text=NESTED.replace("training_automations", "training_automation"))
    assert problem.message == "unknown key 'training_automation' in train"
    assert problem.advice == "Did you mean 'training_automations'?"


@pytest.mark.parametrize("text", [NESTED, NESTED.replace("  training_automations", "training_automations")])
def test_the_master_switch_works_in_both_places(load: Loader, text: str) -> None:
    indent = "" if "\ntraining_automations" in text else "  "
    switched = text.replace("    dynamic", "    enabled: false\n    dynamic")
    assert load(text=text).options.training_automations.active
    assert f"\n{indent}training_automations:\n    enabled: false\n" in switched
    assert not load(text=switched).options.training_automations.active


@pytest.mark.parametrize(
    "name", ["dynamic_batch_size_optimizer", "DYNAMIC_BATCH_SIZE_OPTIMIZER", "dynamic_batchsize_optimizer"]
)
def test_names_of_automations_in_snake_case(name: str) -> None:
    assert AUTOMATIONS.get(name) is DynamicBatchSizeOptimizer
    assert name in AUTOMATIONS
    assert AUTOMATIONS.shown(name) == "DynamicBatchSizeOptimizer"


def test_unknown_automations_still_get_the_nearest_name() -> None:
    with pytest.raises(InputError, match="Did you mean 'PlanSchedule'"):
        AUTOMATIONS.get("plan_shedule")


def test_two_spellings_of_a_name_are_one_name() -> None:
    registry: Registry = Registry("gadget", spelled=in_one_word)
    registry.register("PlanSchedule", "Plans")(list)
    with pytest.raises(InputError, match="two gadgets are named 'plan_schedule'"):
        registry.register("plan_schedule")(dict)
    assert (registry.shown("PLANS"), list(registry)) == ("PlanSchedule", ["PlanSchedule"])


def test_an_automation_in_two_spellings_is_there_twice(problems: Reporter) -> None:
    text = NESTED + "    DynamicBatchSizeOptimizer: {enabled: false}\n"
    (problem,) = problems(text=text)
    assert problem.message == "automation 'DynamicBatchSizeOptimizer' is there twice"
    assert problem.place is not None
    assert problem.place.line == 12
