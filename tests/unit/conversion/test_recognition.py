"""Which files are taken for those of other projects, and how they are read."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.foreign_files import FILES, ours
from trainauto.core.errors import InputError
from trainauto.options.foreign_files import Project, read_foreign, recognised
from trainauto.options.load import load_options, load_test_options
from trainauto.options.yaml_file import read_yaml

ROOT = Path(__file__).parents[3]
OWN = [
    *sorted((ROOT / "options").rglob("*.yml")),
    *sorted((ROOT / "examples").rglob("*.yml")),
    *sorted((ROOT / "tests" / "assets").rglob("valid*.yml")),
    *map(ours, FILES),
]
LEGACY: dict[str, Any] = {"num_gpu": 1, "dist_params": {"port": 29500}}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_run_started_with_a_file_of_theirs_says_how_to_convert_it(file: Path) -> None:
    for load in (load_options, load_test_options):
        with pytest.raises(InputError) as caught:
            load(file)
        (problem,) = caught.value.problems
        assert "this is an option file of " in problem.message
        assert problem.advice.endswith(f"trainauto convert {file}")


@pytest.mark.parametrize("file", OWN, ids=lambda file: file.stem)
def test_files_of_trainauto_are_not_taken_for_theirs(file: Path) -> None:
    tree = read_yaml(file).value
    assert recognised(tree) is None
    for key, value in LEGACY.items():
        assert recognised({**tree, key: value}) is None
    train = {**tree.get("train", {}), "warmup_iter": -1}
    assert recognised({**tree, "train": train}) is None


def test_keys_that_only_trainauto_has_decide(tmp_path: Path) -> None:
    tree = read_foreign(FILES[0]).value
    assert recognised(tree) is Project.BASICSR
    assert recognised({**tree, "training_automations": {}}) is None
    assert recognised({key: value for key, value in tree.items() if key != "path"}) is None
    assert recognised([tree]) is None


@pytest.mark.parametrize(
    ("name", "text", "place", "said"),
    [
        ("a.toml", 'name = "x"\nscale = = 4\n', ":2:9", "this is not TOML: invalid value"),
        ("a.toml", 'name = "C:\\data"\n', ":1:", "this is not TOML"),
        ("a.toml", "name = 1\nname = 2\n", ":2:", "this is not TOML: cannot overwrite a value"),
        ("a.toml", 'name = "x', ":1:10", "this is not TOML"),
        ("a.json", '{"name": "x",\n "scale": }', ":2:11", "this is not JSON: expecting value"),
        ("a.json", '{"scale": 2, "scale": 4}', ":1:2", "the key 'scale' is given twice"),
        ("a.json", "[" * 20000, ":1:1", "this is nested too deeply"),
        ("a.json", "[" * 60 + "]" * 60, ":1:1", "this is nested too deeply"),
        ("a.json", '{"a": 99999999999999999999}', ":1:7", "more than 64 bits"),
        ("a.json", '{"a": "\\ud800"}', ":1:1", "half a character"),
        ("a.yml", "name: [x", ":1:", ""),
        ("a.txt", "name: x", "", "its name ends in '.txt'"),
        ("a", "name: x", "", "its name has no suffix"),
    ],
)
def test_what_cannot_be_read_is_one_error_with_its_place(
    tmp_path: Path, name: str, text: str, place: str, said: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_foreign(file)
    (problem,) = caught.value.problems
    assert said in problem.message
    assert str(problem.place).startswith(f"{file}{place}")


def test_yaml_toml_and_json_of_the_same_values_are_read_alike(tmp_path: Path) -> None:
    values = {"name": "x", "scale": 2, "train": {"lr": 1e-4, "milestones": [1, 2], "on": True}}
    (tmp_path / "a.yml").write_text(yaml.safe_dump(values))
    (tmp_path / "a.json").write_text(json.dumps(values))
    toml = 'name = "x"\nscale = 2\n[train]\nlr = 1e-4\nmilestones = [1, 2]\non = true\n'
    (tmp_path / "a.toml").write_text(toml)
    assert [read_foreign(tmp_path / f"a.{suffix}").value for suffix in ("yml", "json", "toml")] == [values] * 3


def test_toml_of_nobody_known_is_no_option_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nscale = 2\n')
    with pytest.raises(InputError, match="an option file is YAML, and this is TOML"):
        load_options(file)
