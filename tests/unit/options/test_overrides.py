from collections.abc import Callable

import pytest

from trainauto.core.errors import InputError, Problem
from trainauto.options.load import LoadedOptions
from trainauto.options.overrides import apply_overrides
from trainauto.options.yaml_file import YamlTree, parse_yaml


def overridden(*items: str, text: str = "train: {losses: [{type: l1}], lr: 5}\nval:\n") -> YamlTree:
    tree = parse_yaml(text, "file.yml")
    apply_overrides(tree.value, tree.places, items)
    return tree


def test_values_follow_the_rules_of_files() -> None:
    assert overridden("train:lr=1e-4", "a=on", "b=[1, {c: d}]", "e=", "f='1'", "g=x=y").value == {
        "train": {"losses": [{"type": "l1"}], "lr": 1e-4},
        "val": None,
        "a": "on",
        "b": [1, {"c": "d"}],
        "e": None,
        "f": "1",
        "g": "x=y",
    }


def test_lists_are_reached_by_position_and_grow_at_the_end() -> None:
    tree = overridden("train:losses:0:type=mse", "train:losses:1={type: ssim}", "train:losses:1:type=x")
    assert tree.value["train"]["losses"] == [{"type": "mse"}, {"type": "x"}]


def test_missing_and_empty_sections_are_made() -> None:
    assert overridden("val:metrics:psnr:type=p", "new:er=1").value["val"] == {"metrics": {"psnr": {"type": "p"}}}


def test_a_length_takes_the_place_of_the_files() -> None:
    text = "train: {total_epochs: 3, lr: 5}\n"
    assert overridden("train:total_iter=500", text=text).value == {"train": {"lr": 5, "total_iter": 500}}
    assert overridden("train:total_iter=null", text=text).value["train"]["total_epochs"] == 3
    both = overridden("train:total_iter=500", "train:total_epochs=2", text=text).value["train"]
    assert (both["total_iter"], both["total_epochs"]) == (500, 2), "which is refused"


def test_places_are_those_in_the_argument() -> None:
    places = overridden("train:losses:0:type= mse", "val:x={y: 1}").places
    value = places.of_value(("train", "losses", 0, "type"))
    assert (str(value), value.text) == ("--force_yml:1:22", "train:losses:0:type= mse")
    assert str(places.of_key(("train", "losses", 0, "type"))) == "--force_yml:1:16"
    assert str(places.of_value(("val", "x", "y"))) == "--force_yml:1:11"
    assert str(places.of_key(("train", "lr"))) == "file.yml:1:31"


def test_places_of_what_was_replaced_are_forgotten() -> None:
    places = overridden("train={losses: []}").places
    assert str(places.of_key(("train", "lr"))) == "--force_yml:1:1"


@pytest.mark.parametrize(
    ("item", "column", "what"),
    [
        ("train", 1, "gives no value"),
        ("=3", 1, "empty key"),
        ("a::b=3", 1, "empty key"),
        ("train:lr:x=3", 10, "train.lr is a single value"),
        ("train:losses:2=3", 14, "list of 1"),
        ("train:losses:-1=3", 14, "list of 1"),
        ("train:losses:x=3", 14, "list of 1"),
        ("a=[1", 3, "a bracket"),
        ("a=!x 1", 3, "!x"),
        ("a=\x00", 3, "U+0000"),
        ("a={b: 1, b: 2}", 10, "given twice"),
    ],
)
def test_malformed_items_are_refused_with_their_place(item: str, column: int, what: str) -> None:
    with pytest.raises(InputError) as caught:
        overridden(item)
    (problem,) = caught.value.problems
    assert problem.place is not None
    assert (problem.place.file, problem.place.column) == ("--force_yml", column), str(problem)
    assert what in problem.message
    assert problem.advice


def test_every_malformed_item_is_reported() -> None:
    with pytest.raises(InputError) as caught:
        overridden("a", "b=[", "c=1")
    assert len(caught.value.problems) == 2


def test_overrides_come_before_validation(load: Callable[..., LoadedOptions]) -> None:
    loaded = load("train:total_iter=7", "train:warmup_steps=0", "path:experiments_root=elsewhere")
    assert loaded.options.train.total_iter == 7
    assert loaded.options.path.experiments_root == "elsewhere"


def test_problems_of_overrides_come_last_and_argument_by_argument(
    problems: Callable[..., tuple[Problem, ...]],
) -> None:
    found = problems("zzz=1", "a={b: 1}", "val:val_freq=x", text="name: 3\n")
    places = [problem.place.text for problem in found if problem.place]
    assert places[-3:] == ["a={b: 1}", "val:val_freq=x", "zzz=1"]
    assert set(places[:-3]) == {"name: 3"}
