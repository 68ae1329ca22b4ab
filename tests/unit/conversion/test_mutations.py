"""Whatever stands in a file of theirs: it is converted, reads back, and no key of it goes unanswered."""

import copy
import random
from collections.abc import Iterator
from typing import Any

from tests.foreign_files import FILES
from trainauto.conversion.convert import convert
from trainauto.conversion.draft import leaves
from trainauto.conversion.known import Known
from trainauto.conversion.report import report_lines
from trainauto.conversion.stats import judged
from trainauto.conversion.writing import text_of
from trainauto.options.foreign_files import read_foreign, recognised
from trainauto.options.yaml_file import parse_yaml

VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    3.5,
    "text",
    "",
    "a\nb: c",
    "# x",
    [],
    {},
    [1, 2],
    [{}],
    [{"type": "x"}],
    {"type": 3},
    {"type": None},
    {"type": "L1Loss"},
    {"a": {"b": 1}},
]
KEYS = ["new", "a.b", "x\ny", "type", "val_9", "pixel_opt", "schedule_free", "*"]
ROUNDS = 400


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield from places(item, (*path, key))


def mutated(tree: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    tree = copy.deepcopy(tree)
    for _ in range(draw.randint(1, 4)):
        path = draw.choice(list(places(tree)))
        place: Any = tree
        for key in path[:-1]:
            place = place[key]
        choice = draw.random()
        if choice < 0.6:
            place[path[-1]] = copy.deepcopy(draw.choice(VALUES))
        elif choice < 0.8 and isinstance(place, dict):
            del place[path[-1]]
        elif isinstance(place, dict):
            place[draw.choice(KEYS)] = copy.deepcopy(draw.choice(VALUES))
    return tree


def test_broken_files_are_converted_and_every_key_is_answered_once() -> None:
    draw, known = random.Random(0), Known()
    trees = [(recognised(tree), tree) for tree in (read_foreign(file).value for file in FILES)]
    for number in range(ROUNDS):
        project, tree = trees[number % len(trees)]
        assert project is not None
        broken = mutated(tree, draw)
        recognised(broken)
        conversion = convert(broken, project, known)
        assert list(report_lines(conversion))
        judged(conversion)
        if conversion.tree:
            assert parse_yaml(text_of(conversion, "x"), "x").value == conversion.tree
        sources = [source for answer in conversion.answers for source in answer.source]
        assert len(sources) == len(set(sources))
        answered = set(sources)
        for path in leaves(broken):
            assert answered & {path[:length] for length in range(1, len(path) + 1)}, path
