"""Keys in another case are refused with the right one beside them, or mean the same; none is silently ignored."""

from collections.abc import Callable
from typing import Any

import pytest

from trainauto.automations import AUTOMATIONS
from trainauto.core.errors import InputError, Problem
from trainauto.core.registry import Registry
from trainauto.optim import OPTIMIZERS, SCHEDULES
from trainauto.options.component_arguments import check_arguments
from trainauto.options.lookup import fields_of, sections
from trainauto.options.schema import Component, Options
from trainauto.options.signatures import arguments_model
from trainauto.options.yaml_file import parse_yaml
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.data import DATASETS
from trainauto.tasks.sr.losses import LOSSES
from trainauto.tasks.sr.metrics import METRICS
from trainauto.tasks.sr.models import MODELS

Problems = Callable[..., tuple[Problem, ...]]

KEYS = [(path, key) for path, section in sections(Options) if section is not Component for key in fields_of(section)]
REGISTRIES: list[Registry[Any]] = [ARCHS, LOSSES, OPTIMIZERS, SCHEDULES, METRICS, DATASETS, MODELS, AUTOMATIONS]
COMPONENTS = [(registry, name) for registry in REGISTRIES for name in registry]
CASES: tuple[Callable[[str], str], ...] = (str.upper, str.title, str.capitalize, str.swapcase)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_key_of_the_schema(problems: Problems, case: Callable[[str], str]) -> None:
    """Fault 1: a key in another case was silently ignored, and its default trained."""
    assert len(KEYS) > 50
    found = problems(*(f"{':'.join((*path, case(key)))}=1" for path, key in KEYS))
    for path, key in KEYS:
        where = f" in {'.'.join(path)}" if path else ""
        what = f"'{case(key)}' is no data set" if path == ("datasets",) else f"unknown key '{case(key)}'{where}"
        (problem,) = [problem for problem in found if problem.message == what]
        assert f"'{key}'" in problem.advice or "Write it under" in problem.advice, problem


@pytest.mark.parametrize(
    ("registry", "name"), COMPONENTS, ids=lambda part: part if isinstance(part, str) else part.kind
)
def test_every_argument_of_every_component(registry: Registry[Any], name: str) -> None:
    """Fault 1: the same for what stands beside ``type``, and for the numbers of an automation."""
    component = registry.get(name)
    arguments = fields_of(arguments_model(component, frozenset()))
    for case in CASES:
        others = {case(argument): argument for argument in arguments if case(argument) not in arguments}
        tree = parse_yaml("part:\n" + "".join(f"  {other}: 1\n" for other in others), "file.yml")
        given = tree.value["part"] or {}
        refused = {}
        try:
            check_arguments(component, given, path=("part",), places=tree.places, kind=registry.kind, name=name)
        except InputError as error:
            refused = {problem.message: problem.advice for problem in error.problems}
        for other, argument in others.items():
            assert f"'{argument}'" in refused[f"{registry.kind} '{name}' has no argument '{other}'"]


def test_names_mean_the_same_in_any_case() -> None:
    for registry in REGISTRIES:
        for name in registry:
            assert registry.get(name.upper()) is registry.get(name.lower()) is registry.get(name)


@pytest.mark.parametrize("value", ["false", "{enabled: false}", "true", "{}"])
@pytest.mark.parametrize("key", ["Enabled", "ENABLED"])
def test_the_master_switch_of_automations(problems: Problems, key: str, value: str) -> None:
    """Fault 1: beside the switch any name may stand; one that only looks like it would switch nothing off."""
    (problem,) = problems(f"training_automations:{key}={value}")
    assert f"unknown key '{key}' in training_automations" in problem.message
    assert problem.advice == "Did you mean 'enabled'?"


def test_an_automation_is_named_once(problems: Problems) -> None:
    """Fault 1: the file has PlanSchedule; switching off 'planschedule' beside it would leave it on."""
    (problem,) = problems("training_automations:planschedule:enabled=false")
    assert "automation 'planschedule' is there twice" in problem.message
    assert problem.advice == "Keep PlanSchedule or planschedule, not both."
