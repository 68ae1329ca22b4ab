from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NewType, TypedDict, TypeVar

import pytest
import torch

from trainauto.core.errors import InputError, Problem
from trainauto.options.component_arguments import check_arguments
from trainauto.options.parameters import argument_notes, summary_of
from trainauto.options.yaml_file import parse_yaml

if TYPE_CHECKING:
    from nowhere import Unknown

T = TypeVar("T")
Pixels = NewType("Pixels", int)


def checked(component: Callable[..., Any], text: str, supplied: Iterable[str] = ()) -> dict[str, Any]:
    """Check the arguments that ``text`` gives, as they would stand under ``part`` in a file."""
    tree = parse_yaml(f"part: {text}", "file.yml")
    return check_arguments(
        component,
        tree.value["part"],
        path=("part",),
        places=tree.places,
        kind="thing",
        name="mine",
        supplied=frozenset(supplied),
    )


def refused(component: Callable[..., Any], text: str, supplied: Iterable[str] = ()) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        checked(component, text, supplied)
    return caught.value.problems


class Mode(Enum):
    FAST = "fast"
    EXACT = "exact"


class Options(TypedDict):
    width: int


@dataclass
class Change:
    """A change.

    Attributes:
        step: when.
        sizes: what to,
            in pixels.
    """

    step: int
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.step < 0:
            raise ValueError("step is below 0")


@dataclass
class Tree:
    name: str
    children: "list[Tree]" = field(default_factory=list)


class Opaque:
    pass


def of(annotation: Any) -> Callable[..., Any]:
    """Return a component whose argument ``x`` is annotated so."""

    def component(x: Any) -> None: ...

    component.__annotations__ = {"x": annotation}
    return component


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, "3", 3),
        (int, "1e3", 1000),
        (Pixels, "3.0", 3),
        (float, "3", 3.0),
        (float, "1e-4", 1e-4),
        (int | float, "2.0", 2.0),
        (int | float, "2", 2),
        (bool, "true", True),
        (str, "a", "a"),
        (str | None, "~", None),
        (list[int], "[1, 2.0]", [1, 2]),
        (Sequence[str], "[a]", ["a"]),
        (Iterable[float], "[1]", [1.0]),
        (tuple[float, float], "[0.9, 1]", (0.9, 1.0)),
        (tuple[int, ...], "[1, 2, 3]", (1, 2, 3)),
        (tuple, "[a, 1]", ("a", 1)),
        (set[int], "[1, 1]", {1}),
        (frozenset[int], "[1]", frozenset({1})),
        (dict[str, int], "{a: 1e2}", {"a": 100}),
        (Mapping[str, tuple[int, int]], "{a: [1, 2]}", {"a": (1, 2)}),
        (list, "[a]", ["a"]),
        (dict, "{a: 1}", {"a": 1}),
        (Literal["mean", "sum"], "sum", "sum"),
        (Mode, "fast", Mode.FAST),
        (Path, "a/b", Path("a/b")),
        (float | torch.Tensor, "1", 1.0),
        (tuple[float | torch.Tensor, float | torch.Tensor], "[1, 2]", (1.0, 2.0)),
        (Change, "{step: 1e1, sizes: [1]}", Change(10, [1])),
        (Sequence[Change], "[{step: 1}]", [Change(1)]),
        (Change | None, "{step: 1}", Change(1)),
        (Options, "{width: 1}", {"width": 1}),
        (Tree, "{name: a}", Tree("a")),
        (Any, "[1, {a: b}]", [1, {"a": "b"}]),
        (object, "x", "x"),
        (T, "x", "x"),
        ("float | None", "3", 3.0),
        ("Unknown", "3", 3),
        ("list[Unknown] | int", "x", "x"),
    ],
)
def test_arguments_arrive_as_the_component_takes_them(annotation: Any, text: str, value: Any) -> None:
    result = checked(of(annotation), f"{{x: {text}}}")["x"]
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("annotation", "text", "what", "advice"),
    [
        (int, "1.5", "part.x takes a whole number, but 1.5 is a number", "without a fraction"),
        (int, "true", "part.x takes a whole number, but true is given", "Write a whole number."),
        (float, "1e-4x", "part.x takes a number, but '1e-4x' is text", "e.g. 1e-4"),
        (float, "'1e-4'", "part.x takes a number, but '1e-4' is text", "Remove the quotes."),
        (bool, "on", "part.x takes true or false, but 'on' is text", "Write true."),
        (bool, "1", "part.x takes true or false, but 1 is a number", "Write true."),
        (str, "3", "part.x takes text, but 3 is a number", "Put it in quotes."),
        (str, "", "part.x takes text, but nothing is given", "Write text, or remove the line."),
        (int | float | None, "a", "part.x takes a number, but 'a' is text", "Write a plain number"),
        (int | str, "[1]", "part.x takes a whole number or text, but a list of 1 is given", "Write a whole number or"),
        (list[int], "3", "part.x takes a list, but 3 is a number", "Write [3] for a list of one."),
        (list[int], "[1, a]", "part.x[1] takes a whole number, but 'a' is text", "Write a plain number"),
        (str | list[str], "[a, 1]", "part.x[1] takes text, but 1 is a number", "Put it in quotes."),
        (tuple[float, float], "[1]", "part.x has too few items", "Add the items"),
        (tuple[float, float], "[1, 2, 3]", "part.x takes at most 2 item(s), but a list of 3 is given", "Write at most"),
        (dict[str, int], "{a: b}", "part.x.a takes a whole number, but 'b' is text", "Write a plain number"),
        (Literal["mean", "sum"], "means", "part.x takes one of 'mean' or 'sum', but 'means' is given", "Did you mean"),
        (Mode, "quick", "part.x takes one of 'fast' or 'exact', but 'quick' is given", "Known: exact, fast."),
        (torch.Tensor, "3", "part.x takes a Tensor, which no option file can hold, but 3 is given", "Remove it."),
        (Callable[[int], int], "f", "part.x takes a function, which no option file can hold", "Remove it."),
        (type[int], "int", "part.x takes a subclass of int, which no option file can hold", "Remove it."),
        (Change, "{step: a}", "part.x.step takes a whole number, but 'a' is text", "Write a plain number"),
        (Change, "{stop: 1, step: 1}", "unknown key 'stop' in part.x", "Did you mean 'step'? Known: sizes, step."),
        (Change, "{}", "'step' is missing in part.x", "Add step: when."),
        (Change, "{step: -1}", "part.x: step is below 0", "Correct the value."),
        (Change, "3", "part.x takes a section of keys, but 3 is a number", "step, sizes"),
        (list[Change], "[{step: 1, sizes: [x]}]", "part.x[0].sizes[0] takes a whole number", "Write a plain number"),
        (dict[str, Change], "{a: {}}", "'step' is missing in part.x.a", "Add step: when."),
    ],
)
def test_wrong_types_are_refused(annotation: Any, text: str, what: str, advice: str) -> None:
    (problem,) = refused(of(annotation), f"{{x: {text}}}")
    assert what in problem.message
    assert advice in problem.advice
    assert problem.place is not None
    assert problem.place.line == 1
    assert problem.place.column > len("part: {")


def test_torch_optimizers() -> None:
    text = "{lr: 1e-4, betas: [0.9, 0.99], weight_decay: 0, foreach: true}"
    arguments = checked(torch.optim.AdamW, text, {"params"})
    assert arguments == {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, "foreach": True}
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)], **arguments)
    for optimizer in (torch.optim.SGD, torch.optim.Adam):
        assert checked(optimizer, "{lr: 1}", {"params"}) == {"lr": 1.0}


def test_all_problems_of_a_component_come_at_once() -> None:
    found = refused(torch.optim.SGD, "{lr: x, betas: [1, 2], nesterof: true, params: 1}", {"params"})
    assert [problem.message for problem in found] == [
        "part.lr takes a number, but 'x' is text",
        "thing 'mine' has no argument 'betas'",
        "thing 'mine' has no argument 'nesterof'",
        "'params' of thing 'mine' is filled in by trainauto",
    ]
    assert found[1].advice.startswith("Known: dampening, differentiable, foreach")
    assert found[2].advice.startswith("Did you mean 'nesterov'? Known: dampening")
    assert [problem.place.column for problem in found if problem.place] == [12, 15, 30, 46]


def test_missing_arguments_are_named_unless_supplied() -> None:
    def component(width: int, *, depth: int, scale: int = 4) -> None:
        """Make something.

        Args:
            width: channels.
        """

    assert [(p.message, p.advice) for p in refused(component, "{}")] == [
        ("thing 'mine' needs 'width'", "Add width: channels."),
        ("thing 'mine' needs 'depth'", "Add depth: ..."),
    ]
    assert checked(component, "{width: 3}", {"depth"}) == {"width": 3}


def test_only_what_is_given_is_returned() -> None:
    nothing = torch.zeros(1)

    def component(a: int = 1, b: Any = nothing, c: Callable[..., Any] = len) -> None: ...

    assert checked(component, "{}") == {}
    assert checked(component, "{b: [1]}") == {"b": [1]}


def test_keyword_catchers_take_anything() -> None:
    class Component:
        def __init__(self, *args: int, width: int, **others: int) -> None: ...

    assert checked(Component, "{width: 3, anything: [a]}") == {"width": 3, "anything": ["a"]}
    assert [p.message for p in refused(Component, "{width: x}")] == ["part.width takes a whole number, but 'x' is text"]
    assert [p.message for p in refused(Component, "{width: 1, y: 1}", {"y"})] == [
        "'y' of thing 'mine' is filled in by trainauto"
    ]


def test_parameters_may_be_called_anything() -> None:
    def component(_x: int, schema: int, model_y: int, self: int, json: int, copy: int, class_: int) -> None: ...

    names = ["_x", "schema", "model_y", "self", "json", "copy", "class_"]
    text = "{" + ", ".join(f"{name}: 1" for name in names) + "}"
    assert checked(component, text) == dict.fromkeys(names, 1)


def test_parameters_without_names_cannot_be_given() -> None:
    def component(image: int, /, border: int = 0) -> None: ...

    assert checked(component, "{border: 1}") == {"border": 1}
    assert [p.message for p in refused(component, "{image: 1}")] == ["thing 'mine' has no argument 'image'"]


def test_components_without_arguments_and_without_signatures() -> None:
    assert [p.advice for p in refused(lambda: None, "{x: 1}")] == ["It takes none."]
    assert checked(dict, "{x: 1}") == {"x": 1}


def test_annotations_of_classes_resolve_where_the_class_is_defined() -> None:
    class Component:
        def __init__(self, size: "int", other: "Unknown | None" = None, sizes: "list[int]" = []) -> None:  # noqa: B006
            """Make it."""

    assert checked(Component, "{size: 2.0, other: x, sizes: [1.0]}") == {"size": 2, "other": "x", "sizes": [1]}
    assert len(refused(Component, "{size: x, sizes: [y]}")) == 2


def test_what_docstrings_say_of_arguments() -> None:
    assert argument_notes(Change) == {"step": "when.", "sizes": "what to, in pixels."}
    assert argument_notes(torch.optim.SGD)["momentum"].startswith("momentum factor")
    assert len(argument_notes(torch.optim.AdamW)["foreach"]) <= 240
    assert argument_notes(lambda: None) == {}

    class Component:
        """Some ``thing``, like :class:`Other`
        one.

        More.
        """

        def __init__(self, a: int) -> None:
            """Make it.

            Args:
                a (int): the ``a``.

            Raises:
                ValueError: b.
            """

    assert summary_of(Component) == "Some `thing`, like `Other` one."
    assert argument_notes(Component) == {"a": "the `a`."}


def test_what_is_filled_in_is_not_missed_and_stays_a_known_name() -> None:
    def component(scale: int, width: int = 8) -> None: ...

    def check(text: str) -> dict[str, Any]:
        tree = parse_yaml(f"part: {text}", "file.yml")
        known = {"path": ("part",), "places": tree.places, "kind": "thing", "name": "mine"}
        return check_arguments(component, tree.value["part"], filled_in={"scale", "width"}, **known)

    assert (check("{}"), check("{scale: 2.0}")) == ({}, {"scale": 2})
    for text, advice in (("{sacle: 2}", "Did you mean 'scale'?"), ("{widht: 2}", "Did you mean 'width'?")):
        with pytest.raises(InputError) as caught:
            check(text)
        (problem,) = caught.value.problems
        assert problem.advice.startswith(advice)
