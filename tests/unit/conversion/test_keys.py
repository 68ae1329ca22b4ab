"""Every key of the templates of three projects has an answer, and what is written exists here."""

import inspect
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))

import conversion_tables

from trainauto.conversion.answers import KEPT, Answer, Kind, Moved
from trainauto.conversion.convert import RULES, convert
from trainauto.conversion.known import REGISTRIES, Known
from trainauto.conversion.networks import DEFAULTS, NAMES
from trainauto.conversion.optimizers import OPTIMIZERS
from trainauto.core.errors import InputError
from trainauto.optim import OPTIMIZERS as REGISTERED
from trainauto.options.foreign_files import Project
from trainauto.options.lookup import field_at, fields_of, section_at
from trainauto.options.run_options import is_schedule_free
from trainauto.options.schema import Component, Options

COMPONENTS = {"network_g": "network", "network_d": "network", "scheduler": "schedule", "losses": "loss"}


@pytest.fixture(scope="module")
def rows() -> list[conversion_tables.Row]:
    if not conversion_tables.KEYS.is_file():
        pytest.skip("the keys of other projects' templates are not here: shared/data/option_templates.csv")
    return conversion_tables.read_rows()


@pytest.fixture(scope="module")
def answers(rows: list[conversion_tables.Row]) -> dict[tuple[Project, str], Answer]:
    known = Known()
    found = {}
    for project in Project:
        own = [row for row in rows if row.project is project]
        for key, answer in conversion_tables.answers_of(project, own, known).items():
            found[project, key] = answer
    return found


def test_all_457_keys_are_answered_with_a_reason(
    rows: list[conversion_tables.Row], answers: dict[tuple[Project, str], Answer]
) -> None:
    assert len(rows) == 457
    assert set(answers) == {(row.project, row.key) for row in rows}
    kinds = Counter(answer.kind for answer in answers.values())
    assert set(kinds) <= {Kind.CARRIED, Kind.MAPPED, Kind.LEFT_OUT}
    for (_, key), answer in answers.items():
        if answer.kind is Kind.LEFT_OUT or (answer.kind is Kind.MAPPED and answer.new is None):
            assert answer.why, key


def test_what_is_written_exists_here(answers: dict[tuple[Project, str], Answer]) -> None:
    for (project, key), answer in answers.items():
        if answer.target is not None:
            assert exists(answer.target), f"{project} {key} -> {answer.target}"


def exists(path: tuple[Any, ...]) -> bool:
    """Return whether a key is one of an option file here; names and arguments of components are looked up elsewhere."""
    if path == ("path", "results_root"):  # of tests
        return True
    if path[0] == "datasets":
        from trainauto.options.schema import TrainDataset, ValDataset

        return path[2] in fields_of(TrainDataset if path[1] == "train" else ValDataset)
    for length in range(len(path), 0, -1):
        if section_at(Options, path[:length]) is Component or path[length - 1] in ("losses", "metrics"):
            return True
    return field_at(Options, path) is not None or section_at(Options, path) is not None


def test_rules_lead_to_keys_that_exist() -> None:
    for project, rules in RULES.items():
        for key, rule in rules.items():
            if rule is KEPT and "*" not in key:
                assert exists(tuple(key.split("."))), f"{project} {key}"
            elif isinstance(rule, Moved):
                assert exists(tuple(rule.to.replace("*", "train").split("."))), f"{project} {key} -> {rule.to}"


def test_optimizers_and_networks_are_registered_and_take_what_is_written_out() -> None:
    for named in OPTIMIZERS.values():
        for optimizer in named.values():
            try:
                kind = REGISTERED.get(optimizer.name)
            except InputError:
                assert is_schedule_free(optimizer.name)
                continue
            taken = inspect.signature(kind).parameters
            assert {*optimizer.defaults, *optimizer.fixed} <= set(taken), optimizer.name
    for names in NAMES.values():
        assert all(name in REGISTRIES["network"] for name in names.values())
    for (_, name), arguments in DEFAULTS.items():
        assert arguments.keys() <= Known().takes("network", name).keys(), name


@pytest.mark.parametrize(
    ("path", "near"),
    [
        (("train", "total_iters"), "'total_iter'"),
        (("datasets", "train", "lq_sise"), "'lq_size'"),
        (("zzz",), ""),
        (("train", "kl"), ""),
        (("datasets", "train", "use_usm"), ""),
    ],
)
def test_a_key_of_no_table_is_named_with_the_nearest(path: tuple[str, ...], near: str) -> None:
    theirs: dict[str, Any] = {"name": "x", "scale": 2, "train": {}, "datasets": {"train": {}}}
    place = theirs
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = {"type": "kl_loss"} if path[-1] == "kl" else 7
    (answer,) = convert(theirs, Project.REDUX).of(Kind.UNKNOWN)
    assert answer.source[0][: len(path)] == path
    assert answer.near == near
    assert answer.why == "unknown here and in traiNNer-redux's templates"


def test_tables_of_the_page_are_up_to_date(rows: list[conversion_tables.Row]) -> None:
    made = conversion_tables.page(rows, conversion_tables.read_figures())
    assert made == conversion_tables.PAGE.read_text(encoding="utf-8"), "python scripts/conversion_tables.py"
